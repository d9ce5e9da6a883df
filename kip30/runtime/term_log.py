"""The log of terms, ``kip30.terms``: each election of a candidate, and each end of a term.

`docs/logging.md` lists the messages and fields. Names of fields begin with ``kip30_``: `logging`
raises an error for a field that a record already has, such as a program's own ``service``.
"""

import logging
from typing import Literal, Protocol

from kip30.driver.records import Claim
from kip30.names import INTERNAL
from kip30.runtime.service_metrics import ServiceMetrics

log: logging.Logger = logging.getLogger("kip30.terms")

_Event = Literal["elected", "ended"]


class LoggedTerm(Protocol):
    """A term, as far as its lines show it."""

    service: str
    claim: Claim
    step_down_reason: str

    @property
    def ending_reason(self) -> str:
        """Reason why it has ended."""
        ...

    def is_valid(self) -> bool:
        """Return whether it holds now, by the clock."""
        ...


class TermLog:
    """Logs the terms of one client, and reports them to its metrics. Thread-safe.

    A handler of the log may block. So callers hold no lock, and have done all that others wait for.
    """

    def __init__(self, store: str, services: ServiceMetrics | None = None) -> None:
        """Name *store* in each record."""
        self._store = store
        self._services = services
        # The event of a term that was reported first, until the other one is. Each operation on it
        # is atomic, so it takes no lock.
        self._first: dict[LoggedTerm, _Event] = {}

    def nominated(self, service: str) -> None:
        """Report that the first candidate of a handle is nominated."""
        if self._services is not None:
            self._services.nominated(service)

    def elected(self, term: LoggedTerm) -> None:
        """Log the beginning of *term*, and its end if that was reported meanwhile."""
        if self._services is not None:
            self._services.elected(term)
        self._write("elected", term.service, term.claim, "%r leads %r, epoch %d")
        if self._first.setdefault(term, "elected") == "ended":
            self._write_end(term)

    def ended(self, term: LoggedTerm) -> None:
        """Log the end of *term* once its beginning has been logged."""
        if self._first.setdefault(term, "ended") == "elected":
            self._write_end(term)

    def step_down_requested(self, term: LoggedTerm, reason: str) -> None:
        """Log that an operator ends *term*."""
        message = "%r is to step down from %r, epoch %d: %s"
        self._write("step_down_requested", term.service, term.claim, message, reason)

    def returned(self, service: str, claim: Claim, reason: str) -> None:
        """Log that *claim* was granted in vain, and that the program does not learn of it."""
        message = "a claim of %r to %r, epoch %d, was granted and is given back: %s"
        self._write("returned", service, claim, message, reason)

    def close(self) -> None:
        """Log the ends of the terms whose beginning was logged: all of them have ended."""
        for term in list(self._first):
            self.ended(term)

    def _write_end(self, term: LoggedTerm) -> None:
        if self._first.pop(term, None) is not None:  # otherwise another thread logs it
            if self._services is not None:
                self._services.ended(term)
            message = "%r no longer leads %r, epoch %d: %s"
            self._write("ended", term.service, term.claim, message, term.ending_reason)

    def _write(
        self, event: str, service: str, claim: Claim, message: str, reason: str = ""
    ) -> None:
        # A program may take a lock of `kip30.recipes` a thousand times a second.
        level = logging.DEBUG if service.startswith(INTERNAL) else logging.INFO
        if not log.isEnabledFor(level):
            return
        epoch = claim.entry.version.major
        shown = (claim.name, service, epoch, reason) if reason else (claim.name, service, epoch)
        fields = {
            "kip30_event": event,
            "kip30_store": self._store,
            "kip30_service": service,
            "kip30_candidate": claim.name,
            "kip30_epoch": epoch,
            "kip30_reason": reason,
        }
        log.log(level, message, *shown, extra=fields)
