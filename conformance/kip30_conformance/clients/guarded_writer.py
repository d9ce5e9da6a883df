"""Writing under guards until they no longer hold, in this process or in a peer's."""

from collections.abc import Mapping

from kip30 import GuardError, OutcomeUnknownError, Storage, UnavailableError, Version

_MOST_UNANSWERED = 20


def set_until_refused(
    storage: Storage[str], key: str, guards: Mapping[str, Version], prefix: str
) -> int:
    """Set *key* to numbers from 1 on, after *prefix*, until a guard refuses it.

    Writes that a busy store does not answer are retried, a few times: whether one was done or not,
    a guard that has changed keeps the first write from being done late.

    Returns:
        How many were acknowledged.
    """
    number = unanswered = 0
    while True:
        try:
            storage.set(key, f"{prefix}{number + 1}", guards=guards)
            number += 1
        except GuardError:
            return number
        except (UnavailableError, OutcomeUnknownError):
            unanswered += 1
            if unanswered > _MOST_UNANSWERED:
                raise
