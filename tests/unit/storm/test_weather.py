"""How long a storm rages."""

from types import SimpleNamespace
from typing import Any

import pytest

from kip30_conformance.storm.schedule import Episode
from kip30_conformance.storm.timing import Timing
from kip30_conformance.storm.weather import Weather


@pytest.mark.parametrize(("seconds", "begun"), [(60.0, 2), (0.0, 0)])
def test_no_episode_begins_once_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, begun: int
) -> None:
    happened: list[Episode] = []
    monkeypatch.setattr(Weather, "_happen", lambda _, episode: happened.append(episode))
    monkeypatch.setattr(Timing, "calm", 0.0)
    crew: Any = SimpleNamespace(have_said=lambda _: True, counted=dict, look=lambda: None)
    scene: Any = SimpleNamespace(crew=crew)
    display: Any = SimpleNamespace(begin=lambda _: None, show=lambda *_: None)
    Weather(scene, Timing(), display).rage([Episode([]), Episode([])], seconds)
    assert len(happened) == begun
