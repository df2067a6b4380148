"""Builds the C core, ``shmq/core``, as one static library, and the modules that bind it.

Everything else about the package is in pyproject.toml. The environment switches:

``SHMQ_WERROR=1``
    warnings in the core's own C files are errors.
``SHMQ_SANITIZE=address,undefined`` or ``SHMQ_SANITIZE=thread``
    compile and link with those sanitizers.
``SHMQ_OPTIMIZE=0``
    compile without optimization, in a third of the time: for what is not measured.
``SHMQ_CRASHPOINTS=1``
    count every store to shared memory and die at a chosen one. Build it aside::

        python setup.py build --build-base build/crash --build-lib build/crash/lib
"""

import gzip
import os
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.modified import newer_group

CORE = Path("shmq/core")
NATIVE = Path("shmq/native")
DECLARATIONS = "tools/declarations.py"
GENERATORS = ("tools/properties.py", "tools/protocol.py")
MODULES = ("_clock", "_core", "_stream", "_group", "_file", "_arrow", "_table")
QUICK = ["-O0", "-g0", "-fno-sanitize=undefined"]  # which Zig's compiler adds to -O0
LEVEL = QUICK if os.environ.get("SHMQ_OPTIMIZE") == "0" else ["-O2"]
C_FLAGS = [
    "-std=gnu11",
    *LEVEL,
    "-pthread",
    "-fvisibility=hidden",
    f"-ffile-prefix-map={Path.cwd()}=.",  # the same bytes, whatever folder they are built in
]
WARNINGS = ["-Wall", "-Wextra"]


def _files(folder: Path, pattern: str) -> list[str]:
    """The files of a folder, and of those in it, that match; sorted so that builds are alike."""
    return sorted(str(path) for path in folder.rglob(pattern))


def _switched_on(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def _sanitizer_flags() -> list[str]:
    wanted = os.environ.get("SHMQ_SANITIZE", "")
    return [f"-fsanitize={wanted}", "-fno-omit-frame-pointer", "-g"] if wanted else []


class BuildCore(build_ext):
    """Compiles the core's C files into one library, then links it to each Cython module.

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
        self.library = self._build_library()
        declared = run_path(DECLARATIONS)["declare"](CORE, NATIVE)
        Path(self.build_temp, "core.pxd").write_text(declared)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build all of it again, or nothing if no file and no switch has changed."""
        depends = [*ext.sources, *_files(NATIVE, "*.px[di]"), *ext.depends]
        if not (self.force or newer_group(depends, self.get_ext_fullpath(ext.name))):
            return
        ext.extra_objects = [self.library]
        (generated,) = cythonize(  # type: ignore[no-untyped-call]
            ext,
            build_dir=self.build_temp,
            include_path=[str(NATIVE), self.build_temp],
            compiler_directives={"language_level": 3},
            force=True,
        )
        ext.sources = generated.sources  # newer than what is there, so it is built
        ext.depends.append(self.library)
        super().build_extension(ext)

    def _build_library(self) -> str:
        """The library of the core: a file is compiled if it, a header or a switch is newer."""
        common = [*_files(CORE, "*.h"), "setup.py", self.switches]
        files = _files(CORE, "*.c")
        objects = self.compiler.object_filenames(files, output_dir=self.build_temp)
        stale = [
            file
            for file, made in zip(files, objects, strict=True)
            if self.force or newer_group([file, *common], made)
        ]
        library = Path(self.build_temp, "libshmq_core.a")
        if stale or not library.exists():
            with ThreadPoolExecutor(self.parallel) as threads:
                list(threads.map(self._compile, stale))
            library.unlink(missing_ok=True)  # an archive is added to, not made anew
            self.compiler.create_static_lib(objects, "shmq_core", output_dir=self.build_temp)
        return str(library)

    def _compile(self, file: str) -> None:
        fatal = ["-Werror"] if _switched_on("SHMQ_WERROR") else []
        self.compiler.compile(
            [file],
            output_dir=self.build_temp,
            macros=_macros(),
            include_dirs=[str(CORE)],
            debug=bool(self.debug),
            extra_postargs=[*C_FLAGS, *_sanitizer_flags(), *WARNINGS, *fatal],
        )

    def _record_switches(self) -> Path:
        """A file that changes when the switches do, so that they too cause a rebuild."""
        switches = ("CRASHPOINTS", "OPTIMIZE", "SANITIZE", "WERROR")
        names = ("CC", "CFLAGS", *(f"SHMQ_{switch}" for switch in switches))
        values = "".join(f"{name}={os.environ.get(name, '')}\n" for name in names)
        record = Path(self.build_temp, "switches")
        if not record.exists() or record.read_text() != values:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(values)
        return record


class SourceArchive(sdist):
    """Writes the same bytes each time if ``SOURCE_DATE_EPOCH`` is set: reproducible-builds.org."""

    def make_archive(self, base_name: Any, format: str, *given: Any, **kwargs: Any) -> str:
        """Pack the release tree ``base_dir``, in order, with one time and no owner."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return str(super().make_archive(base_name, format, *given, **kwargs))
        path = Path(f"{base_name}.tar.gz")
        folder = Path(kwargs["base_dir"])
        with (
            path.open("wb") as raw,
            gzip.GzipFile("", "wb", mtime=int(epoch), fileobj=raw) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in sorted([folder, *folder.rglob("*")]):
                archive.add(file, recursive=False, filter=lambda info: _plain(info, int(epoch)))
        return str(path)


def _plain(info: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = epoch
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _macros() -> list[tuple[str, str | None]]:
    return [("SHMQ_CRASHPOINTS", None)] if _switched_on("SHMQ_CRASHPOINTS") else []


def _extension(module: str) -> Extension:
    return Extension(
        f"shmq.native.{module}",
        [str(NATIVE / f"{module}.pyx")],
        include_dirs=[str(CORE)],
        define_macros=_macros(),
        depends=[*_files(CORE, "*.[ch]"), "setup.py", DECLARATIONS],
        extra_compile_args=[*C_FLAGS, *_sanitizer_flags()],
        extra_link_args=["-pthread", *_sanitizer_flags()],
    )


for generator in GENERATORS:
    run_path(generator)["write_sources"]()
setup(
    cmdclass={"build_ext": BuildCore, "sdist": SourceArchive},
    ext_modules=[_extension(module) for module in MODULES],
)
