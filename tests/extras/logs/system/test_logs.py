"""Log records of many processes in a queue; that kills lose none is in prove."""

from __future__ import annotations

import logging
import logging.config
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.extras.frameworks.task_queues import TaskQueues
from shmq.extras.logs import Listener, QueueHandler
from tests.support.waiting import PATIENCE, eventually


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self) -> list[str]:
        return [self.format(record) for record in self.records]


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of the test's own."""
    logger = logging.getLogger("shop.tests")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def add(log: logging.Logger, target: str, **options: Any) -> QueueHandler:
    handler = QueueHandler(url=target, **options)
    log.addHandler(handler)
    return handler


def received(target: str) -> Kept:
    """What a listener finds."""
    kept = Kept()
    with Listener("logs", kept, url=target):
        pass  # a stop handles what is there
    return kept


def test_a_configured_handler_and_a_listener_with_levels(target: str) -> None:
    queue = {"class": "shmq.extras.logs.QueueHandler", "queue": "logs", "url": target}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"queue": {**queue, "level": "INFO"}},
            "loggers": {"shop": {"handlers": ["queue"], "level": "DEBUG"}},
        }
    )
    log = logging.getLogger("shop")
    all_, errors = Kept(), Kept(logging.ERROR)
    try:
        with Listener("logs", all_, errors, url=target):
            log.debug("not stored")
            log.info("заказ %d of %s", 17, "鍵")
            log.error("failed")
            eventually(lambda: len(errors.records) == 1, "the error arrives")
    finally:
        log.handlers.pop().close()

    assert all_.texts() == ["заказ 17 of 鍵", "failed"]
    record = all_.records[0]
    assert (record.name, record.levelname, record.process) == ("shop", "INFO", os.getpid())
    assert record.lineno > 0
    assert record.threadName == threading.current_thread().name


def test_tracebacks_and_stacks_are_text_that_formatters_append(
    log: logging.Logger, target: str
) -> None:
    local = Kept()
    add(log, target)
    log.addHandler(local)
    try:
        raise ValueError("no \ud800")
    except ValueError:
        log.exception("failed", stack_info=True)

    (text,) = received(target).texts()
    assert text.startswith("failed\nTraceback (most recent call last)")
    assert "ValueError: no \\ud800\nStack (most recent call last)" in text
    assert local.records[0].exc_info is not None  # the record itself is unchanged


def test_a_formatter_of_the_handler_makes_the_text(log: logging.Logger, target: str) -> None:
    add(log, target).setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    (text,) = received(target).texts()
    assert text.startswith("ERROR failed\nTraceback")
    assert text.count("Traceback") == 1


class Loud:
    """Its repr logs."""

    def __repr__(self) -> str:
        logging.getLogger("shop.tests").warning("from a repr")
        return "<loud>"


class Broken:
    """It has no repr."""

    def __repr__(self) -> str:
        raise ValueError


