"""The table of the full set's results."""

import json
from pathlib import Path

from .full_set_table import page

ORIGIN = {"commit": "0123456789abcdef", "dirty": False, "date": "2026-01-31", "minutes": 1.5}


def test_each_environment_has_its_last_result(tmp_path: Path) -> None:
    green = {"is_green": True, "tests": 7, "skipped": 1, "unstable": ["a.py::test_a"]}
    (tmp_path / "etcd.json").write_text(json.dumps(ORIGIN | green))
    (tmp_path / "lint.json").write_text(json.dumps(ORIGIN | {"dirty": True, "is_green": False}))
    rows = page(tmp_path).splitlines()
    assert "| etcd | green | 0123456789 | 2026-01-31 | 1.5 | 7 | 1 | 1 |" in rows
    assert rows[-1] == "* etcd: `test_a` in `a.py`"
    assert "| lint | red | 0123456789, changed | 2026-01-31 | 1.5 |  |  |  |" in rows
    assert "| cassandra | not run |  |  |  |  |  |  |" in rows


def test_an_environment_without_a_result_keeps_its_row(tmp_path: Path) -> None:
    file = tmp_path / "etcd.json"
    file.write_text(
        json.dumps(ORIGIN | {"is_green": True, "unstable": [f"a.py::test_a[{99 * 'x'}]"]})
    )
    before = page(tmp_path)
    file.unlink()
    assert page(tmp_path, before) == before
    file.write_text(json.dumps(ORIGIN | {"is_green": False}))
    after = page(tmp_path, before)
    assert "| etcd | red |" in after
    assert "| etcd | green |" not in after
    assert "test_a" not in after
