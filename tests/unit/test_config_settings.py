"""Declared settings: built, described, shown, and the complaint about each mistake."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kip30.config import (
    Address,
    Parser,
    Secret,
    SettingRow,
    addresses,
    build,
    check_keys,
    effective,
    integer,
    load,
    milliseconds,
    reference,
    secret,
    setting,
    text,
)
from kip30.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopSettings:
    endpoints: tuple[Address, ...] = setting(
        "plugin.shop.endpoints", addresses(80), doc="Where it is", aliases=("shop.connect",)
    )
    retry_seconds: float = setting("plugin.shop.retry.ms", milliseconds(), default=250, doc="Pause")
    user: str | None = setting("plugin.shop.user", text, default=None, doc="Who asks")
    password: str | None = setting(
        "plugin.shop.password", text, default=None, secret=True, doc="Their password"
    )
    home: str = setting(
        "plugin.shop.home", text, default=lambda: "a" * 3, shown="three letters", doc="Where to"
    )
    pin: int = setting(
        "plugin.shop.pin", Parser(int, "digits"), default=0, secret=True, doc="Their number"
    )
    made_by_hand: int = 7


ENDPOINTS = {"plugin.shop.endpoints": "a:1"}


def refusal(properties: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        build(ShopSettings, load(properties, origin="--set"))
    return refused.value


def test_builds_typed_settings_with_their_defaults() -> None:
    assert build(ShopSettings, load(ENDPOINTS)) == ShopSettings(
        endpoints=(Address("a", 1),),
        retry_seconds=0.25,
        user=None,
        password=None,
        home="aaa",
        pin=0,
        made_by_hand=7,
    )


def test_takes_the_settings_own_key_or_an_alias() -> None:
    assert build(ShopSettings, load({"shop.connect": "b"})).endpoints == (Address("b", 80),)
    assert str(refusal({**ENDPOINTS, "shop.connect": "b"})) == (
        "plugin.shop.endpoints and shop.connect mean the same and have different values:"
        " keep plugin.shop.endpoints"
    )


def test_a_setting_may_have_one_value_under_two_names() -> None:
    both = {"plugin.shop.endpoints": "a:80", "shop.connect": " a "}
    assert build(ShopSettings, load(both)).endpoints == (Address("a", 80),)
    assert effective(ShopSettings, load(both))["plugin.shop.endpoints"] == "a:80"
    assert str(refusal({**both, "shop.connect": "a:b"})).startswith("shop.connect = 'a:b'")


def test_blanks_around_a_value_count_in_a_secret_only() -> None:
    settings = build(
        ShopSettings,
        load({**ENDPOINTS, "plugin.shop.user": " joe\t", "plugin.shop.password": " p "}),
    )
    assert (settings.user, settings.password) == ("joe", " p ")


def test_names_a_missing_setting() -> None:
    assert str(refusal({})) == "plugin.shop.endpoints is missing: set it (Where it is)"


def test_names_key_value_and_place_of_a_wrong_setting() -> None:
    assert str(refusal({**ENDPOINTS, "plugin.shop.retry.ms": "10s "})) == (
        "plugin.shop.retry.ms = '10s' (--set): not a whole number of milliseconds; write 10000"
    )


def test_names_the_alias_that_was_written() -> None:
    assert str(refusal({"shop.connect": "a:b"})).startswith("shop.connect = 'a:b' (--set): ")


def test_describes_each_setting() -> None:
    rows = reference(ShopSettings)
    assert rows[0] == SettingRow(
        key="plugin.shop.endpoints",
        kind="addresses host:port, comma separated",
        default=None,
        doc="Where it is",
        aliases=("shop.connect",),
        secret=False,
    )
    assert [row.default for row in rows[1:]] == ["250", "", "", "three letters", "0"]
    assert [row.key for row in rows if row.secret] == ["plugin.shop.password", "plugin.shop.pin"]


# -- what must not be seen


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("SHOP_USER", "from-env")
    (tmp_path / "secret").write_text("from-file\n")
    return {
        **ENDPOINTS,
        "plugin.shop.user": "the ${env:SHOP_USER} user",
        "plugin.shop.home": f"${{file:{tmp_path}/secret}}",
        "plugin.shop.password": "in-line",
    }


def test_references_are_replaced(hidden: dict[str, str]) -> None:
    settings = build(ShopSettings, load(hidden))
    assert settings.user == "the from-env user"
    assert settings.home == "from-file"


def test_the_value_of_a_reference_is_not_expanded_again(
    monkeypatch: pytest.MonkeyPatch, hidden: dict[str, str]
) -> None:
    monkeypatch.setenv("SHOP_USER", "${env:HOME}")
    assert build(ShopSettings, load(hidden)).user == "the ${env:HOME} user"


def test_neither_repr_nor_effective_shows_what_is_hidden(hidden: dict[str, str]) -> None:
    shown = effective(ShopSettings, load(hidden))
    assert shown == {
        "plugin.shop.endpoints": "a:1",
        "plugin.shop.retry.ms": "250",
        "plugin.shop.user": "***",
        "plugin.shop.password": "***",
        "plugin.shop.home": "***",
        "plugin.shop.pin": "0",
    }
    settings = build(ShopSettings, load(hidden))
    for value in ("from-env", "from-file", "in-line"):
        assert value not in repr(settings)


@pytest.mark.parametrize(
    "address",
    [
        "http://user:hunter2@h:2379",
        "user:hunter2@h:1/x,https://u:hunter2@i/",
        "https://user:hunter2/b64+==@h:2379",
        "https://user:hunter2,more@h:2379",
        "https://user:hunter2 more@h:2379",
        "https://user:hunter2@more@h:2379",
        "h:1,https://user:hunter2/more@i:99999",
    ],
)
def test_no_error_shows_the_password_in_an_address(address: str) -> None:
    error = refusal({"plugin.shop.endpoints": address})
    assert "not an address" in str(error)
    assert "hunter2" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("written", ["12x34", "${env:SHOP_PIN}"])
def test_no_error_shows_what_is_hidden(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("SHOP_PIN", "12x34")
    error = refusal({**ENDPOINTS, "plugin.shop.pin": written})
    assert str(error) == "plugin.shop.pin = *** (--set): does not read as digits"
    assert "12x34" not in "".join(traceback.format_exception(error))
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("${env:NOT_SET_ANYWHERE}", "the environment variable NOT_SET_ANYWHERE is not set"),
        ("${file:/no/such/file}", "cannot read the file /no/such/file: No such file or directory"),
        ("${file:~nobody-at-all/x}", "cannot read the file ~nobody-at-all/x: Could not determine"),
        ("${file:/}", "cannot read the file /: Is a directory"),
        ("${vault:shop}", "write ${env:NAME} or ${file:/path}"),
        ("${env:\ud800}", "the environment variable \ud800 is not set"),
        ("${file:\ud800}", "cannot read the file \ud800: 'utf-8' codec can't encode"),
        ("${env:}", "write ${env:NAME} or ${file:/path}"),
        ("${env:SHOP", "write ${env:NAME} or ${file:/path}"),
        ("${SHOP}", "write ${env:NAME} or ${file:/path}"),
    ],
)
def test_a_reference_that_leads_nowhere_names_key_and_target(written: str, complaint: str) -> None:
    error = refusal({**ENDPOINTS, "plugin.shop.user": written})
    assert str(error).startswith(f"plugin.shop.user (--set): {complaint}")


def test_a_referred_file_that_is_no_text_is_refused_unseen(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"SECRET\xff")
    error = refusal({**ENDPOINTS, "plugin.shop.user": f"${{file:{tmp_path}/key}}"})
    assert str(error).endswith("key is not UTF-8 text")
    assert error.__context__ is None


def test_only_what_is_built_is_looked_up() -> None:
    both = load({**ENDPOINTS, "plugin.other.password": "${env:NOT_SET_ANYWHERE}"})
    assert build(ShopSettings, both).endpoints == (Address("a", 1),)


# -- unknown keys


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreSettings:
    depth: int = setting("plugin.more.depth", integer(), default=1, doc="How deep")


def check(properties: dict[str, str], *, other_stores: tuple[str, ...] = ()) -> None:
    check_keys(load(properties), (ShopSettings, MoreSettings), other_stores=other_stores)


def test_known_keys_pass() -> None:
    check({**ENDPOINTS, "shop.connect": "a", "plugin.more.depth": "1"})


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError) as refused:
        check({"plugin.shop.pasword": "hunter2", "plugin.more.dept": "3", "x": "y"})
    assert str(refused.value).splitlines() == [
        "plugin.shop.pasword (mapping) is not a setting (did you mean plugin.shop.password?)",
        "plugin.more.dept (mapping) is not a setting (did you mean plugin.more.depth?)",
        "x (mapping) is not a setting: remove it; `kip30 config` lists all settings",
    ]


def test_keys_of_other_stores_pass() -> None:
    written = {"plugin.vault.endpoints": "a", "zoo.connect": "b"}
    check(written, other_stores=("vault", "zoo"))
    with pytest.raises(ConfigError, match=r"plugin.vault.endpoints .*\nzoo.connect"):
        check(written, other_stores=("vaul", "zo"))


def test_keys_of_well_known_stores_pass_though_these_are_not_installed() -> None:
    check({"plugin.etcd.endpoints": "a", "zookeeper.connect": "b"})


@dataclass(frozen=True, kw_only=True)
class EtcdSettings:
    endpoints: str = setting("plugin.etcd.endpoints", text, default="a", doc="Where")


def test_keys_of_the_well_known_store_in_use_are_looked_at() -> None:
    with pytest.raises(ConfigError, match=r"did you mean plugin.etcd.endpoints\?"):
        check_keys(load({"plugin.etcd.endpoint": "a"}), (EtcdSettings,), other_stores=())


@dataclass(frozen=True, kw_only=True)
class LiteralSettings:
    name: str = setting("plugin.x.name", text, default="a", literal=True, doc="Who")


def test_a_reference_is_refused_where_others_show_the_value() -> None:
    with pytest.raises(ConfigError) as refused:
        build(LiteralSettings, load({"plugin.x.name": "${env:SECRET}"}))
    assert str(refused.value) == (
        "plugin.x.name (mapping) must be written out, not taken from ${...}"
    )


def test_borrowed_keys_pass(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\nzookeeper.connection.timeout.ms=18000\nplugin.typo=1\n")
    with pytest.raises(ConfigError) as refused:
        check_keys(load(file), (ShopSettings,), other_stores=())
    assert str(refused.value).startswith("plugin.typo (")
    assert "zookeeper" not in str(refused.value)


def test_a_wrong_default_is_found_when_it_is_declared() -> None:
    with pytest.raises(ValueError, match="too small"):
        setting("plugin.x", integer(minimum=1), default=0, doc="")


# -- secrets that are rotated


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedSettings:
    password: Secret | None = setting(  # noqa: RUF009  it describes a field
        "plugin.shop.password", secret, default=None, secret=True, doc="Their password"
    )


def _rotated(written: str) -> Secret:
    password = build(RotatedSettings, load({"plugin.shop.password": written})).password
    assert password is not None
    return password


def test_a_secret_is_read_again_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old\n")
    password = _rotated(f"${{file:{file}}}")
    assert password.current() == "old"
    file.write_text("new\n")
    assert password.current() == "new"
    assert "new" not in repr(password)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("")])
def test_an_unusable_file_leaves_the_former_secret(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    password = _rotated(f"${{file:{file}}}")
    damage(file)
    assert [password.current() for _ in range(3)] == ["old"] * 3
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "the former secret stays in use"
    ]
    file.write_text("new")
    assert password.current() == "new"


def test_a_secret_of_the_environment_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "old")
    password = _rotated("${env:SHOP_PASSWORD}")
    monkeypatch.delenv("SHOP_PASSWORD")
    assert password.current() == "old"


def test_secrets_are_compared_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
