"""Settings that an operator may write, and those that are refused."""

import pytest

from kip30 import ConfigError
from kip30.config import Written, build, load
from kip30_backends.consul import ConsulSettings
from tests.unit.stores.settings import SettingsCases


def _built(**properties: Written) -> ConsulSettings:
    return build(ConsulSettings, load(properties))


class TestSettings(SettingsCases):
    store = "consul"
    settings = ConsulSettings
    addresses = "address"
    default_port = 8500


@pytest.mark.parametrize("token", ["two words", "line\r\nX-Forged: yes", "ümlaut"])
def test_a_token_invalid_in_a_header_is_refused_and_not_printed(token: str) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.consul\.token") as raised:
        _built(**{"plugin.consul.token": token})
    assert token not in str(raised.value)
    assert raised.value.__context__ is None
