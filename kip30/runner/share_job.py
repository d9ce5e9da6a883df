"""The job of a runner for the shares of a group, and the way in which its command reads a share."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.errors import InvalidNameError, UsageError
from kip30.names import check_id
from kip30.runner.job import GRACE_SECONDS, check_command
from kip30.runner.sealed_file import sealed
from kip30.runner.share_protocols import HeldItem, HeldShare

MAX_SHARE_BYTES = 64 * 1024
"""The longest ``KIP30_SHARE``: Linux passes no variable above 128 KiB, and an environment has to
share its limit with the arguments."""

PLACEHOLDER = "{}"
"""The placeholder for the item in the arguments of a command for each item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareJob:
    """A command for each share of a group that this process gets.

    Attributes:
        group: The group that divides the work.
        command: Program and arguments.
        restart: Run the command again when it ends by itself, after a pause of 1 s that doubles
            up to 60 s. If not, its end is the end of the run; with a command for each item, the
            item is done.
        wait_seconds: How long to wait for a share each time; None is without limit.
        grace_seconds: How long the command and its descendants may take to end after the first
            signal, or the descendants after the end of the command. Less if the share's deadline
            comes sooner; at most a year.
        descriptors: Open descriptors above 2 that the command gets under the same numbers.
    """

    group: str
    command: Sequence[str]
    restart: bool = False
    wait_seconds: float | None = None
    grace_seconds: float = GRACE_SECONDS
    descriptors: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Refuse a job that cannot be started.

        Raises:
            UsageError: There is no command, the grace is out of range, or the group's name cannot
                be put into an environment.
        """
        check_command(self.command, self.grace_seconds)
        check_id(self.group, "group")
        if "\0" in self.group:
            raise InvalidNameError("the name of the group cannot contain a NUL")


class ShareCommand(Closeable):
    """The command of a job for one share; a `kip30.runner.guard_handle.CommandSpec`.

    The command reads its items from a file in memory that this process holds. So nothing of it
    remains, however this process ends; the command ends with it.
    """

    def __init__(self, job: ShareJob, share: HeldShare) -> None:
        """Write the file.

        Raises:
            UsageError: An item is empty, or is not one line.
        """
        for item in share.items:
            check_item(item)
        self.command: Sequence[str] = job.command
        self.grace_seconds: float = job.grace_seconds
        self._job = job
        self._share = share
        lines = os.fsencode("".join(f"{item}\n" for item in share.items))
        # Readable by all: only a process of this user finds it, but may change its user then.
        self._file = sealed("kip30-share", lines, mode=0o444)

    @property
    def environment(self) -> Mapping[str, str | None]:
        """The variables to set for the command, or not to pass on if None.

        ``KIP30_SHARE`` has the items with blanks between. It is not set if it would be longer than
        `MAX_SHARE_BYTES`, or if an item has a blank in it; ``KIP30_SHARE_FILE`` names a file with
        one item a line in any case, which is there as long as this process, and can be opened by
        processes of its user alone. ``KIP30_GUARD`` names the holder of the share, for writes that
        must be refused once it is another's.
        """
        share = self._share
        return {
            **_held_by(self._job, share),
            "KIP30_SHARE": _in_one_line(share.items),
            "KIP30_SHARE_FILE": f"/proc/{os.getpid()}/fd/{self._file}",
            "KIP30_ITEM": None,
        }

    @override
    def close(self) -> None:
        """Give the file up; the command has ended. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class ItemCommand:
    """The command of a job for one item; a `kip30.runner.guard_handle.CommandSpec`.

    Every ``{}`` in an argument is replaced by the item, also within a longer one; the program is
    not an argument.
    """

    def __init__(self, job: ShareJob, item: HeldItem) -> None:
        """Put the item into the arguments.

        Raises:
            UsageError: The item is empty, or is not one line.
        """
        (self._text,) = item.items
        check_item(self._text)
        program, *arguments = job.command
        self.command: Sequence[str] = [
            program,
            *(argument.replace(PLACEHOLDER, self._text) for argument in arguments),
        ]
        self.grace_seconds: float = job.grace_seconds
        self._job = job
        self._item = item

    @property
    def environment(self) -> Mapping[str, str | None]:
        """The variables to set for the command, or not to pass on if None.

        ``KIP30_GUARD`` is the guard of this item alone.
        """
        return {
            **_held_by(self._job, self._item, self._item.guard_text),
            "KIP30_SHARE": None,
            "KIP30_SHARE_FILE": None,
            "KIP30_ITEM": self._text,
        }


def _held_by(job: ShareJob, share: HeldShare, *item: str) -> dict[str, str]:
    # Slow to import: `kip30 run` has no shares, and a process that has one has imported it.
    from kip30.coordinator.share_guard import text_of_guard  # noqa: PLC0415

    guard = text_of_guard(
        job.group, share.key, share.member, share.generation, *item, history=share.history
    )
    return {
        "KIP30_GROUP": job.group,
        "KIP30_MEMBER": share.member,
        "KIP30_GENERATION": str(share.generation),
        "KIP30_GUARD": guard,
    }


def check_item(item: str) -> None:
    """Refuse a text that no environment and no list of lines can hold.

    Raises:
        UsageError: It is empty, or is not one line.
    """
    if not item or "\n" in item or "\0" in item:
        raise UsageError(f"an item must be one line that is not empty: {item!r:.60}")


def _in_one_line(items: Sequence[str]) -> str | None:
    line = " ".join(items)
    # A shell divides the variable at both.
    is_clear = "\t" not in line and line.count(" ") == len(items) - 1
    return line if is_clear and len(os.fsencode(line)) <= MAX_SHARE_BYTES else None
