"""A small certificate authority in a directory, for a first cluster. It runs the `openssl` command.

No Python package that a running node needs can sign certificates, and `openssl` is on nearly every machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from leasehold.base.errors import InvalidArgument, ResourceUnavailable

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
AUTHORITY_DAYS: Final = 3650


class CertificateFolder:
    """`ca.pem` and `ca.key`, and `NAME.pem` with `NAME.key` for each identity. Only their owner can read the keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if shutil.which("openssl") is None:
            raise ResourceUnavailable(
                "the command `openssl` is not installed, and certificates are made with it: install it, or use the "
                "certificates of an authority that you have"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def make_authority(self) -> bool:
        """Create the authority; False if there is one already."""
        if self.ca.exists():
            return False
        extensions = ("basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign")
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            key, certificate = Path(work, "key"), Path(work, "certificate")
            added = [argument for extension in extensions for argument in ("-addext", extension)]
            _openssl(
                "req", "-x509", *_KEY, "-keyout", key, "-out", certificate, "-days", AUTHORITY_DAYS,
                "-subj", f"/CN=leasehold authority {secrets.token_hex(4)}", *added,
            )  # fmt: skip
            self._install(key, self.folder / "ca.key", 0o600)
            self._install(certificate, self.ca, 0o644)
        return True

    def issue(self, name: str, hosts: Sequence[str], days: int) -> Path:
        """Make or replace the certificate of `name`; with `hosts` it is one for servers, which also connect to others.

        A running process reads replaced files within a second.
        """
        if not _NAME.fullmatch(name) or name == "ca":
            raise InvalidArgument(f"'{name}' is not a name for a certificate: use letters, digits, dots and dashes")
        usage = "serverAuth,clientAuth" if hosts else "clientAuth"
        lines = ["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
        if hosts:
            lines.append("subjectAltName=" + ",".join(_alternative(host) for host in hosts))
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            key, request, certificate, extensions = (Path(work, each) for each in ("key", "request", "cert", "ext"))
            extensions.write_text("\n".join(lines))
            _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
            _openssl(
                "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-days", days,
                "-set_serial", f"0x{secrets.token_hex(16)}", "-extfile", extensions, "-out", certificate,
            )  # fmt: skip
            self._install(key, self.folder / f"{name}.key", 0o600)
            self._install(certificate, self.folder / f"{name}.pem", 0o644)
        return self.folder / f"{name}.pem"

    @staticmethod
    def _install(made: Path, target: Path, mode: int) -> None:
        made.chmod(mode)
        made.rename(target)


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        if not _NAME.fullmatch(host.removeprefix("*.")):
            raise InvalidArgument(f"'{host}' is neither a host name nor an IP address") from None
        return f"DNS:{host}"


def _openssl(*arguments: str | int | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.environ.get("PATH", "")}
    )
    if done.returncode:
        raise ResourceUnavailable(f"`openssl {arguments[0]}` failed: {done.stderr.strip().splitlines()[-1:]}")
