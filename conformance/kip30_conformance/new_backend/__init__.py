"""A package for a new backend, written from the files in the folder ``template``."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from kip30 import ConfigError
from kip30_conformance.servers import STORES

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_TAKEN = {"embedded", *STORES}
_SUFFIX = ".in"


def write(name: str, folder: Path) -> list[Path]:
    """Write a package for the store *name* into *folder*, which must not exist.

    Returns:
        The files, in the order of their names.

    Raises:
        ConfigError: The name cannot be used, or the folder exists. Nothing was written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a backend name: use lower case letters, digits and _")
    if name in _TAKEN:
        raise ConfigError(f"{name!r} is a backend of kip30: choose another name")
    if folder.exists():
        raise ConfigError(f"{folder} exists already: choose another folder with --out")
    words = {"name": name, "package": f"kip30_{name}", "Name": _class_name(name)}
    written = list[Path]()
    _write_all(files(__name__) / "template", folder, words, written)
    return sorted(written)


def _write_all(
    source: Traversable, target: Path, words: dict[str, str], written: list[Path]
) -> None:
    target.mkdir(parents=True)
    for one in source.iterdir():
        if one.is_dir():
            _write_all(one, target / one.name.replace("package", words["package"]), words, written)
        elif one.name.endswith(_SUFFIX):
            file = target / one.name.removesuffix(_SUFFIX)
            file.write_text(Template(one.read_text()).substitute(words))
            written.append(file)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
