"""Settings of the embedded store, as an operator writes them."""

import os
from dataclasses import dataclass
from pathlib import Path

from kip30.config import choice, home, milliseconds, path, setting
from kip30.errors import ConfigError


def default_directory() -> Path:
    """Return the default directory of state: ``${XDG_STATE_HOME:-~/.local/state}/kip30``.

    A relative ``XDG_STATE_HOME`` is ignored, as its specification says.

    Raises:
        ConfigError: There is no home directory either.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else _home() / ".local/state") / "kip30"


def _home() -> Path:
    try:
        return home()
    except RuntimeError as error:
        raise ConfigError(
            f"user {os.getuid()} has no home directory: set plugin.embedded.directory, or"
            " XDG_STATE_HOME to an existing directory"
        ) from error


@dataclass(frozen=True, kw_only=True)
class EmbeddedSettings:
    """Settings of the embedded store, ``plugin.embedded.*``."""

    directory: Path = setting(  # noqa: RUF009  it describes a field
        "plugin.embedded.directory",
        path,
        default=lambda: str(default_directory()),
        shown="${XDG_STATE_HOME:-~/.local/state}/kip30",
        doc="directory shared by processes of one machine; created with mode 0700 if its parent"
        " exists",
    )
    synchronous: str = setting(
        "plugin.embedded.synchronous",
        choice("normal", "full"),
        default="normal",
        doc="normal: a power failure may undo the last writes, never an epoch; full: nothing",
    )
    liveness: str = setting(
        "plugin.embedded.liveness",
        choice("auto", "ofd", "record"),
        default="auto",
        doc="file locks that prove a session alive: ofd where the system has them, else record",
    )
    notify: str = setting(
        "plugin.embedded.notify",
        choice("auto", "inotify", "poll"),
        default="auto",
        doc="how observers are notified of changes: inotify if the system has it, else polling",
    )
    poll_seconds: float = setting(
        "plugin.embedded.poll.ms",
        milliseconds(minimum=5, maximum=10_000),
        default="50",
        doc="interval at which observers poll",
    )
