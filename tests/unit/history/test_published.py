"""X02: every published history whose model we have gets its published verdict."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kip30.history.cas_register import CasRegister
from kip30.history.linearizability import check
from kip30.history.models import Model
from kip30.history.operations import Operation
from kip30.history.verdict import Verdict

from .published_models import Counter, KeyValue, MultiRegister
from .readers import key_values, keyed, read_events, single, with_evidence

pytestmark = pytest.mark.case("X02")

HISTORIES = Path(
    os.environ.get("KIP30_HISTORIES")
    or Path(__file__).resolve().parents[4] / "shared" / "histories"
)

MODELS: dict[str, Callable[[], Model]] = {
    "cas-register": CasRegister,
    "kv": KeyValue,
    "multi-register": lambda: MultiRegister(x=0, y=0),
    "counter": Counter,
}

JUDGED_OTHERWISE = {"list-append", "rw-register", "bank", "long-fork", "set", "set-full"}
"""Models of transactions and sets, which need another kind of checker."""

UNDECIDED = "c50-bad"
"""Strings put together by fifty clients: its violation may not be found within the budget."""

Unit = dict[str, str]


def _units() -> Iterator[tuple[str, list[Unit]]]:
    with (HISTORIES / "VERDICTS.tsv").open() as lines:
        units = csv.DictReader(lines, delimiter="\t")
        for name, group in groupby(units, key=lambda unit: unit["file"]):
            if (HISTORIES / name).exists():
                yield name, list(group)


def _model_name(units: Sequence[Unit]) -> str:
    return units[0]["model"].split()[0]


def _cases(*models: str) -> list[Any]:
    if not HISTORIES.is_dir():
        reason = "the published histories are not here: set KIP30_HISTORIES to their folder"
        return [pytest.param("", [], id="absent", marks=pytest.mark.skip(reason))]
    return [
        pytest.param(name, units, id=name, marks=[pytest.mark.heavy] * (UNDECIDED in name))
        for name, units in _units()
        if _model_name(units) in models
    ]


def _rows(name: str, model: str) -> list[Operation]:
    events = read_events(HISTORIES / name)
    if model == "kv":
        return key_values(events)
    source, _, _ = name.partition("/")
    if source == "ratis-jepsen":
        return with_evidence(keyed(events), "precondition")
    if source == "jepsen-demo":
        return with_evidence(keyed(events), None)
    return with_evidence(single(events), None) if source == "porcupine" else single(events)


def _verdicts(units: Sequence[Unit], column: str) -> dict[str, Verdict]:
    words = {"true": Verdict.OK, "false": Verdict.VIOLATION}
    return {_key(unit): words[unit[column]] for unit in units if unit[column] in words}


def _key(unit: Unit) -> str:
    return unit["key"] if unit["key"].isdecimal() else ""


def _judged(rows: Sequence[Operation], model: Model, keys: Iterable[str]) -> dict[str, Verdict]:
    return {
        key: check((row for row in rows if key in ("", row.key)), model).verdict for key in keys
    }


@pytest.mark.parametrize(("name", "units"), _cases(*MODELS))
def test_a_published_history_gets_its_verdict(name: str, units: list[Unit]) -> None:
    model = _model_name(units)
    rows = _rows(name, model)
    published = _verdicts(units, "published_verdict")
    assert len(rows) == sum(int(unit["invocations"]) for unit in units)
    found = _judged(rows, MODELS[model](), published)
    assert found == published or (UNDECIDED in name and found == {"": Verdict.UNKNOWN})
    if model == "cas-register":
        re_checked = _verdicts(units, "recheck_nil_read_wildcard")
        assert _judged(rows, CasRegister(nil_reads_anything=True), re_checked) == re_checked


@pytest.mark.skipif(not HISTORIES.is_dir(), reason="the published histories are not here")
def test_no_published_model_is_passed_over_in_silence() -> None:
    models = {_model_name(units) for _, units in _units()}
    assert models - JUDGED_OTHERWISE == MODELS.keys()
