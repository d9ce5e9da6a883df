"""The tables of phases, and their drawings in the documents."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

import pytest

from kip30.runtime import candidacy_phases, member_phases
from kip30.runtime.candidacy_phases import CandidacyEvent, CandidacyPhase, next_phase
from kip30.runtime.member_phases import Phase

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"
LEGAL = [
    (phase, event, following)
    for phase, events in candidacy_phases.TRANSITIONS.items()
    for event, following in events.items()
]
ILLEGAL = [
    (phase, event)
    for phase in CandidacyPhase
    for event in CandidacyEvent
    if event not in candidacy_phases.TRANSITIONS[phase]
]


def drawing(heading: str) -> list[str]:
    """Return the lines of the drawing below *heading*, except its ends."""
    text = ARCHITECTURE.read_text().partition(f"\n## {heading}\n")[2].partition("```\n")[0]
    return [line.strip() for line in text.splitlines() if re.match(" *[A-Z].* --> [A-Z]", line)]


def drawn(transitions: Iterable[tuple[Enum, str, Enum]]) -> list[str]:
    """Return the lines that draw *transitions*, except those to CLOSED, from which none leads."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for phase, event, following in transitions:
        if "CLOSED" not in {phase.name, following.name}:
            arrows.setdefault((_state(phase), _state(following)), []).append(event)
    return [f"{start} --> {end}: {'<br/>'.join(on)}" for (start, end), on in arrows.items()]


def _state(phase: Enum) -> str:
    return phase.name.title().replace("_", "")


def test_the_drawing_of_a_candidacy_is_its_table() -> None:
    table = [(phase, event.value, following) for phase, event, following in LEGAL]
    assert drawing("The states of a candidacy") == drawn(table)


def test_the_drawing_of_a_member_is_its_table() -> None:
    table = [
        (phase, event, following)
        for phase, others in member_phases.TRANSITIONS.items()
        for following, event in others.items()
    ]
    assert drawing("The states of a member") == drawn(table)


@pytest.mark.parametrize(("phase", "event"), ILLEGAL)
def test_an_event_that_the_table_does_not_have_is_an_error(
    phase: CandidacyPhase, event: CandidacyEvent
) -> None:
    with pytest.raises(RuntimeError, match=event.name):
        next_phase(phase, event)


@pytest.mark.parametrize(
    ("table", "first"),
    [
        (
            {start: set(events.values()) for start, events in candidacy_phases.TRANSITIONS.items()},
            CandidacyPhase.WAITING,
        ),
        (
            {start: set(others) for start, others in member_phases.TRANSITIONS.items()},
            Phase.JOINING,
        ),
    ],
    ids=["candidacy", "member"],
)
def test_each_phase_is_reached(table: Mapping[Enum, set[Enum]], first: Enum) -> None:
    reached, found = set[Enum](), {first}
    while found - reached:
        reached |= found
        found = set[Enum]().union(*(table[phase] for phase in reached))
    assert reached == table.keys() == {*type(first)}
