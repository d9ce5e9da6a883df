"""``kip30 run --dry-run``: what a runner would do, without nominating its candidate."""

import shlex
from collections.abc import Iterator

from kip30.cli._directed import pause_end, pause_of
from kip30.cli._output import Field, Output
from kip30.codecs import BYTES
from kip30.config import Properties
from kip30.locator import PluginLocator
from kip30.runner import Job
from kip30.runner.completed_runs import CompletedRuns, check_run_key
from kip30.runner.service_election import priority_of
from kip30.runtime.resolution import store_place
from kip30.serving.listen_address import parse_address

_TITLES = ("WHAT", "VALUE")
_WIDTHS = (16,)


def print_preview(
    properties: Properties,
    job: Job,
    run_key: str | None,
    address: str | None,
    priority: int | None,
) -> None:
    """Print the store, the candidate and its timeouts, who leads now, and what is done already.

    Raises:
        UsageError: *run_key* cannot be that of a run, *address* not one to listen at, or *priority*
            has no effect. Nothing was opened.
        Kip30Error: As `PluginLocator.startup`, `get_leader` and `CompletedRuns.find`.
    """
    if run_key is not None:
        check_run_key(run_key)
    listening = [] if address is None else [("listen", str(parse_address(address)))]
    rows = [
        *_settings(properties, job),
        ("priority", priority_of(properties, job.service, priority)),
        *listening,
        *_present(properties, job, run_key),
    ]
    Output().lines(_TITLES, _WIDTHS).print(rows)


def _settings(properties: Properties, job: Job) -> Iterator[tuple[str, Field]]:
    place = store_place(properties)
    yield "store", place.store
    yield "place", place.place or "-"
    if place.unset:
        yield "not set", ", ".join(place.unset)
    yield "service", job.service
    yield "candidate", job.candidate
    yield "command", shlex.join(job.command)
    yield "grace", f"{job.grace_seconds:g} s"


def _present(properties: Properties, job: Job, run_key: str | None) -> Iterator[tuple[str, Field]]:
    with PluginLocator().startup(properties) as locator:
        context = locator.context
        leader = locator.leader_election(job.service, BYTES).get_leader()
        yield "session timeout", f"{context.session_timeout_seconds:g} s"
        yield "lease margin", f"{context.margin_seconds:g} s"
        yield "leader", "-" if leader is None else f"{leader.id}, epoch {leader.epoch}"
        if (paused := pause_of(locator, job.service)) is not None:
            yield "paused", f"by {paused.by} until {pause_end(paused)}"
        if run_key is not None:
            run = CompletedRuns(locator.storage(BYTES), job.service).find(run_key)
            yield "done", f"{run_key!r} was not" if run is None else run.described()
