"""Certificates for servers of tests that speak TLS, made by the program ``openssl``."""

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Signed(NamedTuple):
    """PEM files of a certificate and its key, and one with both."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """An authority that signs certificates.

    Attributes:
        certificate: The PEM file of its own certificate.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Make one; its files, and those it signs, are in *folder*."""
        self.certificate = folder / f"{name}.pem"
        self._folder = folder
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(self, name: str, *, host: str = "IP:127.0.0.1", days: int = 2) -> Signed:
        """Return a certificate of *name* for *host*, which expires in *days*, or has expired."""
        certificate, key, both, request, extension = (
            self._folder / f"{name}.{kind}" for kind in ("crt", "key", "both", "csr", "ext")
        )
        extension.write_text(f"subjectAltName={host}\n")
        _openssl(
            *("req", *_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", str(days)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-extfile", str(extension), "-out", str(certificate)),
        )
        both.write_text(key.read_text() + certificate.read_text())
        return Signed(certificate, key, both)

    def lock(self, name: str, password: str) -> Path:
        """Return a file of the key of *name* that takes a *password* to read."""
        key, locked = self._folder / f"{name}.key", self._folder / f"{name}.locked"
        _openssl(
            *("pkcs8", "-topk8", "-in", str(key), "-out", str(locked)),
            *("-passout", f"pass:{password}"),
        )
        return locked


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