def test_extras_are_kept_or_are_their_repr(
    log: logging.Logger, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add(log, target)
    endless: list[Any] = []
    endless.append(endless)
    extra = {
        "user": {"id": 7, "roles": ["admin", ("a", None)], "имя": 1.5},
        "big": 1 << 70,
        "pairs": {(1, 2): 3},
        "kind": {1},
        "loud": Loud(),
        "broken": Broken(),
        "lone": "\ud800",
        "endless": endless,
    }
    log.info("x", extra=extra)
    (record,) = received(target).records
    found = record.__dict__
    assert found["user"] == {"id": 7, "roles": ["admin", ["a", None]], "имя": 1.5}
    assert found["big"] == str(1 << 70)
    assert (found["pairs"], found["kind"], found["loud"]) == ("{(1, 2): 3}", "{1}", "<loud>")
    assert found["lone"] == "\\ud800"
    assert "Broken object" in found["broken"]
    assert isinstance(found["endless"], list)
    assert "from a repr" in capsys.readouterr().err  # not into the queue, and not lost


def test_logging_never_raises(namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("alone")  # noqa: LOG001 - without the handlers of pytest, which raise
    log.addHandler(QueueHandler("no/such<name>", namespace + "!"))
    log.info("lost: no namespace")
    log.addHandler(QueueHandler(url=namespace, arena_bytes=64 << 10))
    log.info("wrong arguments: %d", "one")
    log.info("x" * (1 << 20))
    said = capsys.readouterr().err
    assert said.count("--- Logging error ---") == 5  # three by the first handler, two by the other
    assert "MessageTooLarge" in said
    for handler in log.handlers:
        handler.close()
    with pytest.raises(shmq.InvalidOption, match="wait"):
        QueueHandler(wait=-1)


def test_records_that_find_a_full_queue_are_dropped_and_counted(
    log: logging.Logger, target: str
) -> None:
    add(log, target, capacity=3)
    for number in range(5):
        log.info("%d", number)
    assert received(target).texts() == ["0", "1", "2"]
    log.info("5")
    first, last = received(target).records
    assert first.getMessage() == (
        f"2 log records of process {os.getpid()} were dropped: the queue was full"
    )
    assert (first.name, first.levelname, last.getMessage()) == ("shmq.logs", "WARNING", "5")


def test_a_handler_may_wait_for_room(log: logging.Logger, target: str) -> None:
    add(log, target, capacity=1, wait=PATIENCE)
    log.info("0")
    thread = threading.Thread(target=log.info, args=("1",))
    thread.start()
    kept = Kept()
    with Listener("logs", kept, url=target):
        thread.join(PATIENCE)
    assert kept.texts() == ["0", "1"]


def test_warnings_and_records_of_shmq_itself_do_not_recur(
    namespace: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("logs").close()
    handler = add(log, namespace, durability="journal")  # it differs: an error of each put
    py_warnings = logging.getLogger("py.warnings")
    py_warnings.addHandler(handler)
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            log.info("x", extra={"loud": Loud()})
    finally:
        logging.captureWarnings(False)
        py_warnings.removeHandler(handler)
    said = capsys.readouterr().err
    assert "from a repr" in said
    assert "QueueExists" in said


def test_a_forked_child_logs_while_threads_of_its_parent_do(
    log: logging.Logger, namespace: str
) -> None:
    add(log, namespace)
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            log.info("parent")

    thread = threading.Thread(target=repeat)
    thread.start()
    for number in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
        if not child:
            log.info("child %d", number)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join(PATIENCE)
    texts = [text for text in received(namespace).texts() if text != "parent"]
    assert texts == [f"child {number}" for number in range(20)]


def test_what_is_not_a_record_is_a_dead_letter_and_reported(
    log: logging.Logger, target: str, namespace: str
) -> None:
    add(log, target)
    log.info("before")
    with shmq.connect(namespace) as broker:
        with broker.queue("logs") as queue:
            queue.put(b"\x00")
            queue.put({"msg": "no level"})
        log.info("after")
        texts = received(target).texts()
        assert [text[:26] for text in texts] == [
            "before",
            "Message 2 is not a log rec",
            "Message 3 is not a log rec",
            "after",
        ]
        assert broker.queue("logs.dlq").qsize() == 2


class Failing(logging.Handler):
    """Raises, and so does what reports it."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space")


def test_a_handler_that_raises_does_not_stop_the_others(
    log: logging.Logger, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add(log, namespace)
    log.info("x")
    kept = Kept()
    with Listener("logs", Failing(), kept, url=namespace):
        pass
    assert kept.texts() == ["x"]
    assert "OSError: no space" in capsys.readouterr().err


def test_a_deleted_queue_is_created_again_by_both_sides(
    log: logging.Logger, target: str, namespace: str
) -> None:
    add(log, target)
    kept = Kept()
    with Listener("logs", kept, url=target):
        log.info("0")
        eventually(lambda: bool(kept.records), "it arrives")
        with shmq.connect(namespace) as broker:
            eventually(lambda: not broker.queue("logs").stats().in_flight, "it is acknowledged")
            broker.delete_queue("logs")
        log.info("1")
        eventually(lambda: "1" in kept.texts(), "it arrives in the new queue")
    others = set(kept.texts()) - {"0", "1"}
    assert all(text.startswith("The queue 'logs' of log records failed") for text in others)


def test_an_error_that_lasts_is_reported_once(
    log: logging.Logger, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    queue = TaskQueues.queue

    def count(queues: TaskQueues, name: str) -> shmq.Queue:
        opened.append(name)
        return queue(queues, name)

    monkeypatch.setattr(TaskQueues, "queue", count)
    with shmq.connect(namespace) as broker:
        broker.create_queue("logs", priorities=7)
        kept = Kept()
        with Listener("logs", kept, url=namespace):
            eventually(lambda: len(opened) > 2, "it tries again and again")
            broker.delete_queue("logs")
            add(log, namespace)
            log.info("0")
            eventually(lambda: "0" in kept.texts(), "it goes on")
    assert len(kept.texts()) == 2


def test_a_listener_can_be_started_again_and_not_twice(namespace: str) -> None:
    listener = Listener("logs", url=namespace)
    for _ in range(2):
        listener.start()
        with pytest.raises(RuntimeError, match="stop it first"):
            listener.start()
        listener.stop()
    listener.stop()
    listener.run()  # it was stopped


def test_rotation_is_of_one_process(log: logging.Logger, namespace: str, tmp_path: Path) -> None:
    from logging.handlers import RotatingFileHandler

    add(log, namespace)
    for number in range(100):
        log.info("%04d", number)
    with Listener(
        "logs", RotatingFileHandler(tmp_path / "log", maxBytes=100, backupCount=9), url=namespace
    ) as listener:
        pass
    listener.handlers[0].close()
    files = sorted(tmp_path.glob("log*"), reverse=True)
    assert len(files) == 6
    lines = [line for path in [*files[:-1], files[-1]] for line in path.read_text().splitlines()]
    assert lines == [f"{number:04d}" for number in range(100)]
