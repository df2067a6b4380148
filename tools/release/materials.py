"""The bill of materials of an installed shmq, as CycloneDX JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tools.release.archives import run

#: What is in the tree and was made by others: the file says what, from where, with which hashes.
VENDORED = Path(__file__).with_name("vendored.json")


def write(python: Path, root: Path, target: Path) -> None:
    """Write ``shmq.cdx.json``: what is in the environment of ``python``, and what is vendored."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - slow, and for this alone
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    listed = run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--mc-type", "library", "--pyproject", root / "pyproject.toml", python),
        step="the bill of materials",
    )
    bill = json.loads(listed)
    bill["components"] = [each for each in bill["components"] if each["name"] not in _TOOLS]
    kept = {each["bom-ref"] for each in bill["components"]} | {"root-component"}
    bill["dependencies"] = [each for each in bill["dependencies"] if each["ref"] in kept]
    bill["components"] += [_component(each) for each in read_vendored()]
    text = json.dumps(bill, indent=2) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise SystemExit(f"the bill of materials is no CycloneDX 1.6: {wrong}")
    (target / "shmq.cdx.json").write_text(text)


#: What every new environment has.
_TOOLS = ("pip", "setuptools", "wheel")


def read_vendored() -> list[dict[str, Any]]:
    """Each component that is in the tree as others made it."""
    found: list[dict[str, Any]] = json.loads(VENDORED.read_text())
    return found


def _component(vendored: dict[str, Any]) -> dict[str, Any]:
    files = [
        {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in vendored["files"].items()
    ]
    return {
        "type": "library",
        "bom-ref": f"{vendored['name']}@{vendored['version']}",
        "name": vendored["name"],
        "version": vendored["version"],
        "purl": vendored["purl"],
        "licenses": [{"license": {"id": vendored["license"]}}],
        "components": files,
    }
