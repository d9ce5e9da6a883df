"""The settings every store shares, and what they say of each other."""

from pathlib import Path

import pytest

from kip30.config import CommonSettings, Written, build, load, reference
from kip30.errors import ConfigError


def common(**written: Written) -> CommonSettings:
    return build(
        CommonSettings,
        load({f"plugin.{key.replace('_', '.')}": value for key, value in written.items()}),
    )


def test_defaults() -> None:
    settings = common()
    assert (settings.backend, settings.locator_classname) == (None, None)
    assert settings.additional_paths == ()
    assert settings.namespace == "kip30"
    assert settings.session_timeout_seconds == 10
    assert settings.operation_timeout_seconds == 5
    assert settings.connect_timeout_seconds == 10
    assert settings.margin_seconds == 1


def test_takes_what_is_written() -> None:
    settings = common(
        backend="etcd",
        additional_paths="/a,/b",
        namespace="shop",
        session_timeout_ms=3000,
        operation_timeout_ms=3000,
        connect_timeout_ms=1,
        lease_margin_ms=1499,
    )
    assert settings.backend == "etcd"
    assert settings.additional_paths == (Path("/a"), Path("/b"))
    assert settings.namespace == "shop"
    assert settings.session_timeout_seconds == 3
    assert settings.operation_timeout_seconds == 3
    assert settings.connect_timeout_seconds == 0.001
    assert settings.margin_seconds == 1.499


def test_the_additional_paths_have_the_name_of_the_patch_too() -> None:
    assert common(additional_jars="/a,/b").additional_paths == (Path("/a"), Path("/b"))
    both = common(additional_jars="/a, /b", additional_paths="/a,/b")
    assert both.additional_paths == (Path("/a"), Path("/b"))
    with pytest.raises(ConfigError, match=r"different values: keep plugin\.additional\.paths"):
        common(additional_jars="/a", additional_paths="/b")
    with pytest.raises(ConfigError, match=r"plugin\.additional\.jars .* must be written out"):
        common(additional_jars="${env:HOME}")


def test_the_computed_defaults_follow_the_session_timeout() -> None:
    settings = common(session_timeout_ms=2000)
    assert settings.operation_timeout_seconds == 2
    assert settings.margin_seconds == 0.2


def test_the_session_timeout_has_a_floor() -> None:
    with pytest.raises(ConfigError, match=r"'99' .*: too small; write at least 100"):
        common(session_timeout_ms=99)
    assert common(session_timeout_ms=100).session_timeout_seconds == 0.1


def test_an_operation_may_not_outlast_the_session() -> None:
    with pytest.raises(ConfigError, match=r"operation.timeout.ms .*session.timeout.ms: lower"):
        common(session_timeout_ms=3000, operation_timeout_ms=3001)


def test_the_margin_is_below_half_of_the_session_timeout() -> None:
    with pytest.raises(ConfigError, match=r"lease.margin.ms .*session.timeout.ms: lower"):
        common(session_timeout_ms=3000, lease_margin_ms=1500)


def test_only_one_key_may_name_the_store() -> None:
    with pytest.raises(ConfigError, match=r"plugin.backend and plugin.locator.classname"):
        common(backend="etcd", locator_classname="shop:Backend")


def test_every_setting_is_described() -> None:
    for row in reference(CommonSettings):
        assert row.doc
        assert row.key.startswith("plugin.")
        assert row.default is not None
