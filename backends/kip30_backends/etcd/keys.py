"""The client's private key as gRPC takes it: never encrypted."""

from kip30.config.tls import TlsFiles


def unencrypted(files: TlsFiles) -> bytes | None:
    """Return the private key of *files*, decrypted in memory alone, or None if there is none.

    *files* must have been checked by `TlsFiles.context`.

    Raises:
        ConfigError: The file cannot be read.
    """
    content = files.content("key", files.key)
    if content is None or files.password is None or b"ENCRYPTED" not in content:
        return content
    # Imported for encrypted keys alone, because the import is slow.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(content, files.password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
