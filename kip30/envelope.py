"""How a record is written into stores that keep bytes under a path: one format for all of them.

One byte tells the format, then come eight bytes of nonce, the name's length in two bytes, the name
in UTF-8, and the data. Values and members are named by their path and leave the name empty.
"""

from typing import NamedTuple

from kip30.errors import StoreError

OVERHEAD_BYTES = 11
"""What a record without a name needs besides its data."""

_FORMAT = 1
_NONCE = slice(1, 9)
_NAME_SIZE = slice(9, 11)


class Unsealed(NamedTuple):
    """What an envelope holds: whose record it is, as far as the path does not say, and its data."""

    nonce: str
    name: str
    data: bytes


def seal(nonce: str, data: bytes, *, name: str = "") -> bytes:
    """Return the stored form of a record. *nonce* is one of `kip30.records.new_nonce`."""
    label = name.encode()
    head = bytes([_FORMAT]) + bytes.fromhex(nonce) + len(label).to_bytes(2, "big")
    return head + label + data


def unseal(stored: bytes, where: str) -> Unsealed:
    """Return what `seal` was given; *where* names the place in the error.

    Raises:
        StoreError: Somebody else wrote *stored*, or a newer version of kip30 did.
    """
    body = OVERHEAD_BYTES + int.from_bytes(stored[_NAME_SIZE], "big")
    if len(stored) < body or stored[0] != _FORMAT:
        raise StoreError(
            f"{where} holds no record of this version of kip30: remove it, or use another namespace"
        )
    name = stored[OVERHEAD_BYTES:body].decode("utf-8", "surrogateescape")
    return Unsealed(stored[_NONCE].hex(), name, stored[body:])
