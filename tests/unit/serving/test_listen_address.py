"""Addresses to listen at, and the hosts that a server answers for."""

import socket
from contextlib import closing

import pytest

from kip30 import UsageError
from kip30.serving.listen_address import ListenAddress, OwnHosts, listen_at, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8008", "127.0.0.1", 8008),
        ("127.0.0.1:8008", "127.0.0.1", 8008),
        ("0.0.0.0:0", "0.0.0.0", 0),  # noqa: S104  that is the case
        ("web-1.internal:65535", "web-1.internal", 65_535),
        ("[::1]:8008", "::1", 8008),
        ("[::]:80", "::", 80),
    ],
)
def test_an_address_is_host_and_port_or_a_port_alone(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", ":8008", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "1.2.3.4:+5"),
        *("127.0.0.1:65536", "::1:8008", "[::1]", "[::1:80", "[1.2.3.4]:80", "[]:80", "[::g]:80"),
        *("a b:80", "http://a:80", "a/b:80", "a:80\n", "a\0:80", "ä:80", "a:८", "x" * 254 + ":80"),
    ],
)
def test_another_text_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"no address to listen at: write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1:8008"), ("::1", "[::1]:8008")]
)
def test_an_address_is_shown_as_in_a_url(host: str, shown: str) -> None:
    assert str(ListenAddress(host, 8008)) == shown


def test_an_address_in_use_is_an_error_that_names_it() -> None:
    with closing(listen_at(ListenAddress("127.0.0.1", 0))) as first:
        address = ListenAddress("127.0.0.1", first.getsockname()[1])
        with pytest.raises(OSError, match=f"cannot listen at {address}: ") as refused:
            listen_at(address)
    assert "Address already in use: choose another address, or end the" in str(refused.value)
    listen_at(address).close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a..b", "x" * 64 + ".b"])
def test_a_host_that_is_not_of_this_machine_is_an_error_that_names_it(host: str) -> None:
    with pytest.raises(OSError, match=f"cannot listen at {host}:"):
        listen_at(ListenAddress(host, 0))


def test_no_program_inherits_the_socket() -> None:
    with closing(listen_at(ListenAddress("127.0.0.1", 0))) as listener:
        assert not listener.get_inheritable()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="has no IPv6")
def test_all_addresses_by_ipv6_are_those_by_ipv4_too() -> None:
    with closing(listen_at(ListenAddress("::", 0))) as listener:
        for host in ("::1", "127.0.0.1"):
            socket.create_connection((host, listener.getsockname()[1]), 5).close()


@pytest.mark.parametrize(
    "field",
    [
        *("127.0.0.1", "127.0.0.1:8008", "10.1.2.3:1", "255.0.0.1", "[::1]", "[::1]:8008"),
        *("[2001:db8::1]:80", "localhost", "LOCALHOST:8008", "localhost.", "localhost:"),
        *("web1.internal", "Web1.Internal:80", "web1.internal."),
    ],
)
def test_an_ip_address_localhost_and_a_given_name_are_own(field: str) -> None:
    assert OwnHosts(["web1.Internal"]).answer_for(field) is True


@pytest.mark.parametrize(
    "field",
    [
        *("evil.example", "evil.example:8008", "web1.internal.evil.example", "xweb1.internal"),
        *("localhost.evil.example", "127.0.0.1.evil.example", "127.1", "2130706433", "0x7f.1"),
        *("[1.2.3.4]", "[:::]", "1.2.3", "1.2.3.4.5", "256.1.1.1"),
    ],
)
def test_another_host_is_not(field: str) -> None:
    assert OwnHosts(["web1.internal"]).answer_for(field) is False


@pytest.mark.parametrize(
    "field", ["", " ", "a b", "a:b", "a:80:80", "::1", "[::1", "[::1]80", "a@b", "a/b", "a\tb", "é"]
)
def test_a_field_that_is_no_host_is_told_from_another_host(field: str) -> None:
    assert OwnHosts([]).answer_for(field) is None


@pytest.mark.parametrize("name", ["", "a:80", "http://a", "a b", "*", "[::1]", "a\n"])
def test_a_given_name_is_checked(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a host"):
        OwnHosts([name])
