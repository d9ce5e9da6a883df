"""Keys and values that stores, files and Spark could each get wrong."""

import random
from collections.abc import Iterator

_NAMES = [
    *(
        "a",
        "a\0",
        "a\x01",
        "a b",
        "a-b",
        "a.b",
        "a0",
        "ab",
        "b",
        " ",
        "  a",
        "a ",
        "\t",
        "\n",
        "\r\n",
    ),
    *("é", "e\u0301", "ÿ", "\u2028", "\ufeff", "\ufffd", "\U0001f511", "İ", "ß", "ﬁ", "日本語"),
    *(
        "..",
        ".",
        "...",
        "=",
        "=2F",
        "%2F",
        "%",
        "~",
        "*",
        "?",
        "[a]",
        "{a}",
        "$",
        "${env:HOME}",
        "'",
    ),
    *("\r\n", "'", '"', "`", "\\", "|", ";", "#", "&", "<b>", "null", "NULL", "None", "true"),
    *(
        "0",
        "-1",
        "1e3",
        "NaN",
        "CON",
        "__HIVE_DEFAULT_PARTITION__",
        "key=1",
        "part-00000",
        "_SUCCESS",
        ".crc",
    ),
    "k" * 255,
    "é" * 42,  # 252 bytes, escaped
]
_NAMESPACES = [
    "",
    "n",
    "a",
    "a/b",
    "a-b",
    "a.b",
    "é",
    "n/" + "d/" * 20 + "e",
    "x" * 255,
    "x=2F",
    "wave=0",
]
_VALUES = [
    b"",
    b"\0",
    b"\x01",
    b"\x01" + b"\0" * 10,  # as long as kip30's envelope, and begins like it
    b"v" * 100,
    bytes(range(256)),
    "ä\u0308\U0001f511".encode(),
    b"\xff\xfe",
    b"null",
]
_LARGE = 200 * 1024


def corpus() -> dict[str, bytes]:
    """Return some 300 values by their keys."""
    chosen = random.Random(30)  # noqa: S311  no secret
    values = {f"{one}/{name}" if one else name: b"" for one, name in _pairs(chosen)}
    for key in values:
        values[key] = chosen.choice(_VALUES)
    large = chosen.choices(sorted(values), k=3)
    return values | {key: chosen.randbytes(_LARGE) for key in large}


def _pairs(chosen: random.Random) -> Iterator[tuple[str, str]]:
    for number, namespace in enumerate(_NAMESPACES):
        for name in _NAMES if number < 2 else chosen.sample(_NAMES, 18):
            yield namespace, name
    yield "a//b", "c"
    yield "a/", "b"
