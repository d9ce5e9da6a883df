"""The duration of a storm, and the beginnings of its calms."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from kip30_conformance.storm.fault_loop import FaultLoop
from kip30_conformance.storm.fault_schedule import Episode
from kip30_conformance.storm.timing import Timing


@pytest.mark.parametrize(("seconds", "begun"), [(60.0, 2), (0.0, 0)])
def test_no_episode_begins_once_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, begun: int
) -> None:
    happened: list[Episode] = []
    monkeypatch.setattr(FaultLoop, "_happen", lambda _, episode: happened.append(episode))
    monkeypatch.setattr(Timing, "calm", 0.0)
    clients: Any = SimpleNamespace(have_said=lambda _: True, counted=dict, look=lambda: None)
    scene: Any = SimpleNamespace(clients=clients)
    display: Any = SimpleNamespace(begin=lambda _: None, show=lambda *_: None)
    FaultLoop(scene, Timing(), display).inject([Episode([]), Episode([])], seconds)
    assert len(happened) == begun


def test_a_calm_begins_when_the_processes_of_all_clients_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Timing, "calm", 0.0)
    running = time.monotonic() + 0.3
    clients: Any = SimpleNamespace(
        have_said=lambda what: what != "running" or time.monotonic() > running,
        counted=dict,
        look=lambda: None,
    )
    scene: Any = SimpleNamespace(clients=clients, ensemble=SimpleNamespace(nodes=[]))
    display: Any = SimpleNamespace(begin=lambda _: None, show=lambda *_: None)
    fault: Any = SimpleNamespace(begin=lambda: None, end=lambda: None, target="", evidence="")
    monkeypatch.setattr(FaultLoop, "_made", lambda *_: fault)
    loop = FaultLoop(scene, Timing(), display)
    loop.inject([Episode([_no_fault()])], 60.0)
    assert loop.windows[-1].end > running


def test_the_first_calm_begins_when_all_clients_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold store takes longer to form the first generation than a calm may last."""
    monkeypatch.setattr(Timing, "calm", 0.0)
    working = time.monotonic() + 0.3
    clients: Any = SimpleNamespace(
        have_said=lambda what: what != "working" or time.monotonic() > working,
        counted=dict,
        look=lambda: None,
    )
    scene: Any = SimpleNamespace(clients=clients)
    display: Any = SimpleNamespace(begin=lambda _: None, show=lambda *_: None)
    loop = FaultLoop(scene, Timing(), display)
    loop.inject([], 60.0)
    assert loop.windows[0].begin > working


def _no_fault() -> Any:
    return SimpleNamespace(kind="none", seconds=0.0, seed=1)
