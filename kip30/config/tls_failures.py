"""Advice for an operator about a failed TLS handshake with any store."""

from typing import NamedTuple


class TlsFailure(NamedTuple):
    """A failure that OpenSSL or BoringSSL describes with *part*, and the advice for it.

    In *advice* ``{tls}`` stands for the prefix of the settings, ``{cert}`` for the key of the
    client's certificate, and ``{addresses}`` for the key of the servers' addresses.
    """

    part: str
    advice: str


_NO_TLS = (
    "the server does not speak TLS on that port: unset {tls} and its files, or use another port"
)
_SHOW_ONE = "the server demands a client certificate: set {cert} and {tls}.key"
_NOT_TRUSTED = (
    "the server does not trust the client certificate: {cert} must be signed by an authority that"
    " the server trusts"
)

_NOT_SIGNED = "{tls}.ca must hold the authority that signed the server's certificate"
_NOT_STRICT = (
    "the authority must reissue its own certificate, or that of the server, without that"
    " fault: Python 3.13 and newer enforce RFC 5280"
)
_STRICT = (
    "Key Identifier",
    "Basic Constraints",
    "key usage extension",
    "keyCertSign",
    "Subject Alt",
    "Issuer name empty",
    "Path length",
    "at least X509v3",
)
"""Parts of what OpenSSL says of a certificate that it refuses in its strict mode alone."""

_FAILURES = (
    TlsFailure("WRONG_VERSION_NUMBER", _NO_TLS),
    TlsFailure("RECORD_LAYER_FAILURE", _NO_TLS),
    TlsFailure("PACKET_LENGTH_TOO_LONG", _NO_TLS),
    TlsFailure("HTTP_REQUEST", _NO_TLS),
    TlsFailure(
        "ended without a reason", f"the handshake was broken off, probably because {_NO_TLS}"
    ),
    TlsFailure("ALERT_CERTIFICATE_EXPIRED", "the client certificate has expired: renew {cert}"),
    TlsFailure("has expired", "the server's certificate has expired: renew it there"),
    TlsFailure("not yet valid", "the server's certificate is not valid yet: compare the clocks"),
    TlsFailure("key identifier mismatch", _NOT_SIGNED),
    TlsFailure("serial number mismatch", _NOT_SIGNED),
    TlsFailure("mismatch", "the server's certificate must name the host that {addresses} names"),
    TlsFailure("CERTIFICATE_REQUIRED", _SHOW_ONE),
    TlsFailure("ALERT_UNKNOWN_CA", _NOT_TRUSTED),
    TlsFailure("ALERT_BAD_CERTIFICATE", _NOT_TRUSTED),
    TlsFailure("ALERT_CERTIFICATE_UNKNOWN", _NOT_TRUSTED),
    TlsFailure("ALERT_HANDSHAKE_FAILURE", f"{_SHOW_ONE}, or compare the versions and ciphers"),
    *(TlsFailure(part, _NOT_STRICT) for part in _STRICT),
    TlsFailure("issuer certificate", _NOT_SIGNED),
    TlsFailure("self signed certificate", _NOT_SIGNED),
    TlsFailure("self-signed certificate", _NOT_SIGNED),
    TlsFailure("verify the first certificate", _NOT_SIGNED),
    TlsFailure("OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", _NOT_SIGNED),
    TlsFailure(
        "certificate verify failed:",
        "this client refuses the server's certificate for that reason: it must be reissued"
        " without that fault",
    ),
    TlsFailure("CERTIFICATE_VERIFY_FAILED", _NOT_SIGNED),
    TlsFailure(
        "ALERT",
        "the server broke the handshake off: its log says why; does it trust {cert}?",
    ),
)


def tls_advice(
    said: str,
    *,
    prefix: str,
    addresses: str,
    certificate_word: str = "cert",
    shows_certificate: bool = True,
) -> str:
    """Return the cause of a TLS failure and what to do about it, or ``""`` if *said* tells none.

    Args:
        said: What OpenSSL or BoringSSL said; both use the same words for the same reasons.
        prefix: What the keys of the store's TLS settings begin with.
        addresses: The key of the setting that names the servers.
        certificate_word: The last word of the key that names the client's certificate.
        shows_certificate: Whether the client has a certificate to show.
    """
    words = said.replace(" ", "_").upper()
    for failure in _FAILURES:
        if failure.part.replace(" ", "_").upper() in words:
            advice = failure.advice
            if advice is _NOT_TRUSTED and not shows_certificate:
                advice = _SHOW_ONE
            certificate = f"{prefix}.{certificate_word}"
            return advice.format(tls=prefix, cert=certificate, addresses=addresses)
    return ""
