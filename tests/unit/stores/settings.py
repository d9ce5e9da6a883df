"""Settings of which all stores with TLS have the same."""

from typing import Any, ClassVar

import pytest

from kip30 import ConfigError
from kip30.config import Written, build, load


class SettingsCases:
    """Attributes of a store's subclass.

    Attributes:
        store: The name of the store.
        settings: The class of its settings.
        addresses: The last words of the key of its servers' addresses.
        default_port: The port of a server whose address has none.
    """

    store: ClassVar[str]
    settings: ClassVar[type[Any]]
    addresses: ClassVar[str]
    default_port: ClassVar[int]

    def built(self, **properties: Written) -> Any:
        return build(self.settings, load(properties))

    def test_the_default_port(self) -> None:
        settings = self.built(**{f"plugin.{self.store}.{self.addresses}": "one, [::1]:4001"})
        found = getattr(settings, self.addresses.replace(".", "_"))
        assert [str(address) for address in found] == [f"one:{self.default_port}", "[::1]:4001"]

    @pytest.mark.parametrize(
        ("given", "lacking"), [("tls.cert", "tls.key"), ("tls.key", "tls.cert")]
    )
    def test_halves_are_refused(self, given: str, lacking: str) -> None:
        with pytest.raises(ConfigError) as raised:
            self.built(**{f"plugin.{self.store}.{given}": "half"})
        reason = f"plugin.{self.store}.{given} is set and plugin.{self.store}.{lacking} is not"
        assert reason in str(raised.value)
        assert "half" not in str(raised.value)

    @pytest.mark.parametrize("key", ["tls.ca", "tls"])
    def test_any_file_means_encryption(self, key: str) -> None:
        assert self.built(**{f"plugin.{self.store}.{key}": "true"}).secure
        assert not self.built().secure


class LoginSettingsCases(SettingsCases):
    """Those of a store whose clients have a user and a password, too."""

    @pytest.mark.parametrize(("given", "lacking"), [("user", "password"), ("password", "user")])
    def test_half_a_login_is_refused(self, given: str, lacking: str) -> None:
        self.test_halves_are_refused(given, lacking)
