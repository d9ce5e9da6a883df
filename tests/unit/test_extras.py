"""The command that installs a missing extra, by the way kip30 itself was installed."""

import json
from pathlib import Path

import pytest

from kip30.config.extras import how_to_install


def installed_from(folder: Path, source: object) -> None:
    info = folder / "kip30-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kip30\nVersion: 1\n")
    if source is not None:
        (info / "direct_url.json").write_text(json.dumps(source))


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'kip30[etcd]'"),
        ({"url": "file:///src/my%20kip30", "dir_info": {}}, "pip install '/src/my kip30[etcd]'"),
        (
            {"url": "file:///src/kip30", "dir_info": {"editable": True}},
            "pip install -e '/src/kip30[etcd]'",
        ),
        (
            {"url": "file:///w/kip30-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'kip30[etcd] @ file:///w/kip30-1-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.org/kip30", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'kip30[etcd] @ git+https://example.org/kip30'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_kip30_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: object, command: str
) -> None:
    installed_from(tmp_path, source)
    monkeypatch.syspath_prepend(tmp_path)
    assert how_to_install("etcd") == command
