"""Contradictions are refused when the settings are made, before anything is sent."""

import math
from typing import Any

import pytest

from kip30.coordinator.config import GroupConfig
from kip30.errors import ConfigError


def test_the_defaults_fit_the_default_session_timeout() -> None:
    GroupConfig().check_session(10.0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rebalance_timeout_seconds": 9.0}, "3 times heartbeat_seconds"),
        ({"rebalance_timeout_seconds": math.nan}, "rebalance_timeout_seconds"),
        ({"rebalance_timeout_seconds": math.inf}, "rebalance_timeout_seconds"),
        ({"rebalance_timeout_seconds": "60"}, "rebalance_timeout_seconds"),
        ({"heartbeat_seconds": 0.0}, "heartbeat_seconds"),
        ({"heartbeat_seconds": True}, "heartbeat_seconds"),
        ({"heartbeat_seconds": None}, "heartbeat_seconds"),
        ({"initial_delay_seconds": 61.0}, "initial_delay_seconds"),
        ({"initial_delay_seconds": -0.1}, "initial_delay_seconds"),
        ({"coalesce_seconds": -1}, "coalesce_seconds"),
        ({"static_grace_seconds": -1.0}, "static_grace_seconds"),
        ({"wait_for_predecessor": True}, "group_instance_id"),
        ({"max_size": 0}, "max_size"),
        ({"group_instance_id": ""}, "group_instance_id"),
        ({"group_instance_id": "i" * 254}, "name"),
        ({"group_instance_id": "\ud800"}, "name"),
        ({"client_id": "c" * 223}, "client_id"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        GroupConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"rebalance_timeout_seconds": 9.1},
        {"static_grace_seconds": None},
        {"static_grace_seconds": 0.0},
        {"wait_for_predecessor": True, "group_instance_id": "i" * 253},
        {"group_instance_id": "rack/1"},
        {"client_id": "c" * 222},
        {"max_size": 1},
        {"initial_delay_seconds": 60},
    ],
)
def test_settings_just_within_the_limits_are_accepted(settings: dict[str, Any]) -> None:
    GroupConfig(**settings)


@pytest.mark.parametrize("session", [60.0, 61.0])
def test_a_round_must_outlast_a_session(session: float) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.session\.timeout\.ms"):
        GroupConfig().check_session(session)


def test_coalescing_must_not_outlast_a_session() -> None:
    GroupConfig(coalesce_seconds=10.0).check_session(10.0)
    with pytest.raises(ConfigError, match="coalesce_seconds"):
        GroupConfig(coalesce_seconds=10.1).check_session(10.0)


def test_a_member_id_tells_the_client() -> None:
    assert GroupConfig(client_id="web").member_id("0f") == "web-0f"
