"""Codecs that turn values into bytes and back: text, bytes as they are, JSON, or your own."""

import json
from typing import Any, Protocol, TypeVar

from typing_extensions import override

from kip30.errors import CodecError, UsageError

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns values of one type into bytes and back. Must be thread-safe."""

    name: str

    def encode(self, value: T) -> bytes:
        """Return *value* as bytes, never a view of something that may still change.

        Raises:
            CodecError: *value* is not of this codec's type.
        """
        ...

    def decode(self, data: bytes) -> T:
        """Return a fresh value for *data*.

        Raises:
            CodecError: *data* was not written by this codec.
        """
        ...


def check_codec(codec: object) -> None:
    """Raise unless *codec* is a codec.

    Raises:
        UsageError: It is a class, or lacks a method of `Codec`.
    """
    methods = (getattr(codec, name, None) for name in ("encode", "decode"))
    if isinstance(codec, type) or not all(map(callable, methods)):
        raise UsageError(
            f"codec must be a Codec, not {codec!r:.60}: use kip30.STR, kip30.BYTES,"
            " kip30.JSON or an object with encode(value) and decode(data)"
        )


class _Text(Codec[str]):
    name = "str"

    @override
    def encode(self, value: str) -> bytes:
        _require(value, str)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(f"value holds a lone surrogate at {error.start}") from error

    @override
    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"stored bytes are not UTF-8 ({error}): read with BYTES") from error


class _Bytes(Codec[bytes]):
    name = "bytes"

    @override
    def encode(self, value: bytes) -> bytes:
        _require(value, bytes, bytearray, memoryview)
        return bytes(value)

    @override
    def decode(self, data: bytes) -> bytes:
        return data


class _Json(Codec[Any]):
    name = "json"

    @override
    def encode(self, value: Any) -> bytes:
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"value is not JSON: {error}") from error

    @override
    def decode(self, data: bytes) -> Any:
        try:
            text = data.decode(json.detect_encoding(data), "surrogatepass")
            return _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"stored bytes are not JSON ({error}): read with BYTES") from error


def _refuse(constant: str) -> None:
    """Refuse NaN and the infinities, which Python reads although they are not JSON."""
    raise ValueError(f"{constant} is not a number of JSON")


# `json.loads` makes one for each value if it is to refuse a constant.
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _require(value: object, *kinds: type[object]) -> None:
    if not isinstance(value, kinds):
        raise CodecError(
            f"value must be {kinds[0].__name__}, not {type(value).__name__}: convert it, or use a"
            " codec for its type, such as kip30.JSON"
        )


STR: Codec[str] = _Text()
"""UTF-8 text; the default, as in KIP-30."""

BYTES: Codec[bytes] = _Bytes()
"""Bytes, stored as they are."""

JSON: Codec[Any] = _Json()
"""Any value that JSON can express; NaN and infinities are refused."""
