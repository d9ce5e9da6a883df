"""Commands that only look at the configuration run no code that it names."""

import os
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell

SHOP = """
from pathlib import Path
from dataclasses import dataclass
from kip30.config import setting, text
from kip30.driver import Backend

Path({ran!r}).touch()

@dataclass(frozen=True, kw_only=True)
class Settings:
    address: str = setting("plugin.shop.address", text, doc="Where it is")

class Shop(Backend):
    name = "shop"
    settings_class = Settings
    capabilities = frozenset()
    def __init__(self, context, settings): pass
    def describe(self): return {{}}
    def close(self): pass
    @classmethod
    def ddl(cls, settings): return ["CREATE SHOP\\n  (shelf)"]
"""
WAYS = {
    "class": {"plugin.locator.classname": "plugin_shop:Shop"},
    "name": {"plugin.backend": "shop"},
    "none": {},
}
LOOKING = (
    ("config",),
    ("config", "--effective"),
    ("config", "--check", "kip30.properties"),
    ("config", "--ddl"),
    ("backends",),
)


class Plugin:
    """A store in an additional path that leaves a mark when it is imported."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.site = shell.folder / "site"
        self.mark = shell.folder / "ran"
        info = self.site / "plugin_shop-1.0.dist-info"
        info.mkdir(parents=True)
        (self.site / "plugin_shop.py").write_text(SHOP.format(ran=str(self.mark)))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-shop\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[kip30.backends]\nshop = plugin_shop:Shop\n")

    def configure(self, way: str, **more: object) -> None:
        settings = {"plugin.additional.paths": self.site, "plugin.shop.address": "here", **more}
        self.shell.write({**WAYS[way], **settings})

    def have_run(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def plugin(shell: Shell) -> Plugin:
    return Plugin(shell)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_runs_nothing(plugin: Plugin, words: tuple[str, ...], way: str) -> None:
    plugin.configure(way)
    result = plugin.shell.finish(*words)
    assert not plugin.have_run()
    assert result.returncode == (Status.USAGE if "--ddl" in words else Status.OK), result.stderr
    if words != ("config",):
        assert b"--load-plugins" in result.stdout + result.stderr


@pytest.mark.parametrize("way", ["class", "name"])
@pytest.mark.parametrize("words", LOOKING[1:4], ids=" ".join)
def test_the_flag_runs_it(plugin: Plugin, words: tuple[str, ...], way: str) -> None:
    plugin.configure(way)
    result = plugin.shell.finish(*words, "--load-plugins")
    assert plugin.have_run()
    assert (result.returncode, result.stderr) == (Status.OK, b"")


def test_statements_have_their_line_breaks(plugin: Plugin) -> None:
    plugin.configure("class")
    result = plugin.shell.finish("config", "--ddl", "--load-plugins")
    assert result.stdout == b"CREATE SHOP\n  (shelf);\n"


@pytest.mark.parametrize("line", ["kip30 kv get ", "kip30 --set plugin.", "kip30 --backend "])
def test_completion_runs_nothing(plugin: Plugin, line: str) -> None:
    plugin.configure("class")
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    asked = {"_KIP30_COMPLETE": "bash_complete", **words}
    result = plugin.shell.finish(env={**os.environ, **asked})
    assert not plugin.have_run()
    assert b"Traceback" not in result.stderr


def test_a_check_without_plugins_lists_the_unchecked_settings(plugin: Plugin) -> None:
    plugin.configure("class", **{"plugin.shop.typo": 1})
    result = plugin.shell("config", "--check", "kip30.properties")
    assert (result.exit_code, result.stdout) == (Status.OK, "-\n")
    assert "not checked: plugin.shop.address, plugin.shop.typo" in result.stderr
    (found,) = plugin.shell.json("config", "--check", "kip30.properties")
    assert found["backend"] is None
    assert "plugin.shop.typo" in found["unchecked"]
    result = plugin.shell("config", "--check", "kip30.properties", "--load-plugins")
    assert result.exit_code == Status.USAGE
    assert "plugin.shop.typo" in result.stderr


def test_a_check_without_plugins_finds_mistakes_of_every_store(plugin: Plugin) -> None:
    plugin.configure("class", **{"plugin.session.timeout.ms": "10s"})
    result = plugin.shell("config", "--check", "kip30.properties")
    assert result.exit_code == Status.USAGE
    assert "write 10000" in result.stderr


def test_a_store_of_kip30_is_checked_whole_beside_additional_paths(plugin: Plugin) -> None:
    plugin.configure("none", **{"plugin.backend": "embedded", "plugin.embedded.notify": "pull"})
    result = plugin.shell("config", "--check", "kip30.properties")
    assert result.exit_code == Status.USAGE
    assert "did you mean poll?" in result.stderr
    assert not Path(plugin.shell.folder / "store").exists()
