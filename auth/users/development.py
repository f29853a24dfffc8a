"""The development login, and the check that a reachable server has a login of its own.

While every listener is on loopback, everyone on the machine may use

    AMQP, MQTT       guest / guest
    SQS, RocketMQ    access key weir, secret weir-secret

which may do everything with messages and definitions and nothing with users. With any other
listener they do not exist, and the server does not start before there is a real login.
All functions here are pure: addresses and environment are parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..loopback import is_loopback
from ..policies.built_in import ADMINISTRATOR_POLICY, FULL_POLICY
from ..principal import DEFAULT_TENANT
from .records import AccessKey, User

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEVELOPMENT_USER = "guest"
DEVELOPMENT_PASSWORD = "guest"  # noqa: S105 - public on purpose, see above
DEVELOPMENT_KEY_ID = "weir"
DEVELOPMENT_SECRET = b"weir-secret"

ADMIN_PASSWORD_VARIABLE = "WEIR_ADMIN_PASSWORD"  # noqa: S105 - the name of a variable
ADMIN_USER = "admin"

ADMIN_PASSWORD_CHARACTERS_MIN = 8
"""The least that NIST SP 800-63B accepts of a password that people choose."""

# argon2id of DEVELOPMENT_PASSWORD with the costs of auth.password_checks.passwords; a test holds
# the two together.
_ARGON2 = (
    "$argon2id$v=19$m=19456,t=2,p=1"
    "$KNMZqn5HKhxP4rvPkPw5Hg$QJ4kRnPIvl7L+BCBROqLjcjLmXPMrArSJBXdo/rZ3v4"
)


@dataclass(frozen=True, slots=True)
class ReachableListener:
    """An address that the server is told to listen on. `name` is what the operator calls it."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Development:
    """The login and access key that everyone knows."""

    user: User
    access_key: AccessKey
    secret: bytes


def development_principals(listeners: Sequence[ReachableListener]) -> Development | None:
    """The development login if every listener is on loopback, else None; None without listeners."""
    if not listeners or not all(is_loopback(listener.host) for listener in listeners):
        return None
    return Development(
        User(
            tenant=DEFAULT_TENANT,
            name=DEVELOPMENT_USER,
            password_hash=_ARGON2,
            policies=(FULL_POLICY,),
        ),
        AccessKey(
            key_id=DEVELOPMENT_KEY_ID,
            tenant=DEFAULT_TENANT,
            user=DEVELOPMENT_USER,
            sealed_secret=b"",
        ),
        DEVELOPMENT_SECRET,
    )


def startup_check(
    listeners: Sequence[ReachableListener],
    user_count: int,
    environment: Mapping[str, str],
    command: str = "weir serve",
) -> str | None:
    """What to tell an operator instead of starting, or None if the server may start.

    `user_count`: users in the store; `command`: as typed, so that the answer can be copied.
    """
    password = environment.get(ADMIN_PASSWORD_VARIABLE, "")
    if password and len(password) < ADMIN_PASSWORD_CHARACTERS_MIN:
        return (
            f"{ADMIN_PASSWORD_VARIABLE} has {len(password)} characters; "
            f"at least {ADMIN_PASSWORD_CHARACTERS_MIN} are needed. Choose another:\n\n"
            f"{_ask_and_start(command)}"
        )
    reachable = [listener for listener in listeners if not is_loopback(listener.host)]
    if not reachable or user_count or password:
        return None
    where = ", ".join(f"{each.name} on {each.host or '*'}:{each.port}" for each in reachable)
    return (
        f"Other machines could reach this server ({where}), and it has no user yet.\n"
        f"The development login ({DEVELOPMENT_USER}, access key {DEVELOPMENT_KEY_ID}) exists only "
        "while every listener is on loopback.\n"
        f"Give the user '{ADMIN_USER}' a password of at least {ADMIN_PASSWORD_CHARACTERS_MIN} "
        f"characters and start again:\n\n{_ask_and_start(command)}"
    )


def _ask_and_start(command: str) -> str:
    """A line for a shell that keeps the password out of its history and the process list."""
    return (
        f"    read -rsp 'Password for {ADMIN_USER}: ' {ADMIN_PASSWORD_VARIABLE} && "
        f"export {ADMIN_PASSWORD_VARIABLE} && {command}\n"
    )


def first_administrator(password_hash: str, created_ms: int) -> User:
    """The user that ADMIN_PASSWORD_VARIABLE makes when the store has no user at all."""
    return User(
        tenant=DEFAULT_TENANT,
        name=ADMIN_USER,
        password_hash=password_hash,
        policies=(ADMINISTRATOR_POLICY,),
        created_ms=created_ms,
    )
