"""Names between others, in the order in which Cassandra keeps text."""

_LAST = 0x10FFFF
_BASE = _LAST + 1
_SURROGATES = range(0xD800, 0xE000)
"""What no text has; the code point below stands for all of them."""


def between(after: str, until: str | None) -> str:
    """Return a text above *after* and below *until* (None: the end), about halfway.

    There must be one. UTF-8 keeps the order of code points, so a text counts as a fraction whose
    digits are these.
    """
    length = max(len(after), len(until or "")) + 1
    low = _number(after, length)
    high = _BASE**length if until is None else _number(until, length)
    return _text((low + high) // 2, length) if high - low > _BASE else after + chr(1)


def _number(text: str, length: int) -> int:
    number = 0
    for point in map(ord, text.ljust(length, "\0")):
        number = number * _BASE + point
    return number


def _text(number: int, length: int) -> str:
    points = list[int]()
    for _ in range(length):
        number, point = divmod(number, _BASE)
        points.append(_SURROGATES.start - 1 if point in _SURROGATES else point)
    return "".join(map(chr, reversed(points))).rstrip("\0")
