"""Shakes hands with a server once more, where a vendor's client does not say why it could not.

gRPC reports a rejected certificate as corrupted data, and kazoo a server that speaks TLS as a
closed connection. One handshake of our own names the cause. It is made only after a failure.
"""

import socket
import ssl
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kip30.config import Address
from kip30.config.tls import TlsFiles
from kip30.config.tls_failures import tls_advice
from kip30.driver.kit.dialing import dial
from kip30.errors import AuthenticationError, ConfigError, UnavailableError

_CONNECT_SECONDS = 0.2
_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)


@dataclass(frozen=True, kw_only=True)
class TlsProbe:
    """Probe of servers that a store's client could not connect to.

    Attributes:
        files: The settings the client speaks TLS by; if it does not, those that it could set.
        is_encrypted: Whether it speaks TLS.
        addresses: The key of the setting that names the servers.
        protocols: The protocols that it offers over TLS (ALPN).
        is_lenient: Whether it accepts certificates that only Python's strict mode refuses.
        seconds: How long one look at one server may take.
    """

    files: TlsFiles
    is_encrypted: bool
    addresses: str
    protocols: tuple[str, ...] = ()
    is_lenient: bool = False
    seconds: float = 1.0

    @contextmanager
    def explaining(self, servers: Iterable[Address]) -> Generator[None]:
        """Name the cause in the error of a block that could not connect to *servers*."""
        try:
            yield
        except (AuthenticationError, UnavailableError) as error:
            is_about_users = isinstance(error, AuthenticationError) and not self.is_encrypted
            cause = "" if is_about_users else self.explain(servers)
            if cause in str(error):
                raise
            raise type(error)(f"{error}: {cause}") from error

    def explain(self, servers: Iterable[Address]) -> str:
        """Return why the client could not connect to *servers* and what to do, or ``""``.

        It is ``""`` where TLS is not the cause. Does not raise.
        """
        with suppress(ConfigError):
            look = self._look_encrypted if self.is_encrypted else self._look_plain
            return next((cause for server in servers if (cause := look(server))), "")
        return ""

    def _look_encrypted(self, server: Address) -> str:
        context = self.files.context()
        if self.is_lenient:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.protocols:
            context.set_alpn_protocols(self.protocols)
        try:
            connected = _connected(server)
        except OSError:
            return ""
        with connected:
            return self._shake_hands(connected, context, server.host)

    def _shake_hands(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> str:
        until = time.monotonic() + self.seconds
        connected.settimeout(self.seconds)
        try:
            encrypted = context.wrap_socket(connected, server_hostname=host)
        except _ENDED:
            return self._advice("ended without a reason")
        except OSError as error:
            return self._advice(str(error))
        with encrypted:
            # With TLS 1.3 a server judges the client's certificate after the handshake.
            encrypted.settimeout(max(0.001, until - time.monotonic()))
            return self._read(encrypted)

    def _read(self, encrypted: ssl.SSLSocket) -> str:
        try:
            is_open = bool(encrypted.recv(1))
        except TimeoutError:
            is_open = True
        except _ENDED:
            is_open = False
        except OSError as error:
            return self._advice(str(error))
        return "" if is_open else self._advice("ALERT_BAD_CERTIFICATE")

    def _look_plain(self, server: Address) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with _connected(server) as connected:
                connected.settimeout(self.seconds)
                context.wrap_socket(connected).close()
        except ssl.SSLError as error:
            if "ALERT" not in str(error):
                return ""
        except OSError:
            return ""
        return f"the server speaks TLS on that port: set {self.files.prefix}=true"

    def _advice(self, said: str) -> str:
        return tls_advice(
            said,
            prefix=self.files.prefix,
            addresses=self.addresses,
            certificate_word=self.files.certificate_word,
            shows_certificate=self.files.certificate is not None,
        )


def _connected(server: Address) -> socket.socket:
    return dial(server, time.monotonic() + _CONNECT_SECONDS)
