"""The TLS files of a store's settings, the same for every store.

A file that changes is read again for the next connection, and a key with a password never prompts
at a terminal.
"""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from kip30.config.secrets import Secret
from kip30.errors import ConfigError

log: logging.Logger = logging.getLogger(__name__)

_TOO_WEAK = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})

_KEY_LOG = "SSLKEYLOGFILE"

Signature = tuple[tuple[int, int, int, int] | None, ...]
"""Changes whenever one of the files is written or replaced; None for a missing one."""


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """The files of one store, under the keys that its operator wrote.

    Attributes:
        prefix: What the keys begin with, such as ``plugin.consul.tls``.
        ca: Authorities to trust; without it those of the system.
        certificate: The client's certificate, or None to show none.
        key: Its private key, if that is not in the file of the certificate.
        password: The password of the key, if that is encrypted.
        verify_host: Whether a server's certificate must name the host that was connected to.
        certificate_word: The last word of the certificate's key in the settings.
    """

    prefix: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    password: Secret | None = None
    verify_host: bool = True
    certificate_word: str = "cert"

    def signature(self) -> Signature:
        """Return a token that changes with the content of the files. Does not raise."""
        return tuple(_signature(file) for file in (self.ca, self.certificate, self.key) if file)

    def context(self) -> ssl.SSLContext:
        """Return a new context from the files as they are now.

        Raises:
            ConfigError: A file is missing, is no PEM, or does not fit the others; the password is
                missing or wrong. The message names the setting.
        """
        self._require_readable()
        context = self._trusting()
        context.check_hostname = self.verify_host
        if self.certificate is not None:
            self._show(context, self.certificate)
        return context

    def content(self, word: str, file: Path | None) -> bytes | None:
        """Return the bytes of *file*, which is that of the setting *word*.

        Raises:
            ConfigError: It cannot be read.
        """
        try:
            return None if file is None else file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{self.prefix}.{word}: {file} cannot be read: {error.strerror}"
            ) from error

    def _require_readable(self) -> None:
        # The errors of the module ssl do not name the file.
        self.content("ca", self.ca)
        self.content(self.certificate_word, self.certificate)
        self.content("key", self.key)

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{self.prefix}.ca: {self.ca} holds no certificate in PEM format"
            ) from error
        except OSError as error:  # the files of the settings were read before
            raise ConfigError(
                f"TLS cannot be used: {error.strerror}: {error.filename}: set"
                f" ${_KEY_LOG} to a file that can be written, or unset it"
            ) from error

    def _show(self, context: ssl.SSLContext, certificate: Path) -> None:
        try:
            # With a function OpenSSL never asks at the terminal.
            context.load_cert_chain(certificate, self.key, self._password)
        except ConfigError:
            raise
        except (OSError, ValueError) as error:
            raise ConfigError(self._unusable(error)) from error

    def _password(self) -> str:
        if self.password is None:
            raise ConfigError(self.lacks_password)
        return self.password.current()

    @property
    def lacks_password(self) -> str:
        """The message for a key that is encrypted while no password is set."""
        return f"the private key is encrypted: set {self.prefix}.key.password"

    def _unusable(self, error: Exception) -> str:
        pair = f"{self.prefix}.{self.certificate_word} = {self.certificate}"
        if self.key is not None:
            pair += f" and {self.prefix}.key = {self.key}"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"{pair}: the key does not belong to the certificate"
        hint = f", or {self.prefix}.key.password is wrong" if self.password is not None else ""
        reason = getattr(error, "reason", None)
        if reason in _TOO_WEAK:
            return f"{pair} cannot be used: OpenSSL calls it {reason}: make a stronger one"
        return f"{pair} cannot be used: not in PEM format{hint}"


class ReloadingContext:
    """Makes the context of each new connection, from the files as they are then. Thread-safe.

    Certificates are replaced while programs run, and one file after the other: while the files do
    not fit each other the former context stays in use.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read *files*.

        Raises:
            ConfigError: They cannot be used; see `TlsFiles.context`.
        """
        self._files = files
        # Taken before the files are read: a change while they are read causes another read.
        self._seen = files.signature()
        self._context = files.context()
        self._refused: Signature | None = None
        self._lock = threading.Lock()

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection. Does not raise."""
        signature = self._files.signature()
        if signature == self._seen:
            return self._context
        with self._lock:
            self._read_again(signature)
            return self._context

    def _read_again(self, signature: Signature) -> None:
        try:
            self._context = self._files.context()
            self._seen = signature
        except ConfigError as error:
            if signature != self._refused:
                log.warning("the former certificates stay in use: %s", str(error))
            self._refused = signature


def _signature(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
