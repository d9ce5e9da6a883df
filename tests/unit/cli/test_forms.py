"""The forms of records: `-o table|tsv|json|yaml`, and `--no-headers`."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kip30.cli._exit_codes import Status
from kip30.cli._output import Output
from kip30.cli._schema import ERROR, SCHEMA
from kip30.cli._yaml import yaml_document

from .shell import Shell, ended, line_of
from .test_coordinate import coordinate
from .test_output import ANSWERS, LEADING, NARROW, WATCHES, expect_fields, on_terminal

HOSTILE = (
    "tab\there\nline \x1b[2J \x7f\x85\x9f \u2028\u202e \ufeff \\ud83d \U0001f600 'q' \"q\" : #"
)
_FIELD = re.compile(r"([a-z][a-z0-9_]*): ([ -~]+)")
_ESCAPE = re.compile(r'\\(?:U([0-9a-f]{8})|u([0-9a-f]{4})|["\\bfnrt])')
_WORDS_OF_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def yaml_documents(written: str) -> list[dict[str, Any]]:
    """Return the documents of *written*; refuse what versions 1.1 and 1.2 do not read alike."""
    found: list[dict[str, Any]] = []
    for line in written.splitlines():
        if line == "---":
            found.append({})
            continue
        field = _FIELD.fullmatch(line)
        assert field, line
        name, value = field.groups()
        assert name not in {*found[-1], *_WORDS_OF_YAML}
        found[-1][name] = json.loads(_ESCAPE.sub(_of_json, value))
    return found


def _of_json(escape: re.Match[str]) -> str:
    """Return an escape of YAML as JSON has it."""
    long, short = escape.groups()
    if long:
        return json.dumps(chr(int(long, 16)))[1:-1]
    assert not (short and 0xD800 <= int(short, 16) < 0xE000), escape
    return escape[0]


def is_title(field: str) -> bool:
    return bool(re.fullmatch(r"[A-Z][A-Z ]*", field))


# -- every command, in each form


@pytest.fixture
def filled(shell: Shell) -> Shell:
    shell("kv", "put", "n/k", "x")
    return shell


@pytest.mark.parametrize("command", ANSWERS)
def test_yaml_has_the_fields_of_json(filled: Shell, command: str) -> None:
    result = filled(*ANSWERS[command], "-o", "yaml")
    assert result.exit_code == Status.OK, result.stderr
    documents = yaml_documents(result.stdout)
    assert documents
    for document in documents:
        expect_fields(document, SCHEMA[command])


@pytest.mark.parametrize("command", ANSWERS)
def test_tsv_has_titles_and_as_many_fields_in_each_line(filled: Shell, command: str) -> None:
    result = filled(*ANSWERS[command], "-o", "tsv")
    assert result.exit_code == Status.OK, result.stderr
    titles, *lines = (line.split("\t") for line in result.stdout.splitlines())
    assert all(map(is_title, titles))
    assert {len(fields) for fields in lines} <= {len(titles)}
    assert lines or command == "group list"


@pytest.mark.parametrize("command", ANSWERS)
def test_a_table_in_a_pipe_is_aligned_below_its_titles(filled: Shell, command: str) -> None:
    result = filled(*ANSWERS[command], "-o", "table")
    assert result.exit_code == Status.OK, result.stderr
    title, *lines = result.stdout.splitlines()
    columns = [found.start() for found in re.finditer(r"(?<=  )[A-Z]", title)]
    assert is_title(title.replace("  ", ""))
    # A namespace in the tree has a name and nothing else.
    rows = [line for line in lines if not line.endswith("/")]
    for row in rows:
        assert all(row[column - 2 : column] in {"  ", ""} for column in columns), row
    assert rows or command == "group list"


@pytest.mark.parametrize("command", ["kv list", "config", "doctor", "prune", "kv tree"])
@pytest.mark.parametrize("form", ["tsv", "table"])
def test_no_headers_leaves_out_the_titles_alone(filled: Shell, command: str, form: str) -> None:
    words = (*ANSWERS[command], "-o", form)
    titles, *lines = filled(*words).stdout.splitlines()
    bare = filled(*words, "--no-headers").stdout.splitlines()
    assert all(map(is_title, re.split(r"\t|  +", titles.rstrip())))
    assert [line.split()[:1] for line in bare] == [line.split()[:1] for line in lines]
    assert len(filled(*ANSWERS[command], "--json", "--no-headers").stdout) > 2


def test_without_a_form_no_headers_changes_nothing_in_a_pipe(filled: Shell) -> None:
    for words in (("config",), ("kv", "list", "n"), ("kv", "get", "n/k")):
        assert filled(*words, "--no-headers").stdout == filled(*words).stdout


# -- what a form keeps


def test_a_table_in_a_pipe_cuts_and_folds_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "long " * 200 + "end"
    with ended(shell.start("group", "join", "g", "--id", "m" * 200, "--data", long)) as member:
        line_of(member.stderr)
        with ended(shell.start("group", "join", "g", "--id", "中文")) as other:
            line_of(other.stderr)
            title, first, wide = shell("group", "list", "g", "-o", "table").stdout.splitlines()
            other.terminate()
        member.terminate()
    assert title == f"{'MEMBER':<200}  DATA"
    assert first == f"{'m' * 200}  {long}"
    assert wide == "中文"


def test_on_a_terminal_a_table_has_titles_unless_told_otherwise(filled: Shell) -> None:
    titled = on_terminal(filled, 200, "config", "-o", "table")
    assert titled == on_terminal(filled, 200, "config")
    assert titled[1:] == on_terminal(filled, 200, "config", "--no-headers")
    assert on_terminal(filled, 80, "kv", "list", "n") == ["n/k"]
    assert on_terminal(filled, 80, "kv", "list", "n", "-o", "table") == ["KEY", "n/k"]
    assert on_terminal(filled, 80, "kv", "tree", "-o", "table")[1:] == on_terminal(
        filled, 80, "kv", "tree"
    )


def test_a_form_holds_on_a_terminal_too(filled: Shell) -> None:
    lines = on_terminal(filled, NARROW, "config", "--effective", "-o", "tsv")
    assert lines == filled("config", "--effective", "-o", "tsv").stdout.splitlines()
    assert on_terminal(filled, NARROW, "kv", "get", "n/k", "-o", "yaml")[:2] == [
        "---",
        'key: "n/k"',
    ]


def test_bare_values_stay_unless_a_form_is_chosen(filled: Shell) -> None:
    value = b"a\tb\n\xff"
    filled("kv", "set", "n/k", "-", stdin=value)
    assert filled("kv", "get", "n/k").stdout_bytes == value
    assert filled("kv", "get", "n/k", "-o", "tsv", "--no-headers").stdout == (
        "n/k\t3\ta\\tb\\n\\xff\n"
    )
    (document,) = yaml_documents(filled("kv", "get", "n/k", "-o", "yaml").stdout)
    assert document == {"key": "n/k", "value_base64": "YQliCv8=", "version": "3"}
    assert filled("kv", "delete", "n/k").stdout == ""


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (("kv", "list", "none"), "KEY\n"),
        (("kv", "list", "-r", "none"), "KEY\n"),
        (("services",), "SERVICE\tLEADER\tEPOCH\tWAITING\n"),
        (("groups",), "GROUP\tMEMBERS\tBANNED\n"),
        (("config", "--ddl"), "STATEMENT\n"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_an_empty_listing_has_titles_and_nothing_else(
    filled: Shell, words: tuple[str, ...], titles: str
) -> None:
    assert filled(*words).stdout == ""
    assert on_terminal(filled, 80, *words) == []
    assert filled(*words, "-o", "tsv").stdout == titles
    assert filled(*words, "-o", "table").stdout.split() == titles.split()
    for more in (("-o", "json"), ("-o", "yaml"), ("-o", "tsv", "--no-headers")):
        assert filled(*words, *more).stdout == ""
    assert filled(*words, "-o", "table", "--no-headers").stdout == ""


# -- YAML of hostile text


def test_hostile_text_is_in_yaml_what_it_is_in_json(filled: Shell) -> None:
    filled("kv", "set", "n/k", "-", stdin=HOSTILE.encode())
    written = filled("kv", "get", "n/k", "-o", "yaml").stdout
    assert written.isascii()
    assert "\\U0001f600" in written
    (record,) = filled.json("kv", "get", "n/k")
    assert yaml_documents(written) == [record]
    assert record["value"] == HOSTILE


def test_every_character_is_read_back() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10FFFF, 251)]))
    assert yaml_documents(yaml_document({"text": text})) == [{"text": text}]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\ud800", r'"\\ud800"'),
        ("\ude00\ud83d", r'"\\ude00\\ud83d"'),
        ("\\\ud83d\ude00", r'"\\\U0001f600"'),
        ("\\ud83d\\ude00", r'"\\ud83d\\ude00"'),
        ("\ud83d\ud83d\ude00", r'"\\ud83d\U0001f600"'),
    ],
)
def test_half_a_pair_of_surrogates_is_the_text_of_a_table(text: str, written: str) -> None:
    assert yaml_document({"text": text}) == f"---\ntext: {written}"


def test_a_path_whose_bytes_are_no_text_is_printed_in_each_form(shell: Shell) -> None:
    shell.configure(plugin_embedded_directory="/a\\udcffb")
    words = ("config", "--effective")
    in_json = {row["key"]: row["value"] for row in shell.json(*words)}
    assert in_json["plugin.embedded.directory"] == "/a\udcffb"
    in_yaml = {row["key"]: row for row in yaml_documents(shell(*words, "-o", "yaml").stdout)}
    assert in_yaml["plugin.embedded.directory"]["value"] == "/a\\udcffb"
    assert "plugin.embedded.directory\t/a\\udcffb\t" in shell(*words, "-o", "tsv").stdout


def test_values_of_all_types_are_read_back() -> None:
    record = {
        "number": 12,
        "ratio": 0.5,
        "truth": True,
        "nothing": None,
        "list": ["a: b", {"no": [], "deep\n": {}}],
        "object": {"y": 1, "~": "null"},
    }
    assert yaml_documents(yaml_document(record)) == [record]


@pytest.mark.parametrize("number", [1e-05, -2e-09, 1e16, 1.5e-07, 3.25, 0.0])
def test_a_number_has_a_point_without_which_yaml_takes_it_for_text(number: float) -> None:
    written = yaml_document({"n": number}).removeprefix("---\nn: ")
    assert float(written) == number
    assert "." in written


def test_the_names_of_fields_are_plain_words_in_yaml() -> None:
    names = {field.name for fields in SCHEMA.values() for field in fields}
    assert all(re.fullmatch("[a-z][a-z_]*", name) for name in names)
    assert not names & _WORDS_OF_YAML


# -- watches


@pytest.fixture
def crowd(filled: Shell) -> Iterator[Shell]:
    with (
        ended(filled.start("group", "join", "g", "--id", "m", "--data", "d")) as member,
        ended(filled.start(*LEADING)) as runner,
    ):
        line_of(member.stderr)
        yield filled
        for process in (runner, member):
            process.terminate()


@pytest.mark.parametrize(
    ("command", "titles", "first"),
    [
        ("group watch", "CHANGE\tMEMBER\tDATA", "+\tm\td"),
        ("kv watch", "VERSION\tVALUE", "2\tx"),
        ("kv watch --keys", "CHANGE\tKEY", "+\tn/k"),
    ],
)
def test_a_watch_prints_its_titles_once_and_first(
    crowd: Shell, command: str, titles: str, first: str
) -> None:
    for words, expected in (
        (("-o", "tsv"), [titles, first]),
        (("-o", "tsv", "--no-headers"), [first]),
        ((), [first]),
    ):
        with ended(crowd.start(*WATCHES[command], *words)) as watch:
            assert [line_of(watch.stdout) for _ in expected] == expected
            watch.terminate()
    with ended(crowd.start(*WATCHES[command], "-o", "table")) as watch:
        shown, row = line_of(watch.stdout), line_of(watch.stdout)
        assert shown.split() == titles.split("\t")
        assert row.split() == first.split("\t")
        assert row.index(row.split()[1]) == shown.index(titles.split("\t")[1])
        watch.terminate()


def test_a_line_of_a_watch_has_all_fields_in_tsv(shell: Shell) -> None:
    for words, line in (
        (("kv", "watch", "none"), "-"),
        (("kv", "watch", "none", "-o", "tsv", "--no-headers"), "-\t"),
        (("leader", "s", "--watch", "-o", "tsv", "--no-headers"), "-\t\t"),
    ):
        with ended(shell.start(*words)) as watch:
            assert line_of(watch.stdout) == line
            watch.terminate()


def test_a_watch_of_a_divided_group_prints_titles_above_each_state(shell: Shell) -> None:
    words = ("coordinate-status", "g", "--watch", "-o", "tsv")
    with ended(shell.start(*words)) as watch:
        titles = line_of(watch.stdout)
        assert titles == "MEMBER\tINSTANCE\tSINCE\tSHARE"
        assert [line_of(watch.stdout) for _ in range(2)] == ["-\t\t\t", ""]
        with ended(shell.start(*coordinate("--shards=1", "sleep", "60"))) as member:
            assert line_of(watch.stdout) == titles
            member.terminate()
        watch.terminate()


@pytest.mark.parametrize("command", WATCHES)
def test_a_watch_prints_a_document_for_each_event(crowd: Shell, command: str) -> None:
    with ended(crowd.start(*WATCHES[command], "-o", "yaml")) as watch:
        lines = [line_of(watch.stdout) for _ in range(1 + len(SCHEMA[command]))]
        watch.terminate()
    (document,) = yaml_documents("\n".join(lines))
    expect_fields(document, SCHEMA[command])


# -- errors


@pytest.mark.parametrize(
    "form",
    [
        ("-o", "yaml"),
        ("-oyaml",),
        ("--output", "yaml"),
        ("--output=yaml",),
        ("-o", "json"),
        ("--json", "-o", "json"),
        ("--no-headers", "-o", "json"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "words",
    [("kv", "get", "n/none"), ("kv", "get", "n/k", "--nonsense"), ("kv", "gett", "n/k")],
    ids=" ".join,
)
def test_errors_beside_objects_are_json(
    shell: Shell, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    shell("kv", "put", "n/k", "x")
    result = shell.finish(*words, *form)
    assert result.stdout == b""
    (line,) = result.stderr.decode().splitlines()
    expect_fields(json.loads(line)["error"], ERROR)


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "get", "n/none", "-o", "tsv"),
        ("kv", "get", "n/k", "-o", "table", "--nonsense"),
        ("kv", "get", "n/k", "-o", "xml"),
        ("kv", "get", "n/k", "--nonsense", "--", "-o", "json"),
        ("kv", "export", "-o", "json"),
    ],
    ids=" ".join,
)
def test_other_errors_are_lines(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.finish(*words)
    assert (result.returncode != Status.OK, result.stdout) == (True, b"")
    assert result.stderr.startswith(b"kip30: ")


def test_a_form_that_is_not_there_is_refused_with_those_that_are(shell: Shell) -> None:
    result = shell("kv", "list", "-o", "xml")
    assert result.exit_code == Status.USAGE
    assert "'table', 'tsv', 'json', 'yaml'" in result.stderr


@pytest.mark.parametrize("form", ["yaml", "tsv", "table"])
def test_json_and_another_form_are_refused_before_anything_is_read(shell: Shell, form: str) -> None:
    for words in (("--json", "-o", form), ("-o", form, "--json")):
        reading, writing = os.pipe()
        os.write(writing, b"typed")
        result = shell.finish("kv", "put", "n/k", "-", *words, stdin=reading)
        assert (result.returncode, result.stdout) == (Status.USAGE, b"")
        assert b"contradict each other" in result.stderr
        assert os.read(reading, 10) == b"typed"
        os.close(writing)
        os.close(reading)
    assert not (shell.folder / "store").exists()


def test_a_form_that_was_not_chosen_has_no_objects() -> None:
    assert not Output().is_chosen
    assert not Output().is_objects
