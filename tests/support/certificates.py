"""Certificates for the tests: an authority, and certificates that it has signed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: Why certificates cannot be made here; None if they can.
WHY_NOT = None if shutil.which("openssl") else "there is no command openssl"

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """A certificate authority in ``folder``; a certificate is a pair NAME.crt and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca.crt"
        _openssl(
            *("req", "-x509", *_KEY, "-days", "30", "-subj", "/CN=test authority"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(folder / "ca.key"), "-out", str(self.ca)),
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """A new certificate for this host, and its key."""
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text("subjectAltName = IP:127.0.0.1, IP:::1, DNS:localhost\n")
        _openssl(
            *("req", "-new", *_KEY, "-subj", f"/CN={name}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", "30", "-in", str(request), "-extfile", str(extensions)),
            *("-CA", str(self.ca), "-CAkey", str(self._folder / "ca.key"), "-CAcreateserial"),
            *("-out", str(certificate)),
        )
        return certificate, key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, umask=0o077)
