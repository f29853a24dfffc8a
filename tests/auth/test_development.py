from __future__ import annotations

import pytest

from auth.password_checks.passwords import (
    LANES,
    MEMORY_COST_KIB,
    TIME_COST,
    hash_password,
    verify_password,
)
from auth.users.development import (
    ADMIN_PASSWORD_CHARACTERS_MIN,
    ADMIN_PASSWORD_VARIABLE,
    DEVELOPMENT_PASSWORD,
    ReachableListener,
    development_principals,
    first_administrator,
    is_loopback,
    startup_check,
)
from auth.users.records import Create
from auth.users.store import AuthStore

LOOPBACK = [ReachableListener("amqp", "127.0.0.1", 5672), ReachableListener("sqs", "::1", 9324)]
REACHABLE = [*LOOPBACK, ReachableListener("mqtt", "0.0.0.0", 1883)]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"],
)
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "*", "0.0.0.0", "::", "[::]", "10.0.0.1", "example.com", "localhost.example.com",
     "::ffff:10.0.0.1", "127.0.0.1.example.com", "127.1", "fe80::1"],
)  # fmt: skip
def test_hosts_that_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


def test_the_development_login_exists_while_every_listener_is_on_loopback() -> None:
    development = development_principals(LOOPBACK)
    assert development is not None
    assert (development.user.tenant, development.user.name) == ("default", "guest")
    assert (development.access_key.key_id, development.secret) == ("weir", b"weir-secret")
    assert verify_password(development.user.password_hash, DEVELOPMENT_PASSWORD.encode())


def test_the_development_hash_costs_what_every_other_hash_costs() -> None:
    development = development_principals(LOOPBACK)
    assert development is not None
    costs = f"m={MEMORY_COST_KIB},t={TIME_COST},p={LANES}"
    assert development.user.password_hash.split("$")[3] == costs


@pytest.mark.parametrize(
    "listener", [REACHABLE[-1], ReachableListener("sqs", "queue.internal", 9324)]
)
def test_one_reachable_listener_ends_the_development_login(listener: ReachableListener) -> None:
    assert development_principals([*LOOPBACK, listener]) is None
    assert development_principals([listener, *LOOPBACK]) is None


def test_without_listeners_there_is_no_development_login() -> None:
    assert development_principals([]) is None


def test_on_loopback_the_server_starts_without_users() -> None:
    assert startup_check(LOOPBACK, 0, {}) is None


def test_a_reachable_server_without_users_is_told_the_exact_command() -> None:
    text = startup_check(REACHABLE, 0, {}, "weir serve --set mqtt.host=0.0.0.0")
    assert text is not None
    assert "mqtt on 0.0.0.0:1883" in text
    assert "127.0.0.1" not in text
    assert text.rstrip().endswith(
        f"export {ADMIN_PASSWORD_VARIABLE} && weir serve --set mqtt.host=0.0.0.0"
    )


@pytest.mark.parametrize(
    ("users", "environment"), [(1, {}), (0, {ADMIN_PASSWORD_VARIABLE: "long enough"})]
)
def test_a_user_or_a_password_is_enough(users: int, environment: dict[str, str]) -> None:
    assert startup_check(REACHABLE, users, environment) is None


@pytest.mark.parametrize("listeners", [LOOPBACK, REACHABLE])
@pytest.mark.parametrize("users", [0, 1])
def test_a_password_that_is_too_short_is_refused_everywhere(
    listeners: list[ReachableListener], users: int
) -> None:
    short = "x" * (ADMIN_PASSWORD_CHARACTERS_MIN - 1)
    text = startup_check(listeners, users, {ADMIN_PASSWORD_VARIABLE: short})
    assert text is not None
    assert ADMIN_PASSWORD_VARIABLE in text


def test_an_empty_password_is_none() -> None:
    assert startup_check(REACHABLE, 0, {ADMIN_PASSWORD_VARIABLE: ""})


def test_the_first_administrator_can_be_stored() -> None:
    store = AuthStore()
    admin = first_administrator(hash_password(b"long enough"), created_ms=5)
    assert store.apply(Create(admin)) is None
    stored = store.user("default", "admin")
    assert stored is not None
    assert stored.policies == ("administrator",)
