"""gRPC, in an instance of kip30's own, which a fork does not harm.

The core of gRPC keeps state for the whole process: which thread polls, timers, locks. A forked
child inherits that state without the threads. gRPC's own repair of it omits what another thread is
doing at the moment of the fork, and starts threads in the child that continue with the inherited
state: now and then such a child aborts. So kip30 loads gRPC's extension module from a copy of its
file, which the dynamic linker treats as another library, with repair switched off; and a forked
child loads another copy and does not touch what it has inherited. The program imports another
instance, unless a thread of it first imports gRPC at the very moment of a load.

Another name in `sys.modules` would not remove that limit: while the extension module is loaded it
imports ``grpc`` itself, and expects there the package that is loading it. Nor would the lock of the
import system, because a thread that waits for it has already taken the module from `sys.modules`.
"""

import os
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver.kit import descriptor_limit, fork_safety
from kip30.errors import LifecycleError

_PACKAGE = "grpc"
_CHANNELS = "grpc._channel"
_EXTENSION = "grpc._cython.cygrpc"
_VERBOSITY = "GRPC_VERBOSITY"
_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_LOADING_SECONDS = 5.0

Options = Sequence[tuple[str, int]]

_LOADING = fork_safety.UninterruptedByFork(_LOADING_SECONDS)
"""Entered while modules are set aside: a child must not inherit that."""


class _Instance(NamedTuple):
    """The package and its module of channels."""

    package: Any
    channels: Any


class GrpcLibrary:
    """The instance of gRPC that this process uses. Thread-safe."""

    def __init__(self) -> None:
        """Load gRPC.

        Where code cannot be loaded from memory, the program's own instance is used.

        Raises:
            ImportError: It is not installed.
        """
        self._is_foreign = False
        """True if `_instance` is that of the parent; set by `abandon`, unset under `_lock`."""
        self._has_forked = False
        """True if this is a forked child; set by `abandon`."""
        self._lock = threading.Lock()
        try:
            self._instance = _own_instance()
        except OSError:
            self._instance = _Instance(import_module(_PACKAGE), import_module(_CHANNELS))
        fork_safety.register(self)

    def plain_channel(self, server: str, options: Options) -> Any:
        """Return a channel without encryption.

        Raises:
            LifecycleError: This is a forked child, and gRPC cannot be loaded in it.
            StoreError: This process has too few descriptors left, with which gRPC would abort it.
        """
        descriptor_limit.require()
        return self._own().channels.Channel(server, options, None, None)

    def secure_channel(self, server: str, credentials: Any, options: Options) -> Any:
        """Return a channel with *credentials*, which must come from `ssl_credentials`.

        Raises:
            LifecycleError, StoreError: See `plain_channel`.
        """
        descriptor_limit.require()
        of_core = credentials._credentials  # noqa: SLF001  as gRPC's own function does it
        return self._own().channels.Channel(server, options, of_core, None)

    def ssl_credentials(self, root: bytes | None, key: bytes | None, chain: bytes | None) -> Any:
        """Return gRPC's form of certificates.

        Raises:
            LifecycleError: See `plain_channel`.
        """
        return self._own().package.ssl_channel_credentials(root, key, chain)

    def call_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of failed calls, also on a channel that the program has created."""
        instances = (self._instance.package, sys.modules.get(_PACKAGE))
        return tuple(one.RpcError for one in instances if one is not None)

    def has_forked(self) -> bool:
        """Return whether this is a forked child of a process that had loaded gRPC."""
        return self._has_forked

    def abandon(self) -> None:
        """In a forked child: do not touch the parent's instance."""
        self._lock = threading.Lock()  # a thread of the parent may hold the other one
        self._has_forked = self._is_foreign = True

    def _own(self) -> _Instance:
        if self._is_foreign:
            self._load()
        return self._instance

    def _load(self) -> None:
        with _LOADING, self._lock:
            if not self._is_foreign:
                return
            try:
                self._instance = _own_instance()
            except OSError as error:
                raise LifecycleError(
                    "this process was forked from one that used etcd, and gRPC cannot be loaded in"
                    f" it ({error}): start it with multiprocessing's method 'spawn' or 'forkserver'"
                ) from error
            self._is_foreign = False
            fork_safety.register(self)


def _own_instance() -> _Instance:
    """Return gRPC, imported over a copy of its extension module.

    ``sys.modules`` is restored afterwards, so that the program imports its own.

    Raises:
        ImportError: gRPC is not installed.
        OSError: The copy could not be made or loaded.
    """
    with _set_aside(), _copying(), _set_in_environment():
        return _Instance(import_module(_PACKAGE), import_module(_CHANNELS))


@contextmanager
def _set_aside() -> Generator[None]:
    """In the block, gRPC is imported as if for the first time."""
    before = _pop_modules()
    try:
        yield
    finally:
        _pop_modules()
        sys.modules.update(before)


def _pop_modules() -> dict[str, ModuleType]:
    names = [one for one in sys.modules if one == _PACKAGE or one.startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}


@contextmanager
def _copying() -> Generator[None]:
    """In the block, a copy of the extension module is imported in its place."""
    with ExitStack() as copies:
        finder = _Finder(copies)
        sys.meta_path.insert(0, finder)
        try:
            yield
        except ImportError as error:
            if error.name == _EXTENSION:
                raise OSError(str(error)) from error
            raise
        finally:
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the extension module in a copy of its file."""

    def __init__(self, copies: ExitStack) -> None:
        """Close the copy with *copies*."""
        self._copies = copies

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _EXTENSION:
            return None
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            raise ImportError(f"{_EXTENSION} is in no file", name=_EXTENSION)
        copy = self._copies.enter_context(_copied(Path(found.origin)))
        loader = ExtensionFileLoader(fullname, copy)
        return spec_from_file_location(fullname, copy, loader=loader)


@contextmanager
def _copied(path: Path) -> Generator[str]:
    """Yield the path of a copy of a file, in memory, which lasts as long as this does."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system keeps no files in memory")
    copy = os.memfd_create(_PACKAGE, os.MFD_CLOEXEC)
    try:
        with path.open("rb", buffering=0) as original:
            left = os.fstat(original.fileno()).st_size
            while left:
                left -= os.sendfile(copy, original.fileno(), None, left)
        # The dynamic linker also distinguishes libraries by their paths. A path through the process
        # differs from those that its parent has loaded.
        yield f"/proc/{os.getpid()}/fd/{copy}"
    finally:
        os.close(copy)


@contextmanager
def _set_in_environment() -> Generator[None]:
    """Switch off gRPC's repair after a fork, and a line on standard error for each lost handshake.

    Its core reads both variables once, while it is imported. A verbosity that the program has set
    is kept.
    """
    wanted: Mapping[str, str] = {_VERBOSITY: "NONE", **os.environ, _FORK_SUPPORT: "0"}
    names = (_VERBOSITY, _FORK_SUPPORT)
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update({name: wanted[name] for name in names})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name)
        os.environ.update(before)


GRPC = GrpcLibrary()
