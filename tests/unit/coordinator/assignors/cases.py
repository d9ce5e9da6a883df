"""The published cases in `cases.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

Case = Mapping[str, Any]


def of_kind(kind: str) -> list[Any]:
    text = Path(__file__).with_name("cases.json").read_text(encoding="utf-8")
    cases = json.loads(text)["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] == kind]
