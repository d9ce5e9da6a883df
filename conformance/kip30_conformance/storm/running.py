"""From the name of a store to the report on its behaviour in a storm."""

import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from kip30 import ConfigError, __version__
from kip30.config.extras import how_to_install
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, start
from kip30_conformance.storm import (
    directive_check,
    fault_evidence,
    generation_check,
    guard_check,
    leadership_check,
    leak_check,
    listener_check,
    liveness_check,
    membership_check,
    storage_check,
    work_check,
)
from kip30_conformance.storm.clients import Clients
from kip30_conformance.storm.display import display_on
from kip30_conformance.storm.fault_loop import FaultLoop
from kip30_conformance.storm.fault_schedule import schedule
from kip30_conformance.storm.faults import Scene
from kip30_conformance.storm.final_state import prepare, read_final
from kip30_conformance.storm.foreign_records import begun
from kip30_conformance.storm.rendering import markdown
from kip30_conformance.storm.storm_history import Final, StormRecord, load
from kip30_conformance.storm.summary import Summary
from kip30_conformance.storm.timing import Timing, timing_of

JUDGES = (
    leadership_check.one_holder,
    leadership_check.rising_epochs,
    storage_check.nothing_lost,
    storage_check.linearizable,
    leadership_check.fenced_writes,
    membership_check.true_membership,
    listener_check.events_delivered,
    liveness_check.calls_end,
    liveness_check.progress,
    leak_check.no_leak,
    work_check.one_worker,
    guard_check.guarded_writes,
    generation_check.one_assignment,
    work_check.work_goes_on,
    directive_check.one_directed_holder,
    directive_check.pauses_hold,
    directive_check.step_downs_are_obeyed,
    fault_evidence.faults_with_evidence,
)
_CLIENTS = 4
_READINGS = 3
_REMOVAL_SECONDS = 10.0


def run(  # noqa: PLR0913  one for each option
    server: str,
    *,
    nodes: int = 3,
    seconds: float = 1800.0,
    seed: int | None = None,
    out: Path | str = "storm-report",
    neighbour: bool = True,
    members: int = 10,
) -> Summary:
    """Inject random faults into a store and its clients, and judge the results.

    Args:
        server: ``etcd`` or ``zookeeper``; it has to be installed.
        nodes: How many servers.
        seconds: How long faults happen; starting, ending and judging come on top.
        seed: The seed of randomness; the same one gives the same faults at the same times.
        out: Gets ``report.json`` and ``report.md``, and all records in a folder of their own.
        neighbour: Whether another program writes records beside those of the clients that kip30
            cannot read, if there is one for this store.
        members: How many members of a group that divides items the clients have together.

    Ctrl-C ends it early; the judges then judge the part until that.

    Raises:
        ConfigError: There is no such store, or it or psutil is not installed. Nothing was
            started, and *out* is as it was.
    """
    if find_spec("psutil") is None:
        raise ConfigError(f"a storm needs psutil; {how_to_install('conformance')}")
    seed = secrets.randbelow(2**32) if seed is None else seed
    begun = datetime.now(UTC)
    folder = _planned(Path(out), f"{server}-{seed}-{begun:%Y%m%d-%H%M%S}")
    timing = timing_of(server)
    with start(server, nodes, folder=folder / "servers") as ensemble:
        _make(folder)  # not earlier: a run that is refused leaves nothing
        version = ensemble.version
        record, interrupted, written = _raged(
            ensemble, seconds, seed, folder, timing, neighbour=neighbour, members=members
        )
    run_words = {
        "store": f"{server} {version}, {nodes} nodes",
        "seed": str(seed),
        "started": begun.isoformat(timespec="seconds"),
        "asked for": f"{seconds:g} s" + (", ended early" if interrupted else ""),
        "another program": written,
        "members that divide items": str(members),
        **_environment(timing),
    }
    summary = judged(record, run_words)
    _write(summary, Path(out))
    return summary


def judged(record: StormRecord, run_words: Mapping[str, str]) -> Summary:
    """Return the findings of all judges about *record*."""
    done, seen = fault_evidence.counted(record)
    return Summary(
        run=run_words,
        findings=[judge(record) for judge in JUDGES],
        faults={kind: (count, seen[kind]) for kind, count in done.items()},
        calls=liveness_check.outcomes(record),
        longest=liveness_check.longest(record),
        windows=record.windows,
    )


def _raged(  # noqa: PLR0913  all that a storm is made of
    ensemble: Ensemble,
    seconds: float,
    seed: int,
    folder: Path,
    timing: Timing,
    *,
    neighbour: bool,
    members: int,
) -> tuple[StormRecord, bool, str]:
    """Run the storm; return the record, whether it was interrupted, and a neighbour's counts."""
    display = display_on(sys.stderr)
    namespace = f"storm-{secrets.token_hex(4)}"
    settings = {"plugin.namespace": namespace, "plugin.operations": "true", **timing.properties()}
    config = {**ensemble.settings(), **settings}
    with ExitStack() as undoing:
        undoing.callback(display.end)
        prepare(config, folder / "history")
        links = [ensemble.link() for _ in range(_CLIENTS)]
        clients = Clients(links, folder, settings, timing, members=members)
        undoing.callback(clients.end)
        rubbish = begun(ensemble, namespace, seed) if neighbour else None
        loop = FaultLoop(Scene(ensemble, clients), timing, display)
        loop.inject(schedule(seed, seconds, timing), seconds)
        if rubbish is not None:
            rubbish.end(_REMOVAL_SECONDS)
        loop.quiet()
        final = _settled(loop, clients, partial(read_final, config, folder / "history"))
        deaths = [*loop.close(), *clients.deaths()]
        windows = loop.windows
        known = {"names": clients.names, "windows": windows, "final": final, "deaths": deaths}
    written = "none" if rubbish is None else str(rubbish)
    return load(folder, timing=timing, **known), loop.interrupted, written


def _settled(loop: FaultLoop, clients: Clients, read: Callable[[], Final | None]) -> Final | None:
    """Return the final result of *read*, once listeners had time to receive it.

    A busy machine may cost a client its leadership even now, so it is read until it stays the same.
    """
    final = None
    for _ in range(_READINGS):
        before, final = final, read()
        if final is None or final == before:
            break
        loop.settle(partial(_all_told, clients, final))
    return final and final._replace(until=time.monotonic())


def _all_told(clients: Clients, final: Final) -> bool:
    return not any(
        complaint
        for client in clients.processes
        for complaint in listener_check.lagging(client.process, client.journal(), final)
    )


def _planned(out: Path, name: str) -> Path:
    if out.is_file():
        raise ConfigError(f"{out} is a file: name a folder")
    return (out / name).absolute()


def _make(folder: Path) -> None:
    for part in ("history", "journals", "terms", "directed-terms", "work"):
        (folder / part).mkdir(parents=True)


def _environment(timing: Timing) -> dict[str, str]:
    return {
        "clients": str(_CLIENTS),
        "session timeout": f"{timing.session:g} s",
        "operation timeout": f"{timing.operation:g} s",
        "kip30": __version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "processors": str(os.cpu_count()),
        "time scale": f"{time_scale():g}",
    }


def _write(summary: Summary, out: Path) -> None:
    report = json.dumps(summary.to_json(), indent=1, ensure_ascii=False)
    (out / "report.json").write_text(report, encoding="utf-8")
    (out / "report.md").write_text(markdown(summary), encoding="utf-8")
    print(f"{summary}; reports in {out}", file=sys.stderr)  # noqa: T201  the end of the progress
