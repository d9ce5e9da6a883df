"""A forked child uses gRPC, of which it has an instance of its own."""

import os
import subprocess
import sys

import grpc
import pytest

from kip30 import LifecycleError, PluginLocator, ValueChange
from kip30_backends.etcd.client.private_grpc import GRPC, GrpcLibrary
from kip30_conformance.clients.callback_recorder import Recorder
from tests.unit.children import run_in_child
from tests.unit.clients import Open


@pytest.fixture
def parent(open_client: Open) -> PluginLocator:
    """Return a client that has a stream under way, so that a thread is in gRPC's core."""
    client = open_client()
    heard: Recorder[ValueChange[str]] = Recorder()
    client.listener_registry().add_value_change_listener("k", heard)
    client.storage().put("k", "1")
    heard.expect(lambda change: change.value == "1")
    return client


def _uses_everything(open_client: Open, key: str) -> bool:
    with open_client() as own:
        heard: Recorder[ValueChange[str]] = Recorder()
        own.listener_registry().add_value_change_listener(key, heard)
        own.storage().put(key, "1")
        heard.expect(lambda change: change.value == "1")
        with own.leader_election("s").lead(key, ""):
            return own.storage().get(key) is not None


@pytest.mark.usefixtures("parent")
def test_a_child_uses_everything(open_client: Open) -> None:
    assert run_in_child(lambda: _uses_everything(open_client, "child")) == 0


@pytest.mark.usefixtures("parent")
def test_a_grandchild_uses_everything(open_client: Open) -> None:
    def child() -> bool:
        with open_client() as own:
            own.storage().put("child", "1")
            return run_in_child(lambda: _uses_everything(open_client, "grandchild")) == 0

    assert run_in_child(child) == 0


@pytest.mark.usefixtures("parent")
def test_a_child_loads_its_own_instance_of_grpc(open_client: Open) -> None:
    [parents, programs] = GRPC.call_errors()

    def child() -> bool:
        _uses_everything(open_client, "child")
        [own, same] = GRPC.call_errors()
        return own is not parents and same is programs is grpc.RpcError

    assert run_in_child(child) == 0


def test_the_program_imports_its_own_grpc() -> None:
    [kip30s, programs] = GRPC.call_errors()
    assert programs is grpc.RpcError
    assert kip30s is not programs
    assert grpc.insecure_channel.__module__ == "grpc"


@pytest.mark.parametrize("value", ["1", None])
def test_the_environment_is_left_as_it_was(value: str | None) -> None:
    names = ("GRPC_ENABLE_FORK_SUPPORT", "GRPC_VERBOSITY")
    environment = {key: text for key, text in os.environ.items() if key not in names}
    environment |= {} if value is None else {names[0]: value}
    script = f"import os, kip30_backends.etcd; print([os.environ.get(one) for one in {names}])"
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{[value, None]}\n"


def _refuse(*_arguments: object) -> int:
    raise PermissionError("refused")


@pytest.mark.usefixtures("parent")
@pytest.mark.parametrize("step", ["memfd_create", "sendfile"])
def test_a_child_that_may_not_load_code_is_refused(
    open_client: Open, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def child() -> bool:
        monkeypatch.setattr(os, step, _refuse)
        with pytest.raises(LifecycleError, match=r"refused.*'spawn' or 'forkserver'"):
            open_client()
        monkeypatch.undo()
        return _uses_everything(open_client, "later")

    assert run_in_child(child) == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_a_process_that_cannot_load_code_uses_the_programs_grpc(
    monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    if is_there:
        monkeypatch.setattr(os, "memfd_create", _refuse)
    else:
        monkeypatch.delattr(os, "memfd_create")
    library = GrpcLibrary()
    assert set(library.call_errors()) == {grpc.RpcError}


def test_a_missing_grpc_raises_a_module_not_found_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    with pytest.raises(ModuleNotFoundError, match="grpc"):
        GrpcLibrary()
    assert sys.modules["grpc"] is grpc
