"""An operator in each client: random pauses, resumptions, step-downs and hand-overs."""

import time
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from kip30 import Kip30Error
from kip30.operations import (
    DirectedService,
    pause_service,
    read_directives,
    resume_service,
    step_down_leader,
)
from kip30_conformance.storm.names import DIRECTED_SERVICE, client_name
from kip30_conformance.storm.workload import ActionContext, RepeatedAction

_BETWEEN_SECONDS = 4.0
"""There are four clients: so there is a directive in each second."""
_PAUSE_SECONDS = (1.0, 6.0)
_WAIT_SECONDS = 5.0
_REQUESTS = 12
"""Most requests of a directive, besides the time that it waits for the leader."""
_RESUMPTIONS = 3


class SendDirectives(RepeatedAction):
    """Random directives, each with what it has shown, in the journal.

    A row ``directs`` is written before it is sent, because the process may be killed. A row
    ``directed`` follows with the outcome.
    """

    def __init__(self, context: ActionContext) -> None:
        """Direct nothing yet."""
        limit = _WAIT_SECONDS + _REQUESTS * context.calls.limit
        super().__init__(context, "direct", _BETWEEN_SECONDS, limit_seconds=limit)
        self._locator = context.locator
        self._number = 0

    @override
    def act(self) -> None:
        self._random.choice((self._pause_service, self._resume, self._step_down, self._hand_over))()

    @override
    def end(self) -> None:
        """End what holds the candidates back, so that one of them leads at the end."""
        for _ in range(_RESUMPTIONS):
            with self._context.calls.call(self.name, limit_seconds=self.limit_seconds):
                self._resume()
                return

    def _pause_service(self) -> None:
        seconds = round(self._random.uniform(*_PAUSE_SECONDS), 3)
        self._direct(
            "pause",
            lambda: pause_service(self._locator, DIRECTED_SERVICE, seconds=seconds),
            lambda: {"read": self._read()},
            seconds=seconds,
        )

    def _resume(self) -> None:
        self._direct("resume", lambda: resume_service(self._locator, DIRECTED_SERVICE))

    def _step_down(self, successor: str | None = None) -> None:
        leader = self._locator.leader_election(DIRECTED_SERVICE).get_leader()
        epoch = 0 if leader is None else leader.epoch

        def step_down() -> DirectedService:
            return step_down_leader(
                self._locator,
                DIRECTED_SERVICE,
                successor=successor,
                epoch=epoch,
                wait_seconds=_WAIT_SECONDS,
            )

        self._direct("step-down", step_down, epoch=epoch, successor=successor)

    def _hand_over(self) -> None:
        self._step_down(client_name(self._random.randrange(self._context.clients)))

    def _read(self) -> dict[str, Any]:
        """Return who led, in which epoch, between which moments; empty if that was not read."""
        called = time.monotonic()
        try:
            found = read_directives(self._locator, DIRECTED_SERVICE)
        except Kip30Error:
            return {}
        return {"called": called, "returned": time.monotonic(), "epoch": found.epoch}

    def _direct(
        self,
        action: str,
        send: Callable[[], DirectedService],
        look: Callable[[], dict[str, Any]] = dict,
        **more: Any,
    ) -> None:
        self._number += 1
        journal, row = self._context.journal, {"number": self._number, "action": action, **more}
        called = time.monotonic()
        journal.write("directs", **row, called=called)
        error, shown = "", dict[str, Any]()
        try:
            found = send()
            shown = {
                "returned": time.monotonic(),
                "leader": found.leader,
                "led_epoch": found.epoch,
                "record": found.directives.number,
            }
            shown |= look()
        except Kip30Error as failure:
            error = type(failure).__name__
            raise
        finally:
            ended = {"returned": time.monotonic(), "error": error, **shown}
            journal.write("directed", **row, called=called, **ended)
