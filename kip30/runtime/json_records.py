"""Records of kip30's own that are JSON, and the keys of those about one service or group."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from kip30.errors import InvalidNameError
from kip30.names import INTERNAL, Key, check_id, escape, parse_key

UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""The errors of the functions here, and of code that takes fields which are not there."""


def record_key(namespace: str, name: str, what: str = "service") -> Key:
    """Return the key of the record in *namespace* of *name*, which is a *what*.

    Raises:
        InvalidNameError: The name is too long.
    """
    return parse_key(f"{namespace}/{escape(check_id(name, what))}")


def key_unless_internal(name: str, key: Callable[[str], Key]) -> Key | None:
    """Return the *key* of the record of *name*, a service or group; None if it has none.

    Those of kip30 itself have none, nor do those whose names are too long for a key.
    """
    if name.startswith(INTERNAL):
        return None
    try:
        return key(name)
    except InvalidNameError:
        return None


def fields_of(data: bytes, record_format: int) -> Mapping[str, Any]:
    """Return the fields of the record *data*, which must be of *record_format*.

    Raises:
        ValueError, RecursionError: It is no such record; the message says why.
    """
    record: object = json.loads(data)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  as the other reasons
    fields = cast("dict[str, Any]", record)
    if fields.get("format") != record_format:
        raise ValueError(f"it has the format {fields.get('format')!r}, not {record_format}")
    return fields


def whole(field: object) -> int:
    """Return *field* if it is a whole number; else raise `TypeError`."""
    if isinstance(field, bool) or not isinstance(field, int):
        raise TypeError(f"{field!r:.60} is no whole number")
    return field


def text(field: object) -> str:
    """Return *field* if it is text; else raise `TypeError`."""
    if not isinstance(field, str):
        raise TypeError(f"{field!r:.60} is no text")
    return field


def seconds(field: object) -> float:
    """Return *field* if it is a finite number; else raise `TypeError`."""
    if isinstance(field, bool) or not isinstance(field, int | float) or not math.isfinite(field):
        raise TypeError(f"{field!r:.60} is no number of seconds")
    return float(field)
