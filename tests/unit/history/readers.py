"""Readers for the published histories: EDN, JSON and the log lines of Jepsen's etcd tests."""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kip30.history.cas_register import MISMATCH
from kip30.history.operations import Operation, Outcome, frozen

Event = dict[str, Any]
"""A line of a published history, its keywords as strings without their colon."""

_WORD = re.compile(r'[\s,]*(?:;[^\n]*[\s,]*)*("(?:\\.|[^"\\])*"|[\[\](){}]|[^\s,;"\[\](){}]+)')
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_WORDS = {"nil": None, "true": True, "false": False}
_LOG_LINE = re.compile(r"INFO  jepsen\.util - (\d+)\t:(\w+)\t:(\w+)\t(.*)")


def read_edn(text: str) -> Iterator[Any]:
    """Yield the top-level values of *text*: vectors and lists as lists, maps as dicts."""
    words = (match[1] for match in _WORD.finditer(text))
    for word in words:
        yield _value(word, words)


def _value(word: str, words: Iterator[str]) -> Any:
    if word in _CLOSING:
        items = list(_items(_CLOSING[word], words))
        return dict(zip(items[::2], items[1::2], strict=False)) if word == "{" else items
    if word[0] == '"':
        return json.loads(word)
    if word[0] == "#":
        return _value(next(words), words)
    return _WORDS[word] if word in _WORDS else _atom(word)


def _atom(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdecimal() else word.removeprefix(":")


def _items(closing: str, words: Iterator[str]) -> Iterator[Any]:
    for word in words:
        if word == closing:
            return
        yield _value(word, words)


def read_events(path: Path) -> list[Event]:
    """Return the lines of a history file, whichever of the published formats it has."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    if path.suffix == ".log":
        return list(_log_events(text))
    values = json.loads(text) if path.suffix == ".json" else list(read_edn(text))
    return values[0] if values and isinstance(values[0], list) else values


def _log_events(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        if match := _LOG_LINE.match(line):
            process, kind, name, value = match.groups()
            yield {"process": int(process), "type": kind, "f": name, "value": next(read_edn(value))}


class Call(NamedTuple):
    """An invocation with its completion, both by their line; no completion if none came."""

    called: int
    begin: Event
    returned: int | None
    end: Event

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[self.end.get("type", "info")]


_OUTCOMES = {"ok": Outcome.OK, "fail": Outcome.FAIL, "info": Outcome.UNKNOWN}


def calls(events: Iterable[Event]) -> Iterator[Call]:
    """Pair invocations with completions by process; leave out what the nemesis did."""
    running: dict[int, tuple[int, Event]] = {}
    for line, event in enumerate(events):
        process = event["process"]
        if not isinstance(process, int):
            continue
        begun = running.pop(process, None)
        if event["type"] == "invoke":
            running[process] = (line, event)
        if begun is not None:
            ended = event if event["type"] in _OUTCOMES else {}
            yield Call(*begun, line if ended.get("type") in ("ok", "fail") else None, ended)
    yield from (Call(*begun, None, {}) for begun in running.values())


def single(events: Iterable[Event]) -> list[Operation]:
    """Return the rows of a history of one object."""
    return [_row(call, "", call.begin["value"], call.end.get("value")) for call in calls(events)]


def keyed(events: Iterable[Event]) -> list[Operation]:
    """Return the rows of a history whose values are pairs of a key and a value."""
    return [_keyed(call) for call in calls(events)]


def _keyed(call: Call) -> Operation:
    key, value = call.begin["value"]
    return _row(call, str(key), value, call.end.get("value", [key, None])[1])


def key_values(events: Iterable[Event]) -> list[Operation]:
    """Return the rows of a history whose lines name their key."""
    return [
        _row(call, call.begin["key"], call.begin["value"], call.end.get("value"))
        for call in calls(events)
    ]


_READS = ("read", "get", "txn")


def _row(call: Call, key: str, value: Any, answer: Any) -> Operation:
    name = call.begin["f"]
    shown = answer if name in _READS else call.end.get("observed")
    results = {Outcome.OK: shown, Outcome.FAIL: call.end.get("error"), Outcome.UNKNOWN: None}
    arguments = {"read": [], "get": [], "cas": value}.get(name, [value])
    return Operation(
        key=key,
        process=str(call.begin["process"]),
        op=name,
        called_ns=call.called,
        returned_ns=call.returned,
        outcome=call.outcome,
        args=frozen(arguments),
        result=frozen(results[call.outcome]),
    )


def with_evidence(rows: Iterable[Operation], error: str | None) -> list[Operation]:
    """Return *rows* with every ``cas`` that failed with *error* taken for a failed comparison.

    Where and how a source tells it from a failure of the store differs; some do not.
    """
    return [
        replace(row, result=MISMATCH)
        if row.refused and row.op == "cas" and row.result == error
        else row
        for row in rows
    ]
