"""The command ``install-servers``."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .cache import default_cache, install
from .errors import InstallationError, UnknownServerError
from .recipes import Recipe, choose, known

PROGRAM = "install-servers"
SERVERS_AT_ONCE = 2
NICENESS = 10

EPILOG = """
Servers are kept in $KIP30_SERVERS, else in ${XDG_CACHE_HOME:-~/.cache}/kip30-servers; each one that
is there is left as it is. Prints their folders, and on stderr what is being done. Exit codes: 0 all
are there; 1 one or more could not be made, the rest is there; 2 the call is wrong; 128 + n ended by
signal n, run it again to go on.
"""


def main() -> int:
    """Return the exit code."""
    options = _options()
    try:
        recipes = choose(options.recipes, options.servers)
    except (UnknownServerError, InstallationError) as error:
        _complain(str(error))
        return 2
    os.nice(NICENESS)
    return asyncio.run(_install_all(recipes, default_cache()))


def _options() -> argparse.Namespace:
    beside = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Put real servers for tests into the cache folder.", epilog=EPILOG
    )
    parser.add_argument(
        "servers",
        nargs="*",
        metavar="SERVER",
        help=f"{', '.join(known(beside))}; all if none is named",
    )
    parser.add_argument(
        "--recipes", type=Path, default=beside, metavar="FOLDER", help="other recipes than kip30's"
    )
    return parser.parse_args()


async def _install_all(recipes: Sequence[Recipe], cache: Path) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, number)
    turn = asyncio.Semaphore(SERVERS_AT_ONCE)
    done = [_install(recipe, cache, turn) for recipe in recipes]
    return int(not all(await asyncio.gather(*done)))


async def _install(recipe: Recipe, cache: Path, turn: asyncio.Semaphore) -> bool:
    try:
        async with turn:
            folder = await install(recipe, cache)
    except (InstallationError, OSError) as error:
        _complain(f"{recipe.title}: {error}")
        return False
    print(folder, flush=True)
    return True


def _complain(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def _stop(number: int) -> NoReturn:
    _complain("interrupted; run it again to go on")
    raise SystemExit(128 + number)
