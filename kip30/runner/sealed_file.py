"""Files in memory that nothing can change once they are written."""

import fcntl
import os

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def sealed(name: str, content: bytes, *, mode: int = 0o400) -> int:
    """Return the descriptor of a new file in memory with this content, which is the caller's.

    Args:
        name: What `/proc` shows for it.
        content: All of the file.
        mode: The permissions of the file.

    Raises:
        OSError: There is no memory or no descriptor left.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(descriptor, mode)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
