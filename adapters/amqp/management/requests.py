"""What a handler of the management API is given, and what it answers.

{"error": "Object Not Found", "reason": "Not Found"}        404
{"error": "bad_request", "reason": "..."}                   400
{"error": "not_authorised", "reason": "..."}                401 (as RabbitMQ: never 403)
{"error": "not_implemented", "reason": "..."}               known to RabbitMQ, not served: 501, of
                                                            what would change something 400
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from adapters.amqp.errors import ACCESS_REFUSED, NOT_FOUND, AmqpError
from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import DEFAULT_TENANT
from kernel.api.tracing import ConnectedUser
from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from adapters.amqp.caller import Caller
    from adapters.amqp.handshake import AmqpSettings
    from adapters.amqp.management.rates import Rates
    from adapters.amqp.messages.stamps import Stamps
    from adapters.amqp.topology.declaring import Declarations
    from adapters.base import Adapter, Administration, Rights
    from adapters.limiting import Limiter
    from kernel.api.client import Client
    from kernel.common.ports import Clock
    from kernel.quotas.account import Account

ADMINISTER_NODE: Final = permission(Action.ADMINISTER, ResourceKind.NODE)
ADMINISTER_TENANT: Final = permission(Action.ADMINISTER, ResourceKind.TENANT)
INSPECT_TOPIC: Final = permission(Action.INSPECT, ResourceKind.TOPIC)
INSPECT_ROUTER: Final = permission(Action.INSPECT, ResourceKind.ROUTER)

NODE: Final = "admin"
"""The node resource that stands for administering it, as in the admin API."""


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason


def not_found() -> Refused:
    return Refused(404, "Object Not Found", "Not Found")


def bad_request(reason: str) -> Refused:
    return Refused(400, "bad_request", reason)


def not_authorised(reason: str) -> Refused:
    return Refused(401, "not_authorised", reason)


def refusal_of(error: AmqpError) -> Refused:
    """The same refusal, as the management API says it."""
    if error.code == NOT_FOUND:
        return not_found()
    if error.code == ACCESS_REFUSED:
        return not_authorised(error.explanation)
    return bad_request(error.explanation)


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    status: int
    body: object = None
    """None: there is none."""
    location: str | None = None
    silent: str = ""
    """Which gateways have not answered, and why: what they have is missing."""


@dataclass(slots=True)
class UnderWay:
    """Of requests of which only some may go on at once: how many do."""

    gets: int = 0


@dataclass(frozen=True, slots=True)
class Broker:
    """What all handlers look at."""

    client: Client
    declarations: Declarations
    settings: AmqpSettings
    clock: Clock
    adapter: Adapter
    """That of AMQP, whose connections are shown."""
    administration: Administration
    """/api/v1, for what is administered."""
    changing: AbstractAsyncContextManager[None]
    """Held by who changes users: what is read stays so until it is written."""
    rates: Rates
    version: str
    started_ms: int
    stamps: Stamps
    under_way: UnderWay
    limiter: Limiter


class EverythingOf:
    """The rights of somebody who administers a tenant and belongs to another one."""

    def __init__(self, own: Rights) -> None:
        self._own = own
        self.principal = own.principal

    def allows(self, number: int, name: str, /) -> bool:
        """It allows everything."""
        return True

    def is_alive(self) -> bool:
        """As long as its user is there."""
        return self._own.is_alive()

    def rules(self) -> object:
        """Those of its user."""
        return self._own.rules()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of somebody who has signed in."""

    broker: Broker
    own: Rights
    caller_in: Any
    """Called with a tenant and rights: the `Caller`."""
    names: Mapping[str, str]
    """Those of the path, decoded."""
    query: Mapping[str, str]
    body: bytes
    reason: str = ""
    """What the header X-Reason says."""
    address: str = ""
    """Whence it comes: address and port."""

    @property
    def by(self) -> ConnectedUser:
        """Who asks, for traces of messages."""
        own = self.own.principal
        return ConnectedUser(own.tenant, own.name, "amqp", self.address, "")

    @property
    def is_administrator(self) -> bool:
        return self.own.allows(ADMINISTER_NODE, NODE)

    def account(self, caller: Caller) -> Account | None:
        """What it is limited by in publishing and getting; None: by nothing."""
        return None if self.is_administrator else caller.account

    def tenants(self) -> list[tuple[str, str]]:
        """(tenant, virtual host) of all that it may look into, its own first."""
        own = self.own.principal.tenant
        known = self.broker.settings.virtual_hosts
        others = [each for each in known if each != own and self.administers(each)]
        host_of = self.broker.settings.virtual_host_of
        return [(each, host_of(each)) for each in (own, *sorted(others))]

    def administers(self, tenant: str) -> bool:
        """Whether it may look at all that is in a tenant, as in `gateway.admin.http.callers`."""
        if self.is_administrator:
            return True
        return tenant != DEFAULT_TENANT and self.own.allows(ADMINISTER_TENANT, tenant)

    def tenant_named(self, virtual_host: str) -> str:
        """The tenant of a virtual host. Raises Refused 404, also if it is not to be seen."""
        for tenant, known in self.tenants():
            if known == virtual_host:
                return tenant
        raise not_found()

    def caller(self, tenant: str) -> Caller:
        """On whose behalf something is done in a tenant that it may look into."""
        own = self.own
        is_own = tenant == own.principal.tenant
        found: Caller = self.caller_in(tenant, own if is_own else EverythingOf(own))
        return found

    def hosts(self) -> Iterator[tuple[Caller, str]]:
        """(caller, virtual host) of the one that the path names, or of all."""
        named = self.names.get("vhost")
        if named is not None:
            yield self.caller(self.tenant_named(named)), named
            return
        for tenant, host in self.tenants():
            yield self.caller(tenant), host

    def host(self) -> Caller:
        """The caller in the virtual host that the path names."""
        return self.caller(self.tenant_named(self.names["vhost"]))

    def read(self, required: Sequence[str] = ()) -> dict[str, Any]:
        """The body as an object. Raises Refused 400."""
        try:
            found = msgspec.json.decode(self.body or b"{}")
        except UNDECODABLE:
            raise Refused(400, "bad_request", "body is not JSON") from None
        if not isinstance(found, dict):
            raise bad_request("body is no object")
        missing = [name for name in required if name not in found]
        if missing:
            raise bad_request(f"missing: {', '.join(missing)}")
        return found
