"""Keys, namespaces, ids: the rules for names, and the one escape for stores with paths.

Names are compared code point by code point; nothing is normalised. Two names that look alike may
still differ.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from typing_extensions import override

from kip30.errors import InvalidNameError

MAX_NAME_BYTES = 255
"""Longest name in bytes after escaping, on every store."""

INTERNAL = "kip30."
"""Prefix of the names of kip30's own services, groups and namespaces."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_DOT = ord(".")
_LITERAL = bytes(_KEPT) + b"."
_NOT_LITERAL = (b"//", b"/.", b"..")


class Key(NamedTuple):
    """A storage key: everything before the last ``/`` is the namespace.

    The namespace is also the listenable key set, one level deep: ``a/b/c`` is
    in ``a/b`` and not in ``a``. A key without ``/`` is in the namespace ``""``.
    """

    namespace: str
    name: str

    @override
    def __str__(self) -> str:
        """Return the key as the user wrote it."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def parse_key(text: str) -> Key:
    """Split and check a key.

    Raises:
        InvalidNameError: Not a string, empty, with a leading or trailing ``/``,
            not encodable, or with a part longer than `MAX_NAME_BYTES`.
    """
    return _split(_require_str(text, "key"))


def check_namespace(text: str) -> str:
    """Check a namespace to list or to observe, which may be ``""``, and return it.

    A trailing ``/`` is refused because ``config/`` nearly always means ``config``. The price: keys
    with an empty segment, such as ``a//b``, can be read and written but not listed.

    Raises:
        InvalidNameError: As for `parse_key`.
    """
    plain = _require_str(text, "namespace")
    if plain.endswith("/"):
        raise InvalidNameError(f"namespace {text!r} ends in '/': leave the trailing slash out")
    return _namespace(plain)


def _namespace(text: str) -> str:
    if text.startswith("/"):
        raise InvalidNameError(f"namespace {text!r} starts with '/': leave the slash out")
    return _check(text, "namespace") if text else text


def check_id(text: str, what: str) -> str:
    """Check a group, service, member or candidate and return it. *what* names it in errors.

    Raises:
        InvalidNameError: Not a string, empty, not encodable, or too long.
    """
    return _check(_require_str(text, what), what)


def _require_str(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidNameError(f"{what} must be a str, not {type(text).__name__}")
    # A plain one: a member of an enum equals its text, but an f-string shows another.
    return str.__str__(text)


@lru_cache(maxsize=8192)
def _split(text: str) -> Key:
    namespace, slash, name = text.rpartition("/")
    if text and not name:
        raise InvalidNameError(f"key {text!r} ends in '/': give a name after it")
    if slash and not namespace:
        raise InvalidNameError(f"key {text!r} starts with '/': leave the slash out")
    return Key(_namespace(namespace), _check(name, "key"))


@lru_cache(maxsize=8192)
def _check(text: str, what: str) -> str:
    if not text:
        raise InvalidNameError(f"{what} is empty: give at least one character")
    size = len(escape(_encodable(text, what)))
    if size > MAX_NAME_BYTES:
        raise InvalidNameError(
            f"{what} {text[:20]!r}… has {size} bytes after escaping: {MAX_NAME_BYTES} is the limit"
        )
    return text


def _encodable(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidNameError(
            f"{what} {text!r} holds a lone surrogate at {error.start}: it cannot be encoded"
        ) from error
    return text


def escape(text: str) -> str:
    """Return *text* as one safe path segment; injective over all strings.

    ASCII letters, digits, ``_``, ``-`` and a ``.`` that neither begins the
    segment nor follows another kept ``.`` stay; every other byte of the UTF-8
    form becomes ``=XX``; the empty string becomes ``=``.
    """
    if _PLAIN.fullmatch(text):
        return str.__str__(text)
    if not text:
        return "="
    out: list[str] = []
    for byte in text.encode():
        inner_dot = byte == _DOT and out and out[-1] != "."
        out.append(chr(byte) if byte in _KEPT or inner_dot else f"={byte:02X}")
    return "".join(out)


def unescape(segment: str) -> str:
    """Return the text whose escaped form is *segment*.

    Raises:
        InvalidNameError: No text escapes to *segment*.
    """
    if _PLAIN.fullmatch(segment):
        return segment
    raw = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), segment.encode())
    text = "" if segment == "=" else raw.decode("utf-8", "replace")
    if escape(text) != segment:
        raise InvalidNameError(f"{segment!r} is not an escaped name")
    return text


def unescape_all(segments: Sequence[str]) -> list[str]:
    """Return the texts whose escaped forms are *segments*, many at once in a few passes of C.

    Raises:
        InvalidNameError: No text escapes to one of them.
    """
    others = "/".join(segments).encode().translate(None, bytes(_KEPT))
    if others == b"/" * (len(segments) - 1) and all(segments):
        return list(segments)
    return list(map(unescape, segments))


def keys_in(namespace: str, names: Iterable[str]) -> Iterator[str]:
    """Return the keys that *names* have in *namespace*, as their users write them."""
    return map((f"{namespace}/" if namespace else "").__add__, names)


def keys_at(paths: Sequence[bytes], root: bytes) -> list[bytes] | None:
    """Return the keys whose values are at *paths*, many at once.

    Args:
        paths: Each has a ``/`` in it.
        root: What the paths of all values begin with.

    Returns:
        None if a name is escaped or invalid, if one is not below a namespace, or if *paths* are not
        sorted: then each must be read by itself.
    """
    keys: list[bytes] = []
    if list(paths) != sorted(paths):
        return None
    for parent, some in _by_parent(paths):
        names = [path[len(parent) + 1 :] for path in some]
        begin = _begin_of_names(root, parent) if _are_literal(names) else None
        if begin is None:
            return None
        keys += [begin + name for name in names]
    return keys


@lru_cache(maxsize=8192)
def begin_of_keys(root: bytes, parent: bytes) -> bytes:
    """Return the prefix, as users write it, of the keys with values below the path *parent*.

    Raises:
        InvalidNameError: *parent* is not *root* and the escaped form of a namespace.
    """
    if not parent.startswith(root):
        raise InvalidNameError(f"{parent!r} is not below {root!r}")
    namespace = unescape(parent[len(root) :].decode("ascii", "backslashreplace"))
    # It must be a key that a user can write, or two keys of the store would look the same to users.
    if namespace and parse_key(f"{namespace}/k").namespace != namespace:
        raise InvalidNameError(f"{parent!r} is not the place of a namespace")
    return f"{namespace}/".encode() if namespace else b""


def _begin_of_names(root: bytes, parent: bytes) -> bytes | None:
    try:
        return begin_of_keys(root, parent)
    except InvalidNameError:
        return None


def _by_parent(paths: Sequence[bytes]) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Cut sorted *paths* where the part before the last ``/`` changes."""
    start = 0
    while start < len(paths):
        parent = paths[start][: paths[start].rindex(b"/")]
        end = bisect_left(paths, parent + b"0", start)  # "0" follows "/"
        yield parent, paths[start:end]
        start = end


def _are_literal(names: Sequence[bytes]) -> bool:
    """Return whether all *names* escape to themselves and are short, in a few passes of C."""
    joined = b"/%b/" % b"/".join(names)
    return (
        joined.translate(None, _LITERAL) == b"/" * (len(names) + 1)
        and not any(part in joined for part in _NOT_LITERAL)
        and max(map(len, names)) <= MAX_NAME_BYTES
    )
