"""Settings that an operator may write, and those that are refused."""

import pytest

from kip30 import ConfigError
from kip30.config import Written, build, load
from kip30_backends.consul import ConsulSettings


def _built(**properties: Written) -> ConsulSettings:
    return build(ConsulSettings, load(properties))


def test_the_default_port() -> None:
    settings = _built(**{"plugin.consul.address": "one, [::1]:8501"})
    assert [str(address) for address in settings.address] == ["one:8500", "[::1]:8501"]


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ("plugin.consul.tls.cert", "plugin.consul.tls.key"),
        ("plugin.consul.tls.key", "plugin.consul.tls.cert"),
    ],
)
def test_halves_are_refused(given: str, lacking: str) -> None:
    with pytest.raises(ConfigError) as raised:
        _built(**{given: "half"})
    assert f"{given} is set and {lacking} is not" in str(raised.value)
    assert "half" not in str(raised.value)


@pytest.mark.parametrize("key", ["plugin.consul.tls.ca", "plugin.consul.tls"])
def test_any_file_means_encryption(key: str) -> None:
    assert _built(**{key: "true"}).secure
    assert not _built().secure


@pytest.mark.parametrize("token", ["two words", "line\r\nX-Forged: yes", "ümlaut"])
def test_a_token_invalid_in_a_header_is_refused_and_not_printed(token: str) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.consul\.token") as raised:
        _built(**{"plugin.consul.token": token})
    assert token not in str(raised.value)
    assert raised.value.__context__ is None
