"""The checksum of files and texts of a run: any change of them changes it."""

from hashlib import blake2b, file_digest
from pathlib import Path

_BYTES = 16


def checksum_of(file: Path) -> str:
    """Return the checksum of the content of *file*.

    Raises:
        OSError: It cannot be read.
    """
    with file.open("rb") as opened:
        return file_digest(opened, lambda: blake2b(digest_size=_BYTES)).hexdigest()


def checksum(data: bytes) -> str:
    """Return the checksum of *data*, which is that of a file with this content."""
    return blake2b(data, digest_size=_BYTES).hexdigest()
