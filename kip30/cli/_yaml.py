"""YAML without a library: the values of JSON, in a form that YAML 1.1 and 1.2 read alike."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_ESCAPE = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\u(d[89a-f]..)|\\.")
"""An escape of JSON: a pair of surrogates, a single one, or another."""

_NO_POINT = re.compile(r"^(-?\d+)e")


def yaml_document(record: Mapping[str, Any]) -> str:
    """Return *record* as a YAML document: a line for each field, whose names are plain words.

    All of it is ASCII. YAML has no surrogates: a single one becomes the text that a table shows.
    """
    fields = (f"{name}: {_flow(value)}" for name, value in record.items())
    return "\n".join(("---", *fields))


def _flow(value: Any) -> str:
    """Return *value* on one line: as JSON, but for characters and numbers that YAML reads badly."""
    match value:
        case dict():
            members = cast("dict[str, Any]", value).items()
            return f"{{{', '.join(f'{_flow(name)}: {_flow(one)}' for name, one in members)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_flow, cast('Sequence[Any]', value)))}]"
        case str():
            return _ESCAPE.sub(_escape, json.dumps(value))
        case float():
            # YAML 1.1 takes a number with an exponent for text, unless it has a point.
            return _NO_POINT.sub(r"\1.0e", json.dumps(value))
        case _:
            return json.dumps(value)


def _escape(escape: re.Match[str]) -> str:
    high, low, single = escape.groups()
    if high:
        character = bytes.fromhex(high + low).decode("utf-16-be")
        return f"\\U{ord(character):08x}"
    return f"\\\\u{single}" if single else escape[0]
