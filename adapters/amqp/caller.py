"""On whose behalf a connection asks for something, and whether it may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.amqp.errors import ACCESS_REFUSED, AmqpError
from adapters.amqp.names import amqp_key, resource
from adapters.tree_rights import ANY_TOPIC
from auth.policies.policy_rules import ResourceKind, kind_of
from auth.principal import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adapters.base import Rights
    from adapters.tree_rights import Needed
    from auth.policies.policy_rules import Permission
    from kernel.api.client import Session
    from kernel.quotas.account import Account


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf something is asked for: one open connection."""

    tenant: str
    virtual_host: str
    """What the client calls the tenant: for error texts."""
    rights: Rights
    session: Session
    account: Account
    """What it is limited by."""

    @property
    def user_ids(self) -> tuple[bytes, bytes]:
        """What the client may call itself in the property user-id: first what it most likely does.

        Some clients send what they have signed in with, `TENANT:USER`, without being told to.
        """
        who = self.rights.principal
        name, login = who.name.encode(), f"{who.tenant}:{who.name}".encode()
        return (name, login) if who.tenant == DEFAULT_TENANT else (login, name)

    def require(self, number: Permission, what: str, name: str, shown: str = "") -> None:
        """Raise AmqpError 403 unless the principal may use `name` (a `what`) so."""
        if not self.rights.allows(number, name):
            where = resource(what, shown or name, self.virtual_host)
            user = self.rights.principal.name
            raise AmqpError(ACCESS_REFUSED, f"access to {where} refused for user '{user}'")

    def require_all(self, needed: Iterable[Needed]) -> None:
        """Raise AmqpError 403 unless the principal has all of it."""
        for number, name in needed:
            kind = kind_of(number)
            shown = (
                "*" if name == ANY_TOPIC else amqp_key(name) if kind is ResourceKind.TREE else name
            )
            self.require(number, _WORDS[kind], name, shown)


_WORDS: Final = {
    ResourceKind.TOPIC: "queue",
    ResourceKind.ROUTER: "exchange",
    ResourceKind.TREE: "topic",
}
"""What error texts call things."""
