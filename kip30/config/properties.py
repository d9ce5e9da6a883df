"""Properties: values by key, each with its origin, such as a file and a line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from typing_extensions import override

from kip30.errors import ConfigError

Written: TypeAlias = str | int | float | bool | Path
"""A value as Python code may give it."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    Attributes:
        text: As written, references not expanded.
        origin: ``file:line``, or another source.
        is_foreign: Another program's key, which is no mistake if nothing here knows it.
        untrusted_reason: Why other users could have written it; empty if they could not. Such a
            value may neither name code or files nor hold references.
        folder: Where relative paths in it begin: the folder of the file that holds it. None for the
            working directory.
    """

    text: str = field(repr=False)
    origin: str
    is_foreign: bool = False
    untrusted_reason: str = ""
    folder: Path | None = None

    def place(self, path: Path) -> Path:
        """Return *path*, written in this value, from where it begins."""
        return self.folder / path if self.folder else path


class Properties(Mapping[str, Value]):
    """Values by key, immutable. Its repr shows keys and origins, never a value."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        """Keep a copy of *values*."""
        self._values = dict(values)

    @override
    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: "Properties") -> "Properties":
        """Return both together; *other* wins where both have a key."""
        return Properties({**self._values, **other._values})

    @override
    def __repr__(self) -> str:
        return f"Properties({ {key: value.origin for key, value in self._values.items()} })"


def as_text(value: object, key: str) -> str:
    """Return *value* as an operator would write it.

    Raises:
        ConfigError: It has none of the types of `Written`.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else str(value)
    # The value of an enum's member: str() returns its name.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Path):
        return str(value)
    raise ConfigError(
        f"{key}: a value must be text, a number or a path, not {type(value).__name__}"
    )
