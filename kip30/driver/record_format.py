"""Format of a record in stores that keep bytes under a path, the same for all of them.

Layout: the format (1 byte), the nonce (8 bytes), the length of the name (2 bytes), the name in
UTF-8, and the data. Values and members are named by their path and leave the name empty.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kip30.errors import StoreError

_HEAD = struct.Struct(">B8sH")
_FORMAT = 1
_NONCE_BYTES = 8
_SAME = (0, 9, 10)
"""Offsets of the bytes in the head that all records without a name have in common."""

OVERHEAD_BYTES = _HEAD.size
"""The bytes that a record without a name needs besides its data."""


class EnvelopeContent(NamedTuple):
    """Content of an envelope: the nonce, the name unless the path shows it, and the data."""

    nonce: str
    name: str
    data: bytes


def seal(nonce: str, data: bytes, *, name: str = "") -> bytes:
    """Return the stored form of a record. *nonce* is one of `kip30.driver.records.new_nonce`."""
    label = name.encode()
    return _HEAD.pack(_FORMAT, bytes.fromhex(nonce), len(label)) + label + data


def unseal(stored: bytes, where: str) -> EnvelopeContent:
    """Return what `seal` was given; *where* names the place in the error.

    Raises:
        StoreError: Another program wrote *stored*, or a newer version of kip30 did.
    """
    if len(stored) < OVERHEAD_BYTES:
        raise _foreign(where)
    form, nonce, name_size = _HEAD.unpack_from(stored)
    body = OVERHEAD_BYTES + name_size
    if form != _FORMAT or len(stored) < body:
        raise _foreign(where)
    # A damaged name must still have a form in which it can be reported.
    name = stored[OVERHEAD_BYTES:body].decode("utf-8", "surrogateescape") if name_size else ""
    return EnvelopeContent(nonce.hex(), name, stored[body:])


def unseal_all(stored: Sequence[bytes]) -> list[bytes] | None:
    """Return the data of records without names, for many at once.

    Returns:
        None if one has a name or is foreign: then each must be unsealed by itself.
    """
    heads = b"".join([one[:OVERHEAD_BYTES] for one in stored])
    ours = seal("00" * _NONCE_BYTES, b"") * len(stored)
    is_plain = len(heads) == len(ours) and all(
        heads[at::OVERHEAD_BYTES] == ours[at::OVERHEAD_BYTES] for at in _SAME
    )
    return [one[OVERHEAD_BYTES:] for one in stored] if is_plain else None


def _foreign(where: str) -> StoreError:
    return StoreError(
        f"{where} holds no record of this version of kip30: remove it, or use another namespace"
    )
