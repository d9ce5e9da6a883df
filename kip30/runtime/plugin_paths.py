"""Packages in the folders and zip files of ``plugin.additional.paths``.

`sys.path` is not changed. A search adds the paths for imports of its own thread only, and an
installed module always goes before one of the same name there, so that nothing there can replace a
library. A module that another user could have written is never imported.
"""

import re
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from typing_extensions import override

from kip30.config import TRUSTED_VARIABLE, untrusted_chain_reason, untrusted_tree_reason
from kip30.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

_KEY = "plugin.additional.paths"
_METADATA_FOLDERS = ("*.dist-info", "*.egg-info")


class AdditionalPaths:
    """The paths that `plugin.additional.paths` names."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Check *paths*; nothing is imported.

        Raises:
            ConfigError: One of them is not there, or another user could have written it.
        """
        self.places: list[str] = [_checked(path) for path in paths]

    def entry_points(self, group: str) -> list["EntryPoint"]:
        """Return the entry points of *group* there, except those of installed distributions.

        Raises:
            ConfigError: Another user could have written the metadata of a distribution.
        """
        if not self.places:
            return []
        for place in self.places:
            _check_metadata(Path(place))
        return [
            point
            for distribution in self._distributions()
            for point in distribution.entry_points.select(group=group)
        ]

    @contextmanager
    def importable(self) -> Generator[None]:
        """Let this thread import from the paths inside the ``with`` block.

        A later import by a package there must be of that package, or of an installed one.
        """
        if not self.places:
            yield
            return
        before = _finder.places
        _finder.begin(self.places)
        try:
            yield
        finally:
            _finder.begin(before)

    def _distributions(self) -> Iterator["Distribution"]:
        from importlib import metadata  # noqa: PLC0415  a quarter of kip30's own import

        known = {_normal(one.name) for one in metadata.distributions()}
        for one in metadata.distributions(path=self.places):
            name = _normal(one.name)
            if name not in known:
                known.add(name)
                yield one


class _Finder(MetaPathFinder, threading.local):
    """Finds modules for the thread that searches, and nothing for any other thread.

    It stays in `sys.meta_path`: removing an entry would make an import in another thread, which is
    iterating over that list, skip the entry after it.
    """

    places: Sequence[str] = ()

    def begin(self, places: Sequence[str]) -> None:
        """Look in *places* from now on."""
        self.places = places
        if places and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or not self.places:
            return None
        installed = self._installed(fullname, target)
        # A folder without an __init__ has no loader: by Python's rules a real package later in
        # the search goes before it.
        if installed is not None and installed.loader is not None:
            return installed
        found = PathFinder.find_spec(fullname, self.places)
        if found is None:
            return installed
        _check_module(fullname, found)
        return found

    def _installed(self, name: str, target: ModuleType | None) -> ModuleSpec | None:
        others = (one for one in list(sys.meta_path) if one is not self)
        specs = (finder.find_spec(name, None, target) for finder in others)
        return next((spec for spec in specs if spec is not None), None)


_finder = _Finder()


def _checked(path: Path) -> str:
    if not path.exists():
        raise ConfigError(f"{_KEY}: there is no {path}")
    _refuse(untrusted_chain_reason(path))
    return str(path.resolve())


def _check_metadata(place: Path) -> None:
    for pattern in _METADATA_FOLDERS:
        for folder in place.glob(pattern):
            _refuse(untrusted_tree_reason(folder))


def _check_module(name: str, spec: ModuleSpec) -> None:
    """Refuse a module if another user could have written it, or anything in its package."""
    packages = spec.submodule_search_locations
    files = [name for name in (spec.origin, spec.cached) if name] if packages is None else packages
    for file in map(Path, files):
        # A module in a zip file is no file of its own; the zip file was checked.
        if file.exists():
            _refuse(untrusted_tree_reason(file), f"module {name} is not imported: ")


def _refuse(untrusted_reason: str, what: str = "") -> None:
    if untrusted_reason:
        raise ConfigError(
            f"{_KEY}: {what}{untrusted_reason}: let no one else write there, or name the owner in"
            f" ${TRUSTED_VARIABLE}"
        )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
