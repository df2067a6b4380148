"""The files for deployment say what the command takes."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from shmq.server.config.settings import Limits, Settings, Source
from shmq.server.config.tokens import make_token
from tests.support import certificates
from tests.support.namespaces import own_namespace
from tests.support.processes import ROOT
from tests.support.server import serve

UNIT = (ROOT / "deploy" / "shmq.service").read_text()
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
HOW_TO = (ROOT / "docs/operate/serve.md").read_text()


@pytest.mark.prove
def test_the_commands_of_the_files_are_flags_of_serve() -> None:
    run = [sys.executable, "-m", "shmq.cli", "serve", "--help"]
    told = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (started,) = re.findall(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)
    entry = " ".join(re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]$", CONTAINERFILE, re.MULTILINE))

    assert started.startswith("serve ")
    assert '"serve"' in entry
    for flag in re.findall(r"--[a-z-]+", started + entry):
        assert flag in told


def copied_into_the_image() -> list[str]:
    """What the image is built from, each by its pattern."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE)
    return [pattern for line in lines for pattern in line.split()[:-1]]


def test_the_image_copies_what_is_there() -> None:
    for pattern in copied_into_the_image():
        assert list(ROOT.glob(pattern)), pattern


def test_the_image_copies_every_module_of_the_wheel() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setuptools, project = told["tool"]["setuptools"], told["project"]
    packages = {name.partition(".")[0] for name in setuptools["packages"]["find"]["include"]}
    modules = {f"{name}.py" for name in setuptools["py-modules"]}
    read = {"pyproject.toml", "setup.py", "MANIFEST.in", project["readme"]}
    copied = {path.name for pattern in copied_into_the_image() for path in ROOT.glob(pattern)}

    assert copied >= packages | modules | read


def test_the_files_say_how_the_configuration_is_kept_from_others() -> None:
    assert "install -m 600 -o shmq -g shmq serve.toml" in UNIT
    assert "chmod 600 etc/*" in CONTAINERFILE


def test_the_unit_gives_a_drain_its_time() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert float(seconds) > Limits().drain + 5


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    units = []
    for unit in sorted((ROOT / "deploy").rglob("*.service")):
        text = re.sub(r"/usr/local/bin/[\w-]+", sys.executable, unit.read_text())
        units.append(tmp_path / unit.name)
        units[-1].write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))

    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(units) >= 4
    assert not [unit.name for unit in units if unit.name in run.stderr], run.stderr
    assert run.returncode == 0


def settings_shown(path: Path, text: str) -> Settings:
    path.touch(mode=0o600)
    path.write_text(text.replace("sha256:0b4a…", "sha256:" + "0" * 64))
    return Source(path).read()


def test_the_files_that_the_page_shows_are_read_and_the_first_has_the_defaults(
    tmp_path: Path,
) -> None:
    shown, quotas = re.findall(r"^```toml\n(.*?)^```$", HOW_TO, re.MULTILINE | re.DOTALL)
    path = tmp_path / "serve.toml"

    assert settings_shown(path, shown).limits == Limits()
    limits = settings_shown(path, quotas).limits

    assert None not in dataclasses.astuple(limits.namespace)
    assert limits.token
    assert {
        field
        for field in Limits.__slots__
        if f"\n| `{field}` |" not in HOW_TO and f"[limits.{field}]\n" not in quotas
    } == set()


def health(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    """What the check of the image says, with the command as it is installed there."""
    command = folder / "shmq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m shmq.cli "$@"\n')
    command.chmod(0o755)
    return subprocess.run(
        [ROOT / "deploy/shmq-health"],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HEALTH_FOLDER": str(folder),
            "HEALTH_PORT": str(port),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.prove
@pytest.mark.skipif(certificates.WHY_NOT is not None, reason=str(certificates.WHY_NOT))
def test_the_check_of_the_image_is_an_answer_of_the_server(tmp_path: Path) -> None:
    authority = certificates.Certificates(tmp_path)
    certificate, key = authority.sign("server")
    token = make_token()
    (tmp_path / "health.token").write_text(token + "\n")
    tls = {"certificate": str(certificate), "key": str(key)}
    with own_namespace() as namespace, serve(namespace, tokens={token: {}}, tls=tls) as server:
        assert health(tmp_path, server.port).returncode == 0
        (tmp_path / "health.token").write_text(make_token())
        assert health(tmp_path, server.port).returncode != 0
        assert server.stops() == 0
        assert health(tmp_path, server.port).returncode != 0
    assert 'CMD ["shmq-health"]' in CONTAINERFILE


def test_the_pod_gives_the_queues_memory_within_its_limits() -> None:
    pod = yaml.safe_load((ROOT / "deploy/kubernetes.yaml").read_text())["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    for container in pod["containers"]:
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
        assert int(container["resources"]["limits"]["memory"].removesuffix("Mi")) > 1024
    server, *_ = pod["containers"]
    assert server["livenessProbe"]["exec"]["command"] == ["shmq-health"]
    assert pod["securityContext"]["runAsUser"] == 999 and "--uid 999" in CONTAINERFILE
