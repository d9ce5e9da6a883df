"""``kip30 doctor``: a test of all uses of the configured store."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import click

from kip30.cli import _output
from kip30.cli._doctor_steps import Checkup
from kip30.cli._exit_codes import Status
from kip30.cli._failures import explain, say
from kip30.cli._output import Output, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.config import CommonSettings, Properties, build
from kip30.errors import Kip30Error, UnsupportedError
from kip30.locator import PluginLocator
from kip30.operations import ServerCheck, check_servers
from kip30.runtime.resolution import check

_TITLES = ("VERDICT", "STEP", "TIME", "DETAIL")
_WIDTHS = (6, 20, 10)
_SERVER_TITLES = ("VERDICT", "SERVER", "VERSION", "ROLE", "MEDIAN", "WORST", "CLOCK", "DETAIL")
_DESCRIBED = ("version", "role", "clocks")
_SERVER_WIDTHS = (6, 20, 16, 10, 10, 10)


class StepResult(NamedTuple):
    """Result of one step."""

    step: str
    verdict: str
    detail: str
    milliseconds: float
    status: Status = Status.OK


@click.command("doctor")
@click.option(
    "-e", "--each-server", is_flag=True, help="Instead, read through each server on its own."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, each_server: bool, output: Output) -> int:
    """Connect to the store, test every operation, and show how long it takes.

    It deletes the keys, members and leaders that it makes, which have names of their own, under
    kip30-doctor. A store may keep traces of them, as of those of any client: the newest
    epoch of the service kip30-doctor, and a history where the store has one.
    Exits with the code of the first step that failed. A missing capability is not a failure.

    With --each-server it connects to each server of the setting alone, and prints its version,
    its role and its clock where the store tells them, and the median and the longest of 20 reads.
    On Cassandra those are the contact points.
    """
    if each_server:
        return _check_each_server(choice, output)
    failed: list[StepResult] = []
    lines = output.lines(_TITLES, _WIDTHS, outlives_reader=True)
    with closing(_results(choice)) as results:
        for result in results:
            lines.print([_row(result)], partial(_record, result))
            if result.status:
                failed.append(result)
    if not failed:
        return Status.OK
    if not output.is_objects:
        say(f"{len(failed)} failed: {', '.join(result.step for result in failed)}")
    return failed[0].status


def _check_each_server(choice: StoreChoice, output: Output) -> int:
    properties = choice.properties()
    check(properties, load_plugins=True)
    failed: list[tuple[str, Status]] = []
    lines = output.lines(_SERVER_TITLES, _SERVER_WIDTHS, outlives_reader=True)
    for one in check_servers(properties):
        problem = explain(one.error) if one.error else None
        status = problem.status if problem else Status.OK
        if status:
            failed.append((one.server, status))
        what = problem.what if problem else ""
        lines.print([_server_row(one, what)], partial(_server_record, one, what, status))
    if not failed:
        return Status.OK
    if not output.is_objects:
        say(f"{len(failed)} failed: {', '.join(server for server, _ in failed)}")
    return failed[0][1]


def _server_row(one: ServerCheck, problem: str) -> Row:
    times = (_in_ms(one.median_seconds), _in_ms(one.worst_seconds))
    median, worst = ("-" if time is None else f"{time:.2f} ms" for time in times)
    version, role, clock = (one.described.get(name, "-") for name in _DESCRIBED)
    return _verdict(problem), one.server, version, role, median, worst, clock, problem


def _server_record(one: ServerCheck, problem: str, status: Status) -> dict[str, Any]:
    version, role, clock = map(one.described.get, _DESCRIBED)
    return {
        "server": one.server,
        "verdict": _verdict(problem),
        "version": version,
        "role": role,
        "median_ms": _in_ms(one.median_seconds),
        "worst_ms": _in_ms(one.worst_seconds),
        "clock": clock,
        "detail": problem,
        "exit": int(status),
    }


def _verdict(problem: str) -> str:
    return "FAILED" if problem else "ok"


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _results(choice: StoreChoice) -> Generator[StepResult]:
    properties = choice.properties()
    check(properties, load_plugins=True)
    patience = build(CommonSettings, properties).operation_timeout_seconds
    with PluginLocator() as locator:
        connected = _taken("connect", lambda: _connect(locator, properties))
        yield connected
        if not connected.status:
            yield from _tried_out(Checkup(locator, patience))


def _connect(locator: PluginLocator, properties: Properties) -> str:
    return f"store {locator.startup(properties).backend.name}"


def _tried_out(checkup: Checkup) -> Generator[StepResult]:
    try:
        for name, step in checkup.steps():
            yield _taken(name, step)
    finally:
        checkup.clean_up()


def _taken(name: str, step: Callable[[], str]) -> StepResult:
    began = time.perf_counter()

    def found(verdict: str, detail: str, status: Status = Status.OK) -> StepResult:
        return StepResult(name, verdict, detail, (time.perf_counter() - began) * 1000, status)

    try:
        return found("ok", step())
    except UnsupportedError:
        return found("-", "not offered")
    except Kip30Error as error:
        what, _, status = explain(error)
        return found("FAILED", what, status)


def _row(result: StepResult) -> Row:
    return result.verdict, result.step, f"{result.milliseconds:.1f} ms", result.detail


def _record(result: StepResult) -> dict[str, Any]:
    step, verdict, detail, milliseconds, status = result
    record = {"step": step, "verdict": verdict, "detail": detail}
    return {**record, "milliseconds": milliseconds, "exit": int(status)}
