"""Reading what the operator wrote: Java's format, Kafka's file, mappings, the default file."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.config import (
    Properties,
    Value,
    build,
    default_file,
    effective,
    home,
    load,
    path,
    paths,
    setting,
    text,
)
from kip30.config.loading import _KAFKA_MARKS, FURTHER_FILE
from kip30.errors import ConfigError
from kip30_backends.embedded.settings import default_directory

TELLING = {*_KAFKA_MARKS, "log.dirs", FURTHER_FILE}
"""Keys that tell how to take the others; Hypothesis tries words that it finds in the source."""


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def texts(properties: Properties) -> Mapping[str, str]:
    return {key: value.text for key, value in properties.items()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KIP30_CONFIG", raising=False)
    return tmp_path


def test_reads_javas_format_and_keeps_where_each_value_stands(here: Path) -> None:
    write(
        here / "kip30.properties",
        "# a comment\r\n"
        "\n"
        "plugin.backend = etcd\n"
        "plugin.etcd.endpoints: a:1,\\\n"
        "    b:2\n"
        "! another\n"
        "plugin.namespace na\\u00efve \\\\ \\t.\n"
        "plugin.backend=consul",
    )
    properties = load("kip30.properties")
    assert texts(properties) == {
        "plugin.backend": "consul",
        "plugin.etcd.endpoints": "a:1,b:2",
        "plugin.namespace": "naïve \\ \t.",
    }
    assert [value.origin for value in properties.values()] == [
        "kip30.properties:8",
        "kip30.properties:4",
        "kip30.properties:7",
    ]


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key not in TELLING), st.text()))
def test_reads_whatever_a_java_tool_writes(
    tmp_path_factory: pytest.TempPathFactory, written: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("java") / "x.properties"
    file.write_text(javaproperties.dumps(written), encoding="utf-8")
    assert texts(load(file)) == written


def test_reads_utf_8_with_and_without_a_mark(here: Path) -> None:
    file = here / "x.properties"
    for mark in (b"", b"\xef\xbb\xbf"):
        write(file, mark + "plugin.namespace=größe".encode())
        assert texts(load(file)) == {"plugin.namespace": "größe"}


def test_the_error_names_the_line_that_is_not_utf_8(here: Path) -> None:
    write(here / "x.properties", b"a=1\nb=gr\xf6\xdfe\n")
    with pytest.raises(ConfigError, match=r"x\.properties:2: not UTF-8; .* \\uXXXX"):
        load(here / "x.properties")


def test_the_error_names_the_line_of_a_broken_escape(here: Path) -> None:
    write(here / "x.properties", "a=1\nb=one\\\n  two\n\nc=\\u12\n")
    with pytest.raises(ConfigError, match=r"x\.properties:5: \\u takes four hex digits"):
        load(here / "x.properties")


def test_the_error_names_why_a_file_cannot_be_read(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.properties: No such file"):
        load(here / "gone.properties")
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        load(here)


def test_takes_what_python_code_writes() -> None:
    properties = load({"a": "x", "b": 10_000, "c": True, "d": 0.5, "e": 2e3, "f": Path("/x")})
    assert list(texts(properties).values()) == ["x", "10000", "true", "0.5", "2000", "/x"]
    assert properties["a"].origin == "mapping"


class Text(str, Enum):  # noqa: UP042  str() shows no value of such a one
    A = "x"


class Number(int, Enum):
    A = 3


def test_a_member_of_an_enum_is_its_value() -> None:
    assert list(texts(load({"a": Text.A, "b": Number.A})).values()) == ["x", "3"]


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        (3, "the path of a properties file or a mapping of its keys, not int: 3"),
        (b"x", "the path of a properties file or a mapping of its keys, not bytes: b'x'"),
        ({"plugin.backend": None}, "plugin.backend: a value must be .* not NoneType"),
        ({"plugin.backend": ["etcd"]}, "plugin.backend: a value must be .* not list"),
        ({b"plugin.backend": "etcd"}, "a key must be a str, not bytes"),
    ],
)
def test_refuses_what_no_operator_could_write(mapping: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(mapping)


def test_the_right_side_wins() -> None:
    both = load({"a": "1", "b": "1"}) | load({"b": "2"}, origin="--set")
    assert texts(both) == {"a": "1", "b": "2"}
    assert both["b"].origin == "--set"


def test_no_repr_shows_a_value(here: Path) -> None:
    properties = load(write(here / "x.properties", "plugin.etcd.password=hunter2"))
    shown = f"{properties!r} {properties} {properties['plugin.etcd.password']!r}"
    assert "plugin.etcd.password" in shown
    assert "hunter2" not in shown


# -- a Kafka broker's file


@pytest.mark.parametrize(
    "marks",
    [
        "broker.id=0",
        "broker.id.generation.enable=true",
        "node.id=1",
        "process.roles=broker",
        "zookeeper.connect=z\nlog.dirs=/d",
        "zookeeper.connect=z\nlog.dir=/d",
        "zookeeper.connect=z\nlisteners=PLAINTEXT://:9092",
    ],
)
def test_takes_its_own_keys_out_of_a_kafka_file(here: Path, marks: str) -> None:
    write(here / "server.properties", f"{marks}\nplugin.backend=etcd\nnum.io.threads=8\n")
    properties = load(here / "server.properties")
    assert texts(properties).get("plugin.backend") == "etcd"
    assert all(key.startswith(("plugin.", "zookeeper.")) for key in properties)


def test_zookeeper_keys_of_a_kafka_file_are_borrowed(here: Path) -> None:
    file = write(here / "server.properties", "broker.id=0\nzookeeper.connect=z:2181/kafka\n")
    value = Value("z:2181/kafka", f"{file}:2", is_foreign=True, folder=here)
    assert load(file) == {"zookeeper.connect": value}


_TIMEOUTS = "zookeeper.session.timeout.ms=18000\nzookeeper.connection.timeout.ms=20000\n"


@pytest.mark.parametrize("store", ["", "plugin.backend=zookeeper\n"])
def test_timeouts_of_a_kafka_file_count_where_ours_are_not_set(here: Path, store: str) -> None:
    ours = "plugin.connect.timeout.ms=5000\n"
    file = write(here / "server.properties", f"broker.id=0\n{store}{_TIMEOUTS}{ours}")
    properties = load(file)
    assert properties["plugin.session.timeout.ms"].text == "18000"
    assert properties["plugin.connect.timeout.ms"].text == "5000"


@pytest.mark.parametrize("lines", ["plugin.backend=etcd\nbroker.id=0\n", "num.io.threads=8\n"])
def test_timeouts_of_kafka_do_not_count_elsewhere(here: Path, lines: str) -> None:
    file = write(here / "server.properties", f"{lines}{_TIMEOUTS}")
    assert "plugin.session.timeout.ms" not in load(file)


def test_a_file_without_the_marks_is_not_kafkas(here: Path) -> None:
    file = write(here / "x.properties", "zookeeper.connect=z\nnum.io.threads=8\n")
    assert texts(load(file)) == {"zookeeper.connect": "z", "num.io.threads": "8"}


def test_a_kafka_file_may_name_ours_relative_to_itself_and_is_overridden(here: Path) -> None:
    (here / "config").mkdir()
    write(
        here / "config" / "server.properties",
        "broker.id=0\nplugin.configuration.file=kip30.properties\nplugin.backend=etcd\n",
    )
    write(here / "config" / "kip30.properties", "plugin.backend=consul\nmisspelt=1\n")
    properties = load("config/server.properties")
    assert texts(properties) == {"plugin.backend": "consul", "misspelt": "1"}
    assert properties["plugin.backend"].origin == "config/kip30.properties:1"


@dataclass(frozen=True, kw_only=True)
class PathSettings:
    one: Path = setting("plugin.shop.one", path, doc="a path")  # noqa: RUF009  it describes a field
    many: tuple[Path, ...] = setting("plugin.shop.many", paths, doc="paths")
    secret: str = setting("plugin.shop.secret", text, doc="a secret", secret=True)


PATHS = {
    "plugin.shop.one": "state",
    "plugin.shop.many": "plugins,/opt/plugins",
    "plugin.shop.secret": "${file:secret}",
}
RELATIVE = "".join(f"{key}={value}\n" for key, value in PATHS.items())


def places(properties: Properties) -> tuple[Path, tuple[Path, ...], str]:
    settings = build(PathSettings, properties)
    return settings.one, settings.many, settings.secret


@pytest.mark.parametrize("named", ["config/x.properties", "x.properties"])
def test_relative_paths_begin_at_the_folder_of_their_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    folder = (here / named).parent
    folder.mkdir(exist_ok=True)
    write(here / named, RELATIVE)
    write(folder / "secret", "of the file\n")
    properties = load(named)
    monkeypatch.chdir("/")
    expected = (folder / "state", (folder / "plugins", Path("/opt/plugins")), "of the file")
    assert places(properties) == expected
    assert places(load(here / named)) == expected
    assert effective(PathSettings, properties)["plugin.shop.one"] == str(folder / "state")


def test_relative_paths_of_a_further_file_begin_at_its_own_folder(here: Path) -> None:
    (here / "further").mkdir()
    write(here / "further" / "secret", "of the further file")
    write(here / "first.properties", f"{FURTHER_FILE}=further/x.properties\nplugin.shop.one=mine")
    lines = RELATIVE.splitlines()[1:]
    write(here / "further" / "x.properties", "\n".join(lines))
    one, many, secret = places(load("first.properties"))
    assert (one, many[0]) == (here / "mine", here / "further" / "plugins")
    assert secret == "of the further file"  # noqa: S105  the file's own text


def test_relative_paths_beside_kafkas_keys_begin_there_too(here: Path) -> None:
    (here / "config").mkdir()
    write(here / "config" / "secret", "s")
    write(here / "config" / "server.properties", f"broker.id=0\n{RELATIVE}")
    assert places(load("config/server.properties"))[0] == here / "config" / "state"


def test_relative_paths_begin_beside_the_link_by_which_a_file_is_named(here: Path) -> None:
    """As a mounted volume of Kubernetes has it: the folder's name changes with each update."""
    (here / "..2026").mkdir()
    write(here / "..2026" / "x.properties", "plugin.shop.one=state")
    (here / "x.properties").symlink_to("..2026/x.properties")
    assert load("x.properties")["plugin.shop.one"].folder == here


