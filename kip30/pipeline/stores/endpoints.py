"""The sources and targets of jobs, as their arguments name them: ``[raw:]PATH[#UNDER]``.

PATH is the properties file of a store, ``-`` for the store that the command line chooses, or the
folder of a snapshot. UNDER is a namespace; of a raw endpoint, a path or the beginning of keys, or
with Cassandra the name of a table, of whose snapshot it is the beginning of keys again.
"""

from dataclasses import dataclass
from pathlib import Path

from kip30.driver import Capability
from kip30.driver.scanning import Layout, View
from kip30.errors import UnsupportedError, UsageError
from kip30.names import check_namespace
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import MANIFEST_NAME
from kip30.pipeline.stores.config import StoreConfig

_RAW = "raw:"
_CHOSEN = "-"


@dataclass(frozen=True, slots=True)
class StoreEndpoint:
    """Part of a store.

    Attributes:
        text: How the job's arguments name it.
        config: The store.
        layout: How its records are read.
        under: Which part, as in `View`.
    """

    text: str
    config: StoreConfig
    layout: Layout
    under: str

    def view(self, scratch: Path | None = None) -> View:
        """Return the view that a scan of it covers."""
        return View(layout=self.layout, under=self.under, scratch=scratch)


@dataclass(frozen=True, slots=True)
class SnapshotEndpoint:
    """Part of a snapshot.

    Attributes:
        text: How the job's arguments name it.
        folder: The folder with its manifest.
        under: Which part, as in `StoreEndpoint`.
    """

    text: str
    folder: Path
    under: str


Endpoint = StoreEndpoint | SnapshotEndpoint


def parse_endpoint(text: str, chosen: StoreConfig | None = None) -> Endpoint:
    """Return the endpoint that *text* names; *chosen* is what ``-`` stands for.

    Raises:
        UsageError: There is no such file or folder, or *text* contradicts itself.
        InvalidNameError: UNDER is not a namespace.
        StoreError: The manifest of a snapshot cannot be read, and UNDER is given.
    """
    place, _, under = text.removeprefix(_RAW).partition("#")
    is_raw = text.startswith(_RAW)
    path = _path(text, place)
    if place != _CHOSEN and path.is_dir():
        return _snapshot(text, path, under, is_raw=is_raw)
    config = _config(text, place, path, chosen)
    endpoint = StoreEndpoint(text, config, Layout.RAW if is_raw else Layout.KIP30, under)
    endpoint.view()  # which checks the namespace
    return endpoint


def store_endpoint(endpoint: Endpoint) -> StoreEndpoint:
    """Return *endpoint*, which must be one of a store.

    Raises:
        UsageError: It is a snapshot.
    """
    if isinstance(endpoint, SnapshotEndpoint):
        raise UsageError(f"{endpoint.text} is a snapshot: name the properties file of a store")
    return endpoint


def target_endpoint(endpoint: Endpoint) -> StoreEndpoint:
    """Return *endpoint*, which must be one that a job can write to.

    Raises:
        UsageError: It is a snapshot.
        UnsupportedError: It is raw.
    """
    store = store_endpoint(endpoint)
    if store.layout is Layout.RAW:
        raise UnsupportedError(f"{store.text}: raw endpoints can be read and not written")
    return store


def require(endpoint: Endpoint, wanted: Capability) -> None:
    """Return if *endpoint* is a snapshot, or of a store that can offer what is *wanted*.

    Raises:
        UnsupportedError: The store offers it with no settings. Nothing was opened.
        ConfigError: The store's configuration is wrong.
    """
    if isinstance(endpoint, SnapshotEndpoint):
        return
    backend = endpoint.config.resolve().choice.backend
    if wanted not in backend.capabilities:
        raise UnsupportedError(
            f"{endpoint.text}: store {backend.name!r} does not offer {wanted.value};"
            " `kip30 backends` lists what each store offers"
        )


def _snapshot(text: str, folder: Path, under: str, *, is_raw: bool) -> SnapshotEndpoint:
    if is_raw:
        raise UsageError(f"{text}: a snapshot knows its layout: leave out {_RAW!r}")
    if not (folder / MANIFEST_NAME).exists():
        raise UsageError(
            f"{text}: the folder has no {MANIFEST_NAME}: name the folder of a snapshot,"
            " or the properties file of a store"
        )
    if under and read_manifest(folder).source.get("layout") == Layout.KIP30.value:
        check_namespace(under)
    return SnapshotEndpoint(text, folder, under)


def _path(text: str, place: str) -> Path:
    """Return the path that *place* means. A wrong one may be too long to look at, or forbidden."""
    if not place:
        raise UsageError(f"{text!r} names no file or folder")
    try:
        path = Path(place).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # Runtime: ~USER; Value: a NUL character
        raise UsageError(f"{text}: there is no file or folder {place!r}: {error}") from error
    return path


def _config(text: str, place: str, path: Path, chosen: StoreConfig | None) -> StoreConfig:
    if place == _CHOSEN:
        if chosen is None:
            raise UsageError(f"{text}: no store is chosen: name a properties file")
        return chosen
    if not path.exists():
        raise UsageError(f"{text}: there is no file or folder {place!r}")
    return StoreConfig.of_file(path)
