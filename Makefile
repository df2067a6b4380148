# `make demo` and `make test` require CPython 3.11 to 3.14 with its headers and a C compiler, nothing else: both
# create a virtual environment in .venv, once. `make` lists every target.

PYTHON ?= python3
SECONDS := 60
VARIANTS := plain address thread

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
BUILD := build/core

CORE_C := $(wildcard shmq/core/*/*.c)
OPCODES := shmq/core/protocol/opcodes.h
PROPERTIES := shmq/core/queue/property_table.h
CORE := $(CORE_C) $(OPCODES) $(PROPERTIES) tools/declarations.py $(wildcard shmq/core/*/*.h $(addprefix shmq/native/*.,pyx pxd pxi))

# The tests begin thousands of processes: each would compile shmq anew.
export PYTHONDONTWRITEBYTECODE :=

# The lanes of `make test` and of `make prove`, the longest first.
QUICK_LANES := test-extras test-system test-commands test-contract test-cluster test-processes test-units test-lint test-c
THOROUGH_LANES := prove-death prove-spark prove-extras prove-system prove-pages prove-c \
    prove-cluster prove-contract prove-release

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: help demo test prove lint lint-core lint-form lint-python core-test core-test-build
.PHONY: $(QUICK_LANES) $(THOROUGH_LANES)
.PHONY: model powerloss soak spark-soak spark-cluster cluster-soak fuzz bench bench-tcp bench-disk bench-spark reference layout
.PHONY: bench-cluster bench-frameworks
.PHONY: bench-record
.PHONY: release-check
.PHONY: stubs
.PHONY: site man
.PHONY: options folders protocol monitoring clean

help:
	@echo 'make demo               the main job on real input; with CONSOLE=1 its queues in a browser,'
	@echo '                        with CLUSTER=1 over three servers, one of which is killed, too'
	@echo 'make test               five minutes: lint, the C tests, the contract, units, processes, extras,'
	@echo '                        the command, one scenario of each kind of death'
	@echo 'make prove              forty minutes: all the rest; see tests/README.md'
	@echo 'make lint               ruff, mypy --strict, and the C code: its form, no warning'
	@echo 'make core-test          the C tests, plain and under sanitizers (VARIANTS=plain)'
	@echo 'make model              the models of waiting, through spin'
	@echo 'make powerloss          cut the power in every state of the disk, and recover'
	@echo 'make soak SECONDS=60    kill producers and consumers at random, then count'
	@echo 'make spark-soak         the same with the jobs of the pipeline on Spark'
	@echo 'make spark-cluster      a Spark cluster over TLS whose workers are killed'
	@echo 'make cluster-soak       three NATS servers, bridges, consumers: killed and stopped; KILLS=100'
	@echo 'make fuzz SECONDS=60    any bytes for the protocol engine (needs clang);'
	@echo '                        HARNESS=dmsq: for what reads files'
	@echo 'make stubs              write shmq/native/*.pyi from the signatures in the sources'
	@echo 'make reference          write docs/reference/api.md from the docstrings'
	@echo 'make layout             write the tables of the segments from the headers'
	@echo 'make options            write what is made from the tables of options'
	@echo 'make folders            write the list of folders in shmq/README.md'
	@echo 'make protocol           write the enums and tables that shmq/protocol/opcodes.toml defines'
	@echo 'make monitoring         write the tables, alerts and dashboard of metrics'
	@echo 'make bench              shmq beside its peers, in ten minutes: the bars with intervals'
	@echo 'make bench-tcp          the same over TCP, beside Redis, beanstalkd and NATS'
	@echo 'make bench-disk         what reaches the disk, beside the disk and its other users'
	@echo 'make bench-frameworks   task frameworks, real time, pools, locks, caches beside their peers'
	@echo 'make bench-spark        queues read, written and streamed by Spark, beside its own limits'
	@echo 'make bench-record       the tables of all benches, recorded in the pages'
	@echo 'make release-check      build what is published, twice, and try it without a compiler'
	@echo 'make site               build the pages as a site, with search, into build/site'
	@echo 'make man                write a manual page for each command into build/man'
	@echo 'make clean              remove .venv and everything built'

# With CONSOLE=1 it prints the address of a page that shows its queues while it runs.
CONSOLE :=
demo: $(VENV)/demo
	@mkdir -p build
	$(BIN)/python -m examples.flights --plot build/delays.png $(if $(filter-out 0,$(CONSOLE)),--console) \
		$(if $(filter-out 0,$(CLUSTER)),--cluster)

# --- the tests: tests/README.md says what is where ----------------------------------------
#
# `make test` and `make prove` together run every test, and none of them twice. Each runs in lanes,
# several at a time, as a lane waits for much of the time; the longest starts first. A lane that
# fails does not stop the others. PYTEST adds flags: make test PYTEST=-x

PYTEST :=
# What `make test` may take, in seconds on two quiet cores, installation and build not counted. On a
# machine that is SLOWER, so many times more; above that it warns.
BUDGET := 240
SLOWER := 1
LANES := $(MAKE) --no-print-directory --output-sync=target --keep-going
QUICK = $(OWN_SHM) $(BIN)/python -m pytest -m 'not prove' $(PYTEST)
# Spark gives a worker of Python 10 s to start, whatever else runs: other lanes stand back.
STAND_BACK := nice -n 5
WITH_SPARK = $(OWN_SHM) $(BIN)/python -m pytest -m prove $(PYTEST)
THOROUGH = $(STAND_BACK) $(WITH_SPARK)
# Each lane has a /dev/shm of its own where root may mount one: shmq lists the folder often, and what
# other lanes and programs have there would multiply the time of a test.
MOUNT_SHM := unshare --mount sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$$0" "$$@"'
OWN_SHM = $(if $(shell $(MOUNT_SHM) echo yes 2>/dev/null),$(MOUNT_SHM))

test: $(VENV)/test
	@$(MAKE) --no-print-directory --jobs=2 core-test-build VARIANTS=plain
	@started=$$(date +%s); $(LANES) --jobs=5 $(QUICK_LANES) || exit 1; \
	took=$$(($$(date +%s) - started)); \
	limit=$$(($(BUDGET) * $(SLOWER))); \
	echo "make test: passed in $$took s of $$limit s; the slowest tests are listed above"; \
	echo 'make prove adds: sanitizers, the contract over TCP in full, a death at every store, power'; \
	echo 'loss, recovery, models, soaks, Spark with kills, the pages, and the benches'; \
	if [ $$took -gt $$limit ]; then \
	    echo 'make test: over its budget: mark slow tests `prove`, or make them quicker' >&2; fi

test-lint:
	@$(MAKE) --no-print-directory lint

test-c:
	@$(MAKE) --no-print-directory core-test VARIANTS=plain

test-contract:
	$(QUICK) tests/conformance

test-units:
	$(QUICK) tests/unit tests/tree

# The last folder's are those marked `smoke`.
COMMANDS := tests/system/cli tests/system/futures tests/system/mp tests/system/workers
test-commands:
	$(QUICK) $(COMMANDS) tests/prove --ignore=tests/prove/bench

PROCESSES := tests/system/processes
test-processes:
	$(QUICK) $(PROCESSES)

test-system:
	$(QUICK) tests/system $(addprefix --ignore=,$(COMMANDS) $(PROCESSES))

CLUSTER_TESTS := tests/extras/nats
test-cluster:
	$(QUICK) $(CLUSTER_TESTS)

test-extras:
	$(QUICK) tests/extras --ignore=$(CLUSTER_TESTS)

prove: $(VENV)/test $(VENV)/bench
	@started=$$(date +%s); $(LANES) --jobs=5 $(THOROUGH_LANES) || exit 1; \
	echo "make prove: passed in $$(($$(date +%s) - started)) s"

prove-c:
	@$(STAND_BACK) $(MAKE) --no-print-directory core-test VARIANTS='address thread'
	@$(STAND_BACK) $(MAKE) --no-print-directory model

prove-contract:
	$(THOROUGH) tests/conformance
	SHMQ_MODEL_EXAMPLES=300 $(STAND_BACK) $(OWN_SHM) $(BIN)/python -m pytest $(PYTEST) tests/conformance/models

prove-system:
	$(THOROUGH) tests/system

# Deaths at any store, of the machine, and at random; and whatever has no lane of its own.
SPARK := tests/prove/spark tests/prove/soak/spark
PAGES := tests/prove/examples tests/prove/docs tests/prove/bench
prove-death:
	$(THOROUGH) $(addprefix --ignore=,$(SPARK) $(PAGES) tests/prove/release) tests/prove

# The frameworks' own tests, and the console in a browser. A cluster waits for elections most of the
# time.
prove-extras:
	$(THOROUGH) --ignore=$(CLUSTER_TESTS) tests/extras

prove-cluster:
	$(THOROUGH) $(CLUSTER_TESTS)

prove-release:
	$(THOROUGH) tests/prove/release

# The benchmark's rows on Spark run in the session of the other tests.
ROWS := tests/prove/bench/test_rows.py::test_every_contestant_is_measured_and_printed[spark]
prove-spark:
	$(WITH_SPARK) $(SPARK) '$(ROWS)'

prove-pages:
	$(WITH_SPARK) --deselect='$(ROWS)' $(PAGES)

# Without spin this is passed over, but where SPIN=required says that it must be there.
model:
	@if command -v spin >/dev/null; then $(PYTHON) -m tests.prove.spin; \
	elif [ '$(SPIN)' = required ]; then echo 'make model: there is no spin' >&2; exit 1; \
	else echo 'make model: passed over, there is no spin (apt install spin)'; fi

# More states, or some of the workloads: make powerloss POWERLOSS='--states 1000000'
powerloss: $(VENV)/test
	$(BIN)/python -m tests.prove.powerloss $(POWERLOSS)

# Over TCP, the server being killed, too: make soak SOAK=--tcp. With a journal, everything
# being killed and the shared memory lost: make soak SOAK=--durable. Of a stream and a group
# that reads it: make soak SOAK=--streams. Of transactions: make soak SOAK=--transactions. All
# of it at once, with processes that are stopped as well as killed, a disk that fills up, closed
# descriptors, frozen clocks and other data directories: make soak SOAK=--mixed; an ingredient is
# left out by SOAK='--mixed --without full-disk'
soak: $(VENV)/test
	$(BIN)/python -m tests.prove.soak --seconds $(SECONDS) $(SOAK)

# Through the pipeline on Spark: make spark-soak KILLS=40
KILLS := 56
spark-soak: $(VENV)/test
	$(BIN)/python -m tests.prove.soak.spark --kills $(KILLS)

# The same pipeline of batches on a standalone cluster: a master, two workers, TLS and a token.
WORKER_KILLS := 4
spark-cluster: $(VENV)/test
	$(BIN)/python -m tests.prove.spark.cluster --kills $(WORKER_KILLS)

# Two histories of a cluster of three servers, while servers, bridges and consumers are killed or stopped:
# make cluster-soak KILLS=100
cluster-soak: $(VENV)/test
	SHMQ_KILLS=$(KILLS) $(BIN)/python -m pytest tests/extras/nats/prove/test_failover.py \
		tests/extras/nats/prove/test_history.py -k 'deaths_of_leaders or whoever_is_killed'

options: $(VENV)/built
	$(BIN)/python tools/options.py
	$(BIN)/python tools/cluster.py
	$(BIN)/python -m tools.settings

stubs: $(VENV)/built
	$(BIN)/python tools/stubs.py

# The second page is made of the code that shmq[console] needs.
reference: $(VENV)/built
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/http_api.py

folders: $(VENV)/tools
	$(BIN)/python -m tools.folders

layout: $(VENV)/built
	$(BIN)/python tools/layout.py

monitoring: $(VENV)/built
	$(BIN)/python tools/monitoring.py

# Nothing is loaded from another host, neither now nor by a reader.
site: $(VENV)/docs
	$(BIN)/python -m tools.site

man: $(VENV)/docs
	$(BIN)/python -m tools.release.manual build/man

protocol: $(VENV)/tools
	$(BIN)/python tools/protocol.py

# One row, fewer turns: make bench BENCH='--only one-call --quick'
bench: $(VENV)/bench
	$(BIN)/python -m bench $(BENCH)

# The peers' servers: apt install redis-server beanstalkd nats-server; what is absent is left out.
bench-tcp: $(VENV)/bench
	$(BIN)/python -m bench --tcp $(BENCH)

# On a real disk: SHMQ_BENCH_DISK names a folder, if temporary files are kept in memory.
bench-disk: $(VENV)/bench
	$(BIN)/python -m bench --disk $(BENCH)

# The transport over a cluster, beside nats-py.
bench-cluster: $(VENV)/bench
	$(BIN)/python -m bench --cluster $(BENCH)

# Task frameworks on shmq, Redis and RabbitMQ; pools, locks, caches: apt install redis-server rabbitmq-server
bench-frameworks: $(VENV)/bench
	$(BIN)/python -m bench --frameworks $(BENCH)

# Some of it: make bench-spark BENCH='--only spark-peek --rows 500000'
bench-spark: $(VENV)/bench $(VENV)/spark
	$(BIN)/python -m bench --spark $(BENCH)

# On a machine that does nothing else; some hours. bench/recorded.json keeps the results.
bench-record: $(VENV)/bench $(VENV)/spark
	@for table in '' --tcp --disk --cluster --frameworks --spark; do $(BIN)/python -m bench $$table --record || exit 1; done

# A wheel for each Python of this machine; RELEASE='--python PATH' for another one.
release-check: $(VENV)/release
	$(BIN)/python -m tools.release $(RELEASE)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f shmq/native/*.so
	find bench examples shmq tests tools -name __pycache__ -prune -exec rm -rf {} +

# --- the virtual environment: each stamp is one step of it ---------------------------

$(VENV)/tools: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "shmq needs Python 3.11 or newer: make PYTHON=python3.11, for example")'
	@echo 'making $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb")); \
	    print(*project["build-system"]["requires"], sep="\n")' >$@.txt
	@$(PIP) --requirement $@.txt
	@touch $@

$(VENV)/built: $(VENV)/tools setup.py $(CORE)
	@echo 'building the core'
	@$(PIP) --no-build-isolation --editable .
	@touch $@

# The package is in place by then, so this adds what the extra names and builds nothing.
$(VENV)/bench $(VENV)/console $(VENV)/demo $(VENV)/docs $(VENV)/release $(VENV)/spark $(VENV)/test: $(VENV)/%: $(VENV)/tools | $(VENV)/built
	@echo 'installing what $* needs'
	@$(PIP) --use-pep517 'shmq[$*]'
	@touch $@

lint: lint-python lint-core lint-form

lint-python: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --level error --pythonpath $(BIN)/python

lint-core: $(CORE_C:%.c=$(BUILD)/plain/%.o)

# The form of the C code is in .clang-format; a header that is generated has its own.
lint-form: $(VENV)/test
	@echo 'clang-format --dry-run -Werror'; \
	    $(BIN)/clang-format --dry-run -Werror $(filter-out $(OPCODES) $(PROPERTIES),$(wildcard shmq/core/*/*.[ch] tests/c/*.[ch] examples/*/*.c))

