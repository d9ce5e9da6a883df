"""Cases of TLS for every store: one class, which the tests of each store subclass."""

import os
import pty
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from kip30 import ConfigError, DefiniteError, Kip30Error, PluginLocator
from kip30.config import Written
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.certificates import Authority, Signed
from tests.unit.children import run_in_child
from tests.unit.clients import timeouts

CONNECT_MS = round(4000 * time_scale())
_OPEN = """
import sys
from kip30 import Kip30Error, PluginLocator
try:
    PluginLocator().startup(dict(line.split("=", 1) for line in sys.argv[1:])).close()
except Kip30Error as error:
    print(error)
"""


class Files(NamedTuple):
    """The files that server and client read, which the tests replace while both run."""

    ca: Path
    server: Signed
    client: Signed

    def fill(self, signing: Authority, trusted: Authority) -> None:
        """Write certificates that *signing* has signed, and trust *trusted*."""
        _replace(self.ca, trusted.certificate)
        for target, source in zip(self.server, signing.sign("server"), strict=True):
            _replace(target, source)
        for target, source in zip(self.client, signing.sign("client"), strict=True):
            _replace(target, source)


class TlsCases(ABC):
    """Handshakes that fail, keys with passwords, and certificates that are replaced.

    Attributes:
        store: The name of the store.
        addresses: The key of its servers' addresses.
        certificate_word: The last word of the key of the client's certificate.
    """

    store: ClassVar[str]
    addresses: ClassVar[str]
    certificate_word: ClassVar[str] = "cert"

    @classmethod
    @abstractmethod
    def start(cls, files: Files, folder: Path) -> Ensemble:
        """Start a server that reads *files* and demands a client certificate."""

    @pytest.fixture(scope="class")
    @classmethod
    def authority(cls, tmp_path_factory: pytest.TempPathFactory) -> Authority:
        return Authority(tmp_path_factory.mktemp("authority"))

    @pytest.fixture(scope="class")
    @classmethod
    def stranger(cls, tmp_path_factory: pytest.TempPathFactory) -> Authority:
        return Authority(tmp_path_factory.mktemp("stranger"), "stranger")

    @pytest.fixture(scope="class")
    @classmethod
    def files(cls, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Files:
        folder = tmp_path_factory.mktemp("live")
        files = Files(folder / "ca", _signed(folder / "server"), _signed(folder / "client"))
        files.fill(authority, authority)
        return files

    @pytest.fixture(scope="class")
    @classmethod
    def servers(cls, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
        with cls.start(files, tmp_path_factory.mktemp("tls")) as ensemble:
            yield ensemble

    @pytest.fixture
    def mine(self, servers: Ensemble, files: Files) -> dict[str, Written]:
        """Return the configuration of a client that is accepted."""
        return {
            **servers.settings(),
            "plugin.connect.timeout.ms": CONNECT_MS,
            **self.tls(ca=files.ca, **{self.certificate_word: files.client.certificate}),
            **self.tls(key=files.client.key),
        }

    def tls(self, **files: Path | str) -> dict[str, Written]:
        """Return TLS settings."""
        prefix = f"plugin.{self.store}.tls"
        named = {f"{prefix}.{word.replace('_', '.')}": file for word, file in files.items()}
        return {prefix: "true", **named}

    def at(self, port: int) -> dict[str, Written]:
        """Return the address of something else on this machine."""
        return {self.addresses: f"127.0.0.1:{port}"}

    # -- failures name their cause

    def test_a_client_without_certificate(self, mine: dict[str, Written]) -> None:
        del mine[f"plugin.{self.store}.tls.key"]
        del mine[f"plugin.{self.store}.tls.{self.certificate_word}"]
        assert f"set plugin.{self.store}.tls.{self.certificate_word} and" in _refusal(mine)

    def test_a_client_of_another_authority(
        self, mine: dict[str, Written], stranger: Authority
    ) -> None:
        certificate, key, _ = stranger.sign("client")
        mine |= self.tls(**{self.certificate_word: certificate}, key=key)
        said = _refusal(mine)
        assert f"plugin.{self.store}.tls.{self.certificate_word}" in said
        assert "trust" in said

    def test_a_server_of_another_authority(
        self, mine: dict[str, Written], stranger: Authority
    ) -> None:
        said = _refusal(mine | self.tls(ca=stranger.certificate))
        assert f"plugin.{self.store}.tls.ca must hold the authority" in said

    def test_no_encryption_where_it_is_demanded(self, mine: dict[str, Written]) -> None:
        plain = {key: value for key, value in mine.items() if ".tls" not in key}
        assert f"plugin.{self.store}.tls" in _refusal(plain)

    def test_encryption_where_there_is_none(
        self, mine: dict[str, Written], ensemble: Ensemble
    ) -> None:
        said = _refusal({**mine, **ensemble.settings()})
        assert f"does not speak TLS on that port: unset plugin.{self.store}.tls" in said

    def test_a_certificate_for_another_host(
        self, mine: dict[str, Written], authority: Authority
    ) -> None:
        elsewhere = authority.sign("elsewhere", host="DNS:elsewhere.test")
        with _speaking_tls(elsewhere) as port:
            said = _refusal(mine | self.at(port))
        assert "certificate must name the host" in said
        assert self.addresses in said

    def test_a_certificate_that_has_expired(
        self, mine: dict[str, Written], authority: Authority
    ) -> None:
        with _speaking_tls(authority.sign("old", days=-1)) as port:
            assert "has expired: renew it" in _refusal(mine | self.at(port))

    # -- private keys with passwords

    def test_a_key_with_a_password(self, mine: dict[str, Written], files: Files) -> None:
        locked = _locked(files, "geheim-2")
        password = self.tls(key=locked) | {f"plugin.{self.store}.tls.key.password": "geheim-2"}
        with _open(mine | password) as client:
            client.storage().put("locked/key", "v")
            shown = f"{client!r} {client.backend!r} {vars(client.backend)}"
        assert "geheim-2" not in shown

    def test_a_forked_child_connects_too(self, mine: dict[str, Written]) -> None:
        def child() -> bool:
            with _open(mine) as own:
                own.storage().set("forked/key", "v")
                return True

        with _open(mine) as client:
            assert run_in_child(child) == 0
            assert client.storage().get("forked/key") is not None

    @pytest.mark.parametrize("password", ["", "falsch-2"])
    def test_a_missing_or_wrong_password(
        self, mine: dict[str, Written], files: Files, password: str
    ) -> None:
        more = {"key_password": password} if password else {}
        with pytest.raises(ConfigError, match=r"tls\.key\.password") as raised:
            _open(mine | self.tls(key=_locked(files, "geheim-2"), **more))
        assert "geheim-2" not in str(raised.value)
        assert "falsch-2" not in str(raised.value)

    def test_nothing_prompts_at_a_terminal(self, mine: dict[str, Written], files: Files) -> None:
        locked = mine | self.tls(key=_locked(files, "geheim-2"))
        said, shown = _at_a_terminal(locked)
        assert "tls.key.password" in said
        assert shown == ""

    def test_a_failed_handshake_writes_nothing_to_a_terminal(
        self, mine: dict[str, Written], stranger: Authority
    ) -> None:
        said, shown = _at_a_terminal(mine | self.tls(ca=stranger.certificate))
        assert f"plugin.{self.store}.tls.ca" in said
        assert shown == ""

    # -- certificates that are replaced while a client runs; the last, because it changes the files

    def test_replaced_certificates(
        self, mine: dict[str, Written], servers: Ensemble, files: Files, stranger: Authority
    ) -> None:
        mine |= timeouts(2.0)
        with _open(mine) as client:
            storage = client.storage()
            storage.put("rotated/key", "v")
            changes: list[str | None] = []
            client.listener_registry().add_value_change_listener(
                "rotated/key", lambda change: changes.append(change.value)
            )
            files.client.key.write_text("half-written")  # does not fit its certificate
            servers.nodes[0].kill()
            files.fill(stranger, stranger)
            servers.nodes[0].start()
            servers.await_ready()
            eventually(lambda: _answers(client, "rotated/key"), within=40)
            client.storage().update("rotated/key", "after")
            eventually(lambda: changes[-1:] == ["after"], within=20)
        with _open(mine) as another:
            assert another.storage().fetch("rotated/key").result() == "after"


def _open(properties: Mapping[str, Written]) -> PluginLocator:
    return PluginLocator().startup(properties)


def _refusal(properties: Mapping[str, Written]) -> str:
    with pytest.raises(DefiniteError) as raised:
        _open(properties)
    return str(raised.value)


def _answers(client: PluginLocator, key: str) -> bool:
    with suppress(Kip30Error):
        return client.storage().fetch(key).result() is not None
    return False


def _signed(path: Path) -> Signed:
    return Signed(*(path.with_suffix(f".{word}") for word in Signed._fields))


def _replace(target: Path, source: Path) -> None:
    """Replace *target* at once, as programs that renew certificates do."""
    draft = target.with_suffix(".draft")
    shutil.copyfile(source, draft)
    draft.replace(target)


def _locked(files: Files, password: str) -> Path:
    locked = files.client.key.with_suffix(".locked")
    subprocess.run(
        [
            *("openssl", "pkcs8", "-topk8", "-in", files.client.key, "-out", locked),
            *("-passout", f"pass:{password}"),
        ],
        check=True,
        capture_output=True,
    )
    return locked


def _at_a_terminal(properties: Mapping[str, Written]) -> tuple[str, str]:
    """Return the output of a program that opens a client, and that of its terminal."""
    terminal, end = pty.openpty()
    lines = [f"{key}={value}" for key, value in properties.items()]
    with subprocess.Popen(
        [sys.executable, "-c", _OPEN, *lines],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=end,
        text=True,
        start_new_session=True,
    ) as process:
        said, _ = process.communicate(timeout=60 * time_scale())
    os.close(end)
    os.set_blocking(terminal, False)
    try:
        shown = os.read(terminal, 65536).decode()
    except OSError:
        shown = ""
    os.close(terminal)
    return said, shown


@contextmanager
def _speaking_tls(identity: Signed) -> Generator[int]:
    """Listen as a server with *identity* would, and shake hands with each client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    context.set_alpn_protocols(["h2"])  # gRPC demands it
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_shake_hands, args=(listening, context), daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _shake_hands(listening: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connected, _ = listening.accept()
        except OSError:
            return
        with connected, suppress(OSError):
            connected.settimeout(10 * time_scale())
            with context.wrap_socket(connected, server_side=True) as encrypted:
                encrypted.recv(1)
