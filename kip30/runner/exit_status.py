"""Shell conventions: the check that a command can be executed, and its exit status."""

import errno
import os
import shutil
from pathlib import Path

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_SIGNALLED = 128


def refusal(name: str) -> int:
    """Return the errno of a command that cannot be executed, 0 if it can."""
    if shutil.which(name):
        return 0
    if os.sep in name:
        return _refusal_of_path(name)
    # Not by Path: its tests raise for a folder that this user may not search.
    files = (os.path.join(folder, name) for folder in os.get_exec_path())  # noqa: PTH118  above
    return errno.EACCES if any(map(os.path.isfile, files)) else errno.ENOENT


def failure_status(number: int) -> int:
    """Return the status a shell gives when execution failed with this errno."""
    return NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE


def exit_status(wait_status: int) -> int:
    """Return the status a shell gives for this wait status: 128 + n after signal n."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else signal_status(-code)


def signal_status(number: int) -> int:
    """Return the status a shell gives for a command that ended by this signal."""
    return _SIGNALLED + number


def _refusal_of_path(name: str) -> int:
    try:
        Path(name).stat()
    except PermissionError:
        return errno.EACCES
    except OSError:
        return errno.ENOENT
    return errno.EACCES
