"""Builds the modules of ``shmq.core``: each a Cython module and the C files that it binds.

Everything else about the package is in pyproject.toml. The environment switches:

``SHMQ_WERROR=1``
    warnings in the core's own C files are errors.
``SHMQ_SANITIZE=address,undefined`` or ``SHMQ_SANITIZE=thread``
    compile and link with those sanitizers.
``SHMQ_CRASHPOINTS=1``
    count every store to shared memory and die at a chosen one. Build it aside::

        python setup.py build --build-base build/crash --build-lib build/crash/lib
"""

import os
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

CORE = Path("shmq/core")
HEADERS = CORE / "src"
C_FLAGS = ["-std=gnu11", "-O2", "-pthread", "-fvisibility=hidden"]
WARNINGS = ["-Wall", "-Wextra"]

#: The modules beside ``_core``, apart so that a change of one does not build the other anew:
#: the C files that each has for itself, and those of the core that it needs, too.
LOG = ("append", "lock", "places", "producers", "read", "room", "wait")
ALONE = {
    "_log": ("entry", "log", *(f"log_{part}" for part in LOG)),
    "_arrow": ("log_columns",),
    "_roster": ("roster", "share"),
    "_spill": ("spill",),
}
BESIDE = {
    "_arrow": ("crc32c", "entry"),
    "_log": ("clock", "crash", "crc32c", "holder", "msgpack", "robust"),
    "_roster": ("clock", "crash", "crc32c", "holder", "robust"),
    "_spill": ("crc32c", "record"),
}


def _files(*patterns: str) -> list[str]:
    """The core's files that match, sorted so that builds are alike."""
    return sorted(str(path) for pattern in patterns for path in CORE.glob(pattern))


def _c_files(module: str) -> list[str]:
    """The C files that are linked to the module."""
    if module in ALONE:
        return sorted(str(HEADERS / f"{name}.c") for name in ALONE[module] + BESIDE[module])
    others = {f"{name}.c" for names in ALONE.values() for name in names}
    return [path for path in _files("src/*.c") if Path(path).name not in others]


def _sources(module: str) -> list[str]:
    """What the module is made of; a header may be of any, but for those of streams."""
    if module in ALONE:
        return [*_files(f"{module}.pyx", f"{module}*.px[di]", "src/*.h"), *_c_files(module)]
    own = [path for path in _files("*.px[di]", "src/*.h") if not _is_of_streams(path)]
    return [*_files("_core.pyx"), *own, *_c_files(module)]


def _is_of_streams(path: str) -> bool:
    return Path(path).name.startswith(("_arrow", "_log", "_roster", "_spill", "log", "entry"))


def _switched_on(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def _sanitizer_flags() -> list[str]:
    wanted = os.environ.get("SHMQ_SANITIZE", "")
    return [f"-fsanitize={wanted}", "-fno-omit-frame-pointer", "-g"] if wanted else []


class BuildCore(build_ext):
    """Compiles the core's C files one by one, then links them to the Cython module.

    The two kinds are apart because a warning counts in the first and not in what
    Cython generates, which goes to the temporary directory and never into the tree.
    """

    def run(self) -> None:
        """Build, if Python's headers are there to build with."""
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.exists():
            raise SystemExit(
                f"shmq needs Python's C headers and {header} is missing: install them "
                f"(Debian and Ubuntu: apt-get install python3-dev)"
            )
        super().run()

    def build_extensions(self) -> None:
        """Build one on each core at a time: each takes a compiler a minute or less."""
        if self.parallel is None:
            self.parallel = os.cpu_count()
        self.switches = str(self._record_switches())
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build all of it again, or nothing if no file and no switch has changed."""
        module = ext.name.rpartition(".")[2]
        depends = [*_sources(module), "setup.py", self.switches]
        if not (self.force or newer_group(depends, self.get_ext_fullpath(ext.name))):
            return
        ext.extra_objects = self._compile_c_files(ext, _c_files(module))
        (generated,) = cythonize(  # type: ignore[no-untyped-call]
            ext,
            build_dir=self.build_temp,
            include_path=[str(CORE)],
            compiler_directives={"language_level": 3},
            force=True,
        )
        ext.sources = generated.sources  # newer than what is there, so it is built
        if _switched_on("SHMQ_CRASHPOINTS"):
            # The core itself is as ever; what binds it compiles in a fifth of the time.
            ext.extra_compile_args = [*ext.extra_compile_args, "-O0"]
        super().build_extension(ext)

    def _compile_c_files(self, ext: Extension, files: list[str]) -> list[str]:
        fatal = ["-Werror"] if _switched_on("SHMQ_WERROR") else []
        objects: list[str] = self.compiler.compile(
            files,
            output_dir=self.build_temp,
            macros=ext.define_macros,
            include_dirs=ext.include_dirs,
            debug=bool(self.debug),
            extra_postargs=[*ext.extra_compile_args, *WARNINGS, *fatal],
        )
        return objects

    def _record_switches(self) -> Path:
        """A file that changes when the switches do, so that they too cause a rebuild."""
        names = ("CC", "CFLAGS", "SHMQ_CRASHPOINTS", "SHMQ_SANITIZE", "SHMQ_WERROR")
        switches = "".join(f"{name}={os.environ.get(name, '')}\n" for name in names)
        record = Path(self.build_temp, "switches")
        if not record.exists() or record.read_text() != switches:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(switches)
        return record


def _extension(module: str) -> Extension:
    return Extension(
        f"shmq.core.{module}",
        [str(CORE / f"{module}.pyx")],
        include_dirs=[str(HEADERS)],
        define_macros=[("SHMQ_CRASHPOINTS", None)] if _switched_on("SHMQ_CRASHPOINTS") else [],
        extra_compile_args=[*C_FLAGS, *_sanitizer_flags()],
        extra_link_args=["-pthread", *_sanitizer_flags()],
    )


setup(
    cmdclass={"build_ext": BuildCore},
    ext_modules=[_extension(module) for module in ("_core", *ALONE)],
)
