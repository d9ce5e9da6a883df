"""From what kazoo and ZooKeeper's servers raise to kip30's errors."""

import ssl

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    KazooException,
    SessionClosedRequireSaslError,
)

from kip30.config.tls_failures import tls_advice
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30_backends.zookeeper.refusals import Refused

_NOT_PERMITTED = {-102, -114, -115, -124}
_TRY_LATER = {-4, -7, -112, -118, -119, -122, -127}
_FULL = -125
_UNDECIDED = {-4, -7, -122}


def translate(error: BaseException, *, writes: bool) -> Kip30Error:
    """Return kip30's error for *error*; *writes* says that it ended a write that was sent."""
    if isinstance(error, Kip30Error):
        return error
    translated = _of_refusal(error, writes=writes) if isinstance(error, Refused) else None
    translated = translated or _of_connection(error, writes=writes)
    translated.__cause__ = error
    return translated


def why_unreachable(error: BaseException | None, hosts: str) -> Kip30Error:
    """Return kip30's error for a connection to *hosts* that did not come about."""
    if isinstance(error, AuthFailedError | SessionClosedRequireSaslError):
        text = f"ZooKeeper at {hosts} rejects the credentials: check plugin.zookeeper.sasl.*"
        translated: Kip30Error = AuthenticationError(text)
    elif isinstance(error, ssl.SSLCertVerificationError):
        translated = AuthenticationError(
            f"the certificate of ZooKeeper at {hosts} is not trusted"
            f" ({error.verify_message}): {_tls_advice(error)}"
        )
    elif isinstance(error, ssl.SSLError):
        translated = UnavailableError(
            f"no TLS with ZooKeeper at {hosts} ({error.reason or error}): {_tls_advice(error)}"
        )
    else:
        told = f" ({error})" if error is not None and str(error) else ""
        translated = UnavailableError(f"ZooKeeper at {hosts} cannot be reached{told}")
    translated.__cause__ = error
    return translated


def _tls_advice(error: ssl.SSLError) -> str:
    advice = tls_advice(
        f"{error.reason} {error}",
        prefix="plugin.zookeeper.tls",
        addresses="zookeeper.connect",
        certificate_word="certificate",
    )
    return advice or "check plugin.zookeeper.tls.*, and that the port is the secure one"


def _of_refusal(error: Refused, *, writes: bool) -> Kip30Error | None:
    if error.reason in _NOT_PERMITTED:
        return AuthenticationError(
            f"ZooKeeper does not permit it: {error}; check the credentials and the access lists"
        )
    if writes and error.reason in _UNDECIDED:
        return OutcomeUnknownError(f"ZooKeeper gave up: {error}")
    if error.reason in _TRY_LATER:
        return UnavailableError(f"ZooKeeper did not take it: {error}")
    if error.reason == _FULL:
        return StoreError("ZooKeeper's quota for this tree is used up: nothing was done")
    return StoreError(f"ZooKeeper refused it: {error}")


def _of_connection(error: BaseException, *, writes: bool) -> Kip30Error:
    if isinstance(error, AuthFailedError):
        return AuthenticationError("ZooKeeper rejects the credentials")
    if writes:
        return OutcomeUnknownError(f"the connection to ZooKeeper was lost: {_name(error)}")
    if isinstance(error, ConnectionClosedError):
        return ClosedError("the backend is closed")
    return UnavailableError(f"the connection to ZooKeeper was lost: {_name(error)}")


def _name(error: BaseException) -> str:
    return type(error).__name__ if isinstance(error, KazooException) else str(error)
