"""The folders of the package: each is in the list, and the kernel knows no extra."""

from __future__ import annotations

import pytest

from tools import folders
from tools.imports import read_imports


def test_the_list_is_what_the_docstrings_and_imports_say() -> None:
    page = folders.PAGE.read_text()
    assert page == folders.render(page), "run `make folders`"


@pytest.mark.parametrize("folder", folders.list_folders())
def test_a_folder_says_what_it_contains(folder: str) -> None:
    assert folders.describe(folder).endswith(".")


def test_the_package_has_few_folders() -> None:
    found = {folder.partition("/")[0] for folder in folders.list_folders()}
    assert len(found) <= 16, found


def test_the_kernel_imports_no_extra() -> None:
    found = {
        f"{module} imports {target}"
        for module, targets in read_imports(folders.PACKAGE).items()
        for target in targets
        if target.startswith("shmq.extras") and not module.startswith("shmq.extras")
    }
    assert found == set()


def test_the_kernel_names_no_extra() -> None:
    names = {path.name for path in (folders.PACKAGE / "extras").iterdir() if path.is_dir()}
    assert {"nats", "console", "otel"} <= names
    found = [
        str(path.relative_to(folders.PACKAGE))
        for path in folders.PACKAGE.rglob("*.py")
        if "extras" not in path.parts and "shmq.extras." in path.read_text()
    ]
    assert found == []