# The same file is made by setup.py.
$(OPCODES): shmq/protocol/opcodes.toml tools/protocol.py
	@$(PYTHON) -c 'import runpy; runpy.run_path("tools/protocol.py")["write_sources"]()'
	@touch $@

$(PROPERTIES): shmq/api/properties.py tools/properties.py
	@$(PYTHON) tools/properties.py
	@touch $@

# --- the C tests: each tests/c/test_*.c is a program of its own ---------------------

C_TESTS := $(wildcard tests/c/test_*.c)
C_SHARED := $(CORE_C) $(filter-out $(C_TESTS),$(wildcard tests/c/*.c))
C_FLAGS := -std=gnu11 -O2 -g -pthread -Wall -Wextra -Werror -Ishmq/core

FLAGS_address := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_thread := -fsanitize=thread -fno-omit-frame-pointer

# ThreadSanitizer cannot map its shadow under some kernels' address randomisation.
RUN_thread := $(shell setarch -R true 2>/dev/null && echo setarch -R)
WATCHDOG := timeout --signal=ABRT --kill-after=10 300

core-test: $(VARIANTS:%=core-test-%)

core-test-build: $(VARIANTS:%=core-test-build-%) lint-core

define variant_rules
.PHONY: core-test-$(1) core-test-build-$(1)
core-test-build-$(1): $(C_TESTS:%.c=$(BUILD)/$(1)/%)

core-test-$(1): $(C_TESTS:%.c=$(BUILD)/$(1)/%)
	@for program in $$^; do echo "$$$$program"; $(RUN_$(1)) $(WATCHDOG) $$$$program || exit 1; done

$(BUILD)/$(1)/%.o: %.c $(BUILD)/$(1)/compiler | $(OPCODES) $(PROPERTIES)
	@mkdir -p $$(@D)
	@echo 'cc $$< ($(1))'
	@$$(CC) $(C_FLAGS) $(FLAGS_$(1)) -MMD -MP -c $$< -o $$@

$(BUILD)/$(1)/tests/c/%: $(BUILD)/$(1)/tests/c/%.o $(C_SHARED:%.c=$(BUILD)/$(1)/%.o)
	@$$(CC) $(C_FLAGS) $(FLAGS_$(1)) $$^ -o $$@

$(BUILD)/$(1)/compiler: Makefile
	@mkdir -p $$(@D)
	@echo 'int main(void) { return 0; }' | $$(CC) $(C_FLAGS) $(FLAGS_$(1)) -x c - -o $$@ || { \
	    echo '$$(CC) cannot link with $(FLAGS_$(1)): install its sanitizer libraries' >&2; exit 1; }
endef
$(foreach variant,plain address thread,$(eval $(call variant_rules,$(variant))))

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# --- fuzzing: the protocol engine under libFuzzer, AddressSanitizer and UBSan; or, with
# HARNESS=dmsq, what reads files ----------------------------------------------------------

# What is new goes to build/fuzz/found_…; `make fuzz-keep` takes what adds to the kept corpus
# into it. FUZZ adds flags of libFuzzer: make fuzz FUZZ='-runs=10000000 -fork=2'
CLANG ?= clang
HARNESS := wire
FUZZER := build/fuzz/fuzz_$(HARNESS)
FOUND := build/fuzz/found_$(HARNESS)
FUZZ_wire := $(CORE_C) tests/c/fixture.c tests/c/registered.c $(wildcard tests/c/wire_*.c)
FUZZ_dmsq := $(addprefix shmq/core/,base/crc32c.c queue/columns.c file/live_messages.c file/record.c file/replay.c)
FUZZ_C := $(FUZZ_$(HARNESS)) tests/prove/fuzz/fuzz_$(HARNESS).c
FUZZ_H := $(OPCODES) $(PROPERTIES) $(wildcard shmq/core/*/*.h tests/c/*.h)
FUZZ_FLAGS := -std=gnu11 -O2 -g -pthread -Wall -Wextra -Werror -Ishmq/core -Itests/c \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CORPUS_wire := tests/prove/fuzz/corpus
CORPUS_dmsq := tests/prove/fuzz/corpus_dmsq
CORPUS := $(CORPUS_$(HARNESS))

.PHONY: fuzz fuzz-keep

fuzz: $(FUZZER)
	@mkdir -p $(FOUND)
	ASAN_OPTIONS=quarantine_size_mb=8 $(FUZZER) -max_total_time=$(SECONDS) -max_len=2048 \
	    -artifact_prefix=build/fuzz/ -print_final_stats=1 $(FUZZ) $(FOUND) $(CORPUS)

fuzz-keep: $(FUZZER)
	$(FUZZER) -set_cover_merge=1 -use_counters=0 $(CORPUS) $(FOUND)

$(FUZZER): $(FUZZ_C) $(FUZZ_H) Makefile
	@command -v $(CLANG) >/dev/null || { \
	    echo 'make fuzz needs clang with its libFuzzer (apt install clang libclang-rt-14-dev)' >&2; \
	    exit 1; }
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) $(FUZZ_C) -o $@
