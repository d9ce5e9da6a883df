"""The cache folder: each server is made once, whole or not at all."""

import json
import os
import shutil
from pathlib import Path

from .commands import Workplace
from .lock import held
from .progress import Progress
from .recipes import Recipe

RECEIPT = "RECEIPT.json"
LOG = "make.log"


def default_cache() -> Path:
    """Return ``$KIP30_SERVERS``, else ``${XDG_CACHE_HOME:-~/.cache}/kip30-servers``."""
    own = os.environ.get("KIP30_SERVERS")
    if own:
        return Path(own).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "kip30-servers"


async def install(recipe: Recipe, cache: Path) -> Path:
    """Return the folder of the server of *recipe* in *cache*, made if it is not there.

    Any number of processes may do this at once. Each of them may be killed at any time: the
    folder appears when it is complete, and what is left half-made is made anew.

    Args:
        recipe: What to make.
        cache: Where servers are kept; made if it is not there.

    Raises:
        InstallationError: A program is missing or failed. The folder is not there.
        OSError: The cache cannot be written. The folder is not there.
    """
    folder = cache / recipe.title
    progress = Progress(recipe.title)
    if not _is_complete(folder):
        recipe.check_needs()
        lock_file = _lock_file(folder)
        async with held(lock_file, lambda: progress.say("another process is at it")) as lock:
            await _make_once(recipe, folder, lock, progress)
    progress.say("is there")
    return folder


async def _make_once(recipe: Recipe, folder: Path, lock: int, progress: Progress) -> None:
    if _is_complete(folder):
        return
    partial = _empty(folder.with_name(f"{folder.name}.partial"))
    place = Workplace(partial, partial / LOG, recipe.environment, lock, progress)
    recipe.copy_files(partial)
    for command in recipe.make:
        await place.run(command)
    _write_receipt(recipe, partial)
    _remove(folder)
    partial.rename(folder)


def _lock_file(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_name(f"{folder.name}.lock")


def _is_complete(folder: Path) -> bool:
    return (folder / RECEIPT).exists()


def _empty(folder: Path) -> Path:
    _remove(folder)
    folder.mkdir()
    return folder


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _write_receipt(recipe: Recipe, folder: Path) -> None:
    receipt = {"name": recipe.name, "version": recipe.version, "start": recipe.start}
    (folder / RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n")
