"""Failovers one after the other, and what HAProxy and its clients have seen of each."""

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.balancer.client import Client
from benchmarks.balancer.haproxy import OF_LEADER, Balancer, Checks, StateChange
from benchmarks.balancer.machines import CAUSES, HOSTS, Answer, Machines, Term


class Failover(NamedTuple):
    """A term that follows another one. Times are seconds.

    Attributes:
        cause: How the former leader came to its end.
        until_elected: From the signal or the directive that ended its term until the election.
        until_up: From the election of the leader until HAProxy found that it is up.
        until_served: From its election until the first request reached its web server.
        until_ready: From its election until its web server listened.
        former_served: From its election until the last request reached the former leader's web
            server; 0: none did.
        outage: From the last write of the former leader to the first one of this one.
    """

    cause: str
    until_elected: float
    until_up: float
    until_served: float
    until_ready: float
    former_served: float
    outage: float


class Outcome(NamedTuple):
    """All failovers of one run.

    Attributes:
        failovers: Each of them, in order.
        terms: How many terms there were, more than failovers if a leader lost its own.
        answers: How many requests reached a web server, by its epoch.
        writes: How many of them had their write accepted.
        late_writes: Writes that were accepted after one of a newer epoch.
        statuses: How many requests the clients have sent, by status.
    """

    failovers: Sequence[Failover]
    terms: int
    answers: Mapping[int, int]
    writes: Mapping[int, int]
    late_writes: Sequence[Answer]
    statuses: Mapping[int | str, int]


def fail_over(
    settings: Mapping[str, str],
    folder: Path,
    number: int,
    *,
    causes: Collection[str] = tuple(CAUSES),
    checks: Checks = OF_LEADER,
) -> Outcome:
    """End the terms of *number* leaders, and return what was seen.

    Args:
        settings: Of the store.
        folder: Where to keep the configuration of HAProxy.
        number: How many failovers.
        causes: How the leaders come to their ends, by turns.
        checks: Those of HAProxy.
    """
    with ExitStack() as stack:
        machines = stack.enter_context(Machines(settings))
        balancer = stack.enter_context(Balancer(folder, HOSTS, machines.ports, checks))
        clients = [
            stack.enter_context(Client(balancer.port, keeps_connection=keeps))
            for keeps in (False, True)
        ]
        try:
            turns = islice(cycle(causes), number)
            pairs = [_next_pair(machines, cause) for cause in turns]
            machines.settled()
        except (AssertionError, TimeoutError) as error:
            error.add_note(machines.said())
            raise
    answers = sorted(machines.answers(), key=lambda one: one.arrived)
    statuses = sum((client.statuses for client in clients), Counter[int | str]())
    return Outcome(
        list(_failovers(pairs, answers, machines.ready(), balancer.changes)),
        len({one.epoch for one in answers}),
        Counter(one.epoch for one in answers),
        Counter(one.epoch for one in answers if one.version is not None),
        late_writes(answers),
        statuses,
    )


def late_writes(answers: Sequence[Answer]) -> list[Answer]:
    """Return the writes of *answers* that the store has accepted after one of a newer epoch."""
    written = sorted((one.version, one.epoch, one) for one in answers if one.version is not None)
    newest = accumulate((epoch for _, epoch, _ in written), max)
    return [one for (_, epoch, one), limit in zip(written, newest, strict=True) if epoch < limit]


class _Pair(NamedTuple):
    cause: str
    ended_at: float
    former: Term
    term: Term


def _next_pair(machines: Machines, cause: str) -> _Pair:
    """End the term of the leader, and return it with the next one that serves."""
    former = machines.settled()
    ended_at = time.time()
    CAUSES[cause](machines, former.candidate)
    term = machines.next_term(former)
    machines.go_on(former.candidate)
    sys.stderr.write(f"{cause}: {former.candidate}, then {term.candidate}, epoch {term.epoch}\n")
    return _Pair(cause, ended_at, former, term)


def _failovers(
    pairs: Sequence[_Pair],
    answers: Sequence[Answer],
    ready: Mapping[int, float],
    changes: Sequence[StateChange],
) -> Iterator[Failover]:
    by_epoch = dict[int, list[Answer]]()
    for one in answers:
        by_epoch.setdefault(one.epoch, []).append(one)
    for cause, ended_at, former, term in pairs:
        served, before = by_epoch[term.epoch], by_epoch[former.epoch]
        up = next(
            one.at
            for one in changes
            if one.is_up and one.server == term.candidate and one.at > term.since
        )
        yield Failover(
            cause,
            term.since - ended_at,
            up - term.since,
            served[0].arrived - term.since,
            ready[term.epoch] - term.since,
            max(0.0, before[-1].arrived - term.since),
            _first_write(served) - _last_write(before),
        )


def _first_write(answers: Sequence[Answer]) -> float:
    return next(one.arrived for one in answers if one.version is not None)


def _last_write(answers: Sequence[Answer]) -> float:
    return next(one.arrived for one in reversed(answers) if one.version is not None)
