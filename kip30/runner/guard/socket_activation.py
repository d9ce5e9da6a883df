"""Socket activation: a command serves the sockets that systemd passed to its runner."""

import os
from collections.abc import Mapping

_RECEIVER = "LISTEN_PID"
_RECEIVER_BY_DESCRIPTOR = "LISTEN_PIDFDID"


def activated(environment: Mapping[str, str], runner: int) -> Mapping[str, str]:
    """Return the environment for this process to serve the sockets of *runner*.

    The variables name the only process that may use the sockets. Sockets of any other process
    are left alone.
    """
    if environment.get(_RECEIVER) != str(runner):
        return environment
    rest = {name: value for name, value in environment.items() if name != _RECEIVER_BY_DESCRIPTOR}
    return {**rest, _RECEIVER: str(os.getpid())}