def test_relative_paths_of_a_mapping_begin_at_the_working_directory(here: Path) -> None:
    write(here / "secret", "s")
    assert places(load(PATHS)) == (Path("state"), (Path("plugins"), Path("/opt/plugins")), "s")


def test_relative_paths_of_a_pipe_begin_at_the_working_directory(here: Path) -> None:
    file = write(here / "x.properties", "plugin.shop.one=state")
    with file.open() as opened:
        for name in (f"/dev/fd/{opened.fileno()}", f"/proc/self/fd/{opened.fileno()}"):
            opened.seek(0)
            assert load(name)["plugin.shop.one"].folder is None


@pytest.mark.parametrize("named", ["", "relative"])
def test_a_home_that_is_no_path_is_that_of_the_user_database(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("HOME", named)
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    mine = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert home() == mine
    assert path.read("~/x") == mine / "x"
    assert default_directory() == mine / ".local" / "state" / "kip30"


def test_the_further_file_must_be_there_and_is_the_last(here: Path) -> None:
    server = write(here / "server.properties", "plugin.configuration.file=further.properties\n")
    with pytest.raises(ConfigError, match=r"further\.properties: No such file"):
        load(server)
    write(here / "further.properties", "\nplugin.configuration.file=server.properties\n")
    with pytest.raises(ConfigError, match=r"plugin.configuration.file .*further\.properties:2"):
        load(server)


# -- the default file


def test_a_further_file_in_a_home_that_is_not_there_is_named(here: Path) -> None:
    file = write(here / "server.properties", f"{FURTHER_FILE} = ~nobody-has-this-name/x\n")
    with pytest.raises(ConfigError, match=rf"{FURTHER_FILE} \(.*:1\): no home directory for '~'"):
        load(file)


def test_the_default_file_is_the_named_one_else_the_one_here_else_none(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_file() is None
    assert load() == {}
    write(here / "kip30.properties", "plugin.namespace=here")
    assert texts(load()) == {"plugin.namespace": "here"}
    monkeypatch.setenv("KIP30_CONFIG", str(write(here / "other", "plugin.namespace=other")))
    assert texts(load()) == {"plugin.namespace": "other"}


def test_a_named_default_file_must_be_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIP30_CONFIG", str(here / "gone"))
    with pytest.raises(ConfigError, match="gone: No such file"):
        load()
