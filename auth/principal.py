"""Who acts: a principal is a named identity of one tenant, whatever protocol it came in by.

A principal holds no rights. What it may do is looked up by its name
(`auth.policies.policy_decisions`), so that a connection that has been open for a week obeys the
policy of now, not of its login.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

DEFAULT_TENANT = "default"
"""The built-in tenant: AMQP vhost `/`, SQS account 000000000000
(docs/design/model.md#topics-and-queues)."""

NAME_BYTES_MAX = 128
"""Names of tenants, users and policies: as long as RabbitMQ's management page shows in one line."""


class PrincipalKind(Enum):
    """Where a principal comes from."""

    USER = "user"
    """A user of the store, by password or by access key."""
    DEVELOPMENT = "development"
    """The well-known login that exists only while every listener is on loopback."""
    PLUGIN = "plugin"
    """Somebody whom a plugin has let in: no user of the store."""
    OPERATOR = "operator"
    """Whoever holds the admin token of this node's data directory: may do everything."""


class SignInMode(Enum):
    """What a listener for signed requests (SQS, RocketMQ) does with the signature."""

    OFF = "off"
    """Nothing is read from it; everyone is nobody in particular."""
    IDENTIFY = "identify"
    """The access key names the principal; the signature is not checked. For test set-ups only."""
    VERIFY = "verify"
    """The signature must be right."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity that signed in. Hashable; two sign-ins of one user are equal."""

    tenant: str
    name: str
    kind: PrincipalKind = PrincipalKind.USER

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name} of tenant {self.tenant}"


OPERATOR = Principal(DEFAULT_TENANT, "operator", PrincipalKind.OPERATOR)


def split_login(login: str) -> tuple[str, str]:
    """Tenant and user name of a login as people type it.

    `alice` is alice of the tenant `default`; `acme:alice` is alice of acme (the spelling that
    RabbitMQ's MQTT plugin uses for virtual hosts). User names hold no colon, so this is exact.
    """
    tenant, colon, name = login.partition(":")
    return (tenant, name) if colon else (DEFAULT_TENANT, login)


def name_fault(what: str, name: str) -> str | None:
    """Why `name` cannot name a `what` (tenant, user, policy), or None if it can.

    1 to NAME_BYTES_MAX bytes of UTF-8, printable, no colon (it parts tenant from user in a
    login), no blank at either end (it is invisible in every listing).
    """
    if not name:
        return f"the name of a {what} is empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"the name of a {what} is not valid Unicode"
    if size > NAME_BYTES_MAX:
        return f"the name of a {what} has {size} bytes; at most {NAME_BYTES_MAX} are allowed"
    if ":" in name:
        return f"the name of a {what} may not hold a colon: it parts tenant from user in a login"
    if not name.isprintable() or name != name.strip():
        return f"the name of a {what} holds control characters, or blanks at an end"
    return None
