"""Declaring settings, and the reference made from the declarations."""

import dataclasses
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

from kip30.config.parsers import Parser, path, paths
from kip30.config.properties import Value, Written, as_text

T = TypeVar("T")

Default: TypeAlias = Written | Callable[[], Written] | EllipsisType | None

_METADATA = "kip30.setting"
_PATHS: tuple[Parser[Any], ...] = (path, paths)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The arguments of `setting`, and the *name* of the field."""

    name: str = ""
    key: str
    parser: Parser[Any]
    default: str | None
    doc: str
    secret: bool
    aliases: tuple[str, ...]
    literal: bool
    runs_code: bool
    in_errors: bool
    compute: Callable[[], Written] | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key and its aliases."""
        return (self.key, *self.aliases)

    @property
    def names_code_or_files(self) -> bool:
        """True if the value names code to run, or a file to read or write."""
        return self.runs_code or self.parser in _PATHS

    def placed(self, read: Any, value: Value) -> Any:
        """Return *read*, which the parser made of *value*, with relative paths placed."""
        if self.parser is path:
            return value.place(read)
        if self.parser is paths:
            return tuple(map(value.place, read))
        return read


class SettingRow(NamedTuple):
    """A line of the reference. A *default* of None means required, ``""`` that there is none."""

    key: str
    kind: str
    default: str | None
    doc: str
    aliases: tuple[str, ...]
    secret: bool


@overload
def setting(
    key: str,
    parse: Parser[T],
    *,
    doc: str,
    default: None,
    shown: str = "",
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    literal: bool = False,
    runs_code: bool = False,
    in_errors: bool = False,
) -> T | None: ...
@overload
def setting(
    key: str,
    parse: Parser[T],
    *,
    doc: str,
    default: Written | Callable[[], Written] | EllipsisType = ...,
    shown: str = "",
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    literal: bool = False,
    runs_code: bool = False,
    in_errors: bool = False,
) -> T: ...
def setting(  # noqa: PLR0913  one argument per column of the reference
    key: str,
    parse: Parser[Any],
    *,
    doc: str,
    default: Default = ...,
    shown: str = "",
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    literal: bool = False,
    runs_code: bool = False,
    in_errors: bool = False,
) -> Any:
    """Declare a field of a frozen, keyword-only settings dataclass.

    The field stays out of the dataclass's repr; `effective` shows what may be shown of it.

    Args:
        key: What operators write, ``plugin.<store>.<name>``.
        parse: How the value is read.
        doc: One line for the reference.
        default: As an operator would write it, or a function that returns that when it is needed.
            With None the field may be None; without any default the setting is required.
        shown: What the reference says of the default if it is computed.
        secret: Show the value nowhere, and take it as it is, surrounding blanks included.
        aliases: Other keys that mean the same.
        literal: Refuse references in the value, because errors of others will show it.
        runs_code: The value names code, so it is taken only from where no other user can write.
        in_errors: Errors of others show the value, so it may not come out of a file. The same
            holds for every path.
    """
    declaration = Declaration(
        key=key,
        parser=parse,
        default=shown or _shown(default, key),
        doc=doc,
        secret=secret,
        aliases=aliases,
        literal=literal,
        runs_code=runs_code,
        in_errors=in_errors or parse in _PATHS,
        compute=default if callable(default) else None,
    )
    metadata = {_METADATA: declaration}
    return dataclasses.field(repr=False, metadata=metadata, **_default(default, declaration))


def declarations(settings_class: type[Any]) -> Iterator[Declaration]:
    """Yield the settings of a settings dataclass, in their order."""
    for field in dataclasses.fields(settings_class):
        if _METADATA in field.metadata:
            yield dataclasses.replace(field.metadata[_METADATA], name=field.name)


def reference(settings_class: type[Any]) -> list[SettingRow]:
    """Return a row for each setting of a settings dataclass."""
    return [
        SettingRow(one.key, one.parser.kind, one.default, one.doc, one.aliases, one.secret)
        for one in declarations(settings_class)
    ]


def _shown(default: Default, key: str) -> str | None:
    if default is ...:
        return None
    return "" if default is None or callable(default) else as_text(default, key)


def _default(default: Default, declaration: Declaration) -> dict[str, Any]:
    """Return the arguments that give a dataclass field its default."""

    def read(written: Written) -> Any:
        return declaration.parser.read(as_text(written, declaration.key))

    if default is ...:
        return {}
    if callable(default):
        return {"default_factory": lambda: read(default())}
    return {"default": None if default is None else read(default)}
