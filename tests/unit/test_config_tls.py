"""TLS files that are read again when they change, and what is said of those that cannot be used."""

import logging
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kip30 import ConfigError
from kip30.config import Secret
from kip30.config.tls import ReloadingContext, TlsFiles
from kip30.config.tls_failures import tls_advice
from kip30_conformance.servers.certificates import Authority, Signed


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> TlsFiles:
    _fill(tmp_path, authority.sign("first"))
    return TlsFiles(
        prefix="plugin.x.tls",
        ca=authority.certificate,
        certificate=tmp_path / "cert",
        key=tmp_path / "key",
    )


def _fill(folder: Path, identity: Signed) -> None:
    shutil.copyfile(identity.certificate, folder / "cert")
    shutil.copyfile(identity.key, folder / "key")


def test_the_same_files_make_one_context(files: TlsFiles) -> None:
    contexts = ReloadingContext(files)
    assert contexts.current() is contexts.current()


def test_replaced_files_make_another_context(
    files: TlsFiles, authority: Authority, tmp_path: Path
) -> None:
    contexts = ReloadingContext(files)
    former = contexts.current()
    _fill(tmp_path, authority.sign("second"))
    assert contexts.current() is not former
    assert contexts.current() is contexts.current()


def test_a_half_replaced_pair_keeps_the_former_context(
    files: TlsFiles, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = ReloadingContext(files)
    former = contexts.current()
    second = authority.sign("second")
    shutil.copyfile(second.certificate, tmp_path / "cert")
    with caplog.at_level(logging.WARNING):
        assert {contexts.current() for _ in range(9)} == {former}
    assert len(caplog.records) == 1
    assert "the key does not belong to the certificate" in caplog.text
    shutil.copyfile(second.key, tmp_path / "key")
    assert contexts.current() is not former


def test_a_missing_file_keeps_the_former_context(files: TlsFiles, tmp_path: Path) -> None:
    contexts = ReloadingContext(files)
    former = contexts.current()
    (tmp_path / "key").unlink()
    assert contexts.current() is former


def test_replaced_links_are_noticed(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    """Kubernetes replaces one link to a folder; times and sizes of the files may be equal."""
    for number in ("one", "two"):
        (tmp_path / number).mkdir()
        _fill(tmp_path / number, authority.sign(number))
        for file in (tmp_path / number).iterdir():
            os.utime(file, (1, 1))
    (tmp_path / "now").symlink_to("one")
    linked = TlsFiles(
        prefix="plugin.x.tls",
        ca=files.ca,
        certificate=tmp_path / "now" / "cert",
        key=tmp_path / "now" / "key",
    )
    contexts = ReloadingContext(linked)
    former = contexts.current()
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(tmp_path / "now")
    assert contexts.current() is not former


@pytest.mark.parametrize(
    ("word", "without"),
    [
        ("ca", lambda files, missing: replace(files, ca=missing)),
        ("cert", lambda files, missing: replace(files, certificate=missing)),
        ("key", lambda files, missing: replace(files, key=missing)),
    ],
)
def test_a_file_that_is_missing_at_the_start_is_named(
    files: TlsFiles, tmp_path: Path, word: str, without: Callable[[TlsFiles, Path], TlsFiles]
) -> None:
    lacking = without(files, tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=rf"plugin\.x\.tls\.{word}: .*none\.pem cannot be read"):
        ReloadingContext(lacking)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("none")
    with pytest.raises(ConfigError, match=r"plugin\.x\.tls\.ca: .* holds no certificate"):
        TlsFiles(prefix="plugin.x.tls", ca=tmp_path / "ca").context()


def test_the_password_is_in_no_repr() -> None:
    assert "geheim" not in repr(TlsFiles(prefix="plugin.x.tls", password=Secret("geheim")))


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("certificate verify failed: certificate has expired", "the server's certificate"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] alert", "the client certificate has expired"),
        ("certificate verify failed: Hostname mismatch", "that plugin.x.hosts names"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", "set plugin.x.tls.cert and plugin.x.tls.key"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] alert", "does not trust the client certificate"),
        ("SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", "plugin.x.tls.ca must hold"),
        ("certificate verify failed: unable to get local issuer certificate", "ca must hold"),
        ("certificate verify failed: self-signed certificate in certificate chain", "ca must hold"),
        ("certificate verify failed: Missing Authority Key Identifier", "Python 3.13"),
        ("verify failed: Basic Constraints of CA cert not marked critical", "Python 3.13"),
        ("verify failed: CA cert does not include key usage extension", "Python 3.13"),
        ("certificate verify failed: unsuitable certificate purpose", "refuses the server's"),
        ("no such thing", ""),
    ],
)
def test_the_advice_fits_the_reason_of_a_failed_handshake(said: str, advice: str) -> None:
    found = tls_advice(said, prefix="plugin.x.tls", addresses="plugin.x.hosts")
    assert advice in found
    assert bool(advice) == bool(found)


def test_an_authority_that_strict_clients_refuse_is_named_as_the_fault(
    authority: Authority,
) -> None:
    """Python is strict from 3.13 on; here it is made to be."""
    own = authority.sign("server")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(own.certificate, own.key)
    client = TlsFiles(prefix="plugin.x.tls", ca=authority.certificate).context()
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    said = _refusal(client, server)
    advice = tls_advice(said, prefix="plugin.x.tls", addresses="plugin.x.hosts")
    assert "Python 3.13 and newer enforce" in advice
    assert "must hold the authority" not in advice


def _refusal(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Return why *client* does not accept *server*."""
    here, there, back = ssl.MemoryBIO(), ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(there, here, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    answering = server.wrap_bio(here, back, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        answering.do_handshake()
    there.write(back.read())
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        asking.do_handshake()
    return str(refused.value)


def test_a_key_log_that_cannot_be_written_is_named(
    files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "none" / "keys"))
    with pytest.raises(ConfigError, match=r"none/keys: set \$SSLKEYLOGFILE to a file") as raised:
        files.context()
    assert "PEM" not in str(raised.value)


def test_a_key_that_openssl_calls_too_small_is_named(files: TlsFiles) -> None:
    certificate, key = files.certificate, files.key
    assert certificate is not None
    assert key is not None
    weak = ("req", "-x509", "-newkey", "rsa:512", "-nodes", "-days", "2", "-subj", "/CN=weak")
    made = ["openssl", *weak, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    with pytest.raises(ConfigError, match="OpenSSL calls it EE_KEY_TOO_SMALL"):
        files.context()


def test_a_client_without_certificate_must_show_one() -> None:
    found = tls_advice(
        "ALERT_BAD_CERTIFICATE",
        prefix="plugin.x.tls",
        addresses="plugin.x.hosts",
        shows_certificate=False,
    )
    assert "demands a client certificate" in found
