"""The process at the other end of a connection, found by sock_diag(7) and ``/proc/PID/fd``."""

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

Address = tuple[str, int]

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8
_ANSWER_BYTES = 4096
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_ADDRESS_BYTES = 16
_INTERFACE = bytes(4)
_INODE_AT = 84
_INODE = struct.Struct("=I")
_REASON = struct.Struct("=i")


def inode(local: Address, remote: Address) -> int:
    """Return the inode of the socket that is connected from *local* to *remote*; 0 if it is gone.

    The kernel looks that one connection up: the table of all of them takes longer, the more there
    are, and lacks some while others come and go.

    Raises:
        OSError: The kernel has no sock_diag.
    """
    ends = _PORTS.pack(local[1], remote[1]) + b"".join(
        socket.inet_aton(host).ljust(_ADDRESS_BYTES, b"\0") for host, _ in (local, remote)
    )
    question = _QUESTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    body = question + ends + _INTERFACE + _NO_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = kernel.recv(_ANSWER_BYTES)
    if _HEADER.unpack_from(answer)[1] == _BY_FAMILY:
        return int(_INODE.unpack_from(answer, _INODE_AT)[0])
    reason = -_REASON.unpack_from(answer, _HEADER.size)[0]
    if reason == errno.ENOENT:
        return 0
    raise OSError(reason, os.strerror(reason))


def holds(pid: int, number: int) -> bool:
    """Return whether a process has the socket with the inode *number*."""
    try:
        return any(_is(descriptor, number) for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _is(descriptor: Path, number: int) -> bool:
    with suppress(OSError):
        return str(descriptor.readlink()) == f"socket:[{number}]"
    return False
