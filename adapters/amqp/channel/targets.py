"""What the arguments of a basic.publish lead to, remembered per connection.

The arguments, taken as bytes, are the key: a publisher that keeps sending to the same exchange with
the same routing key pays one dict look-up for parsing, rights and routing; `heads` remembers whole
beginnings of messages, frame heads included. Everything is forgotten when the kernel's topology
changes, and when rights have changed (`adapters.base.Holder`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from adapters.amqp.channel.returns import may_be_for_nobody
from adapters.amqp.codec import properties
from adapters.amqp.errors import (
    ACCESS_REFUSED,
    FRAME_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    AmqpError,
)
from adapters.amqp.limits import ROUTES_MAX
from adapters.amqp.messages.stored import attributes_of, native_prefix
from adapters.amqp.names import PREDECLARED, is_reply_address, resource, router_key
from adapters.amqp.topology.exchanges import needs_attributes
from adapters.amqp.topology.router_rights import PUBLISH_ROUTER, names_topic, through
from adapters.tree_rights import PUBLISH_TOPIC, into_topic
from kernel.common.errors import Code, KernelError, NotLoaded
from kernel.routing.destinations import united

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adapters.amqp.caller import Caller
    from adapters.amqp.messages.stamps import Stamp
    from kernel.api.client import Client, Destinations
    from kernel.api.model import TopicInfo
    from kernel.routing.destinations import Found

Head = tuple[int, "Destinations", "Stamp", bytes, int]
"""What the octets of a message before its body mean: channel number, destinations, stamp, native
block, bytes of the body."""

_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


class Target:
    """Where the publishes with the same arguments go."""

    __slots__ = (
        "exchange",
        "is_by_attributes",
        "is_mandatory",
        "is_particular",
        "key",
        "prefix",
        "route",
        "router",
        "to",
    )

    def __init__(self, exchange: str, key: str, route: bytes, *, is_mandatory: bool) -> None:
        self.exchange = exchange
        self.router = exchange
        """The exchange as the kernel's router is named."""
        self.key = key
        self.route = route
        self.prefix = native_prefix(route)
        self.is_mandatory = is_mandatory
        self.to: Destinations | None = None
        """None: unroutable (or, by attributes: to be found for each message)."""
        self.is_by_attributes = False
        self.is_particular = False
        """Each message has to be looked at: by attributes, or perhaps to be returned later."""


class Targets:
    """Targets of one connection."""

    def __init__(self, client: Client, caller: Caller) -> None:
        self._client = client
        self._caller = caller
        self.known: dict[bytes, Target] = {}
        self.heads: dict[bytes, Head] = {}
        """Beginnings of messages whose target is in `known`, has destinations, and does not look at
        their properties."""
        self.missing: tuple[str, str] | None = None
        """Exchange and key that the last NotLoaded was about, if it was a message's further key."""
        self._by_attributes: dict[str, bool] = {}
        self._version = -1
        self._rules = caller.rights.rules()

    def refresh(self) -> None:
        """Forget everything if the topology has changed."""
        version = self._client.topology_version
        if version != self._version:
            self._version = version
            self.forget()

    def forget(self) -> None:
        """Look up every target anew."""
        self.known.clear()
        self.heads.clear()
        self._by_attributes.clear()

    def recheck(self) -> None:
        """Forget everything if rights have changed."""
        rules = self._caller.rights.rules()
        if rules is not self._rules:
            self._rules = rules
            self.forget()

    def find(self, arguments: bytes) -> Target:
        """The target of a basic.publish with these arguments (without the ticket).

        Raises AmqpError: 403, 404, 540, 501; NotLoaded if `load` must be awaited first.
        """
        target = self.known.get(arguments)
        if target is not None:
            return target
        # What is known was all found by one set of rules: else what was found while a right was
        # held for a moment would outlive it.
        self.recheck()
        exchange, key, bits = _parse(arguments)
        if bits & _IMMEDIATE:
            raise AmqpError(NOT_IMPLEMENTED, "immediate=true")
        target = Target(exchange, key, arguments[:-1], is_mandatory=bool(bits & _MANDATORY))
        if exchange:
            self._find_by_router(target)
        else:
            self._find_by_name(target)
        if len(self.known) >= ROUTES_MAX:
            self.forget()
        self.known[arguments] = target
        return target

    def _find_by_name(self, target: Target) -> None:
        """The default exchange: the queue whose name is the key."""
        if not target.key.isascii():
            try:
                target.key.encode()
            except UnicodeEncodeError:
                return
        if is_reply_address(target.key):
            target.is_mandatory = False
        target.to = self._to_queue(target.key)

    def _to_queue(self, name: str) -> Destinations | None:
        """Where the default exchange sends a key. Raises AmqpError 403; NotLoaded."""
        if is_reply_address(name):
            topic = self._client.topic(self._caller.tenant, name)
        else:
            topic = self.check_queue(name)
        return None if topic is None else self._client.to_topic(topic)

    def check_queue(self, name: str) -> TopicInfo | None:
        """The queue of a name, to which the caller may publish straight; None if there is none.
        Raises AmqpError 403; NotLoaded.
        """
        self._caller.require(PUBLISH_TOPIC, "queue", name)
        topic = self._client.topic(self._caller.tenant, name)
        self._caller.require_all(into_topic(name, topic))
        return topic

    def check_key(self, exchange: str, key: str) -> None:
        """Refuse a key that the caller may not send through an exchange that it may publish to:
        of each message, and each one of its further keys. Raises AmqpError 403; NotLoaded.
        """
        tenant, sent = self._caller.tenant, router_key(exchange, key)
        topic = None
        if names_topic(exchange, sent):
            self._caller.require(PUBLISH_TOPIC, "queue", sent)
            topic = self._client.topic(tenant, sent)
        router = self._client.router(tenant, exchange)
        self._caller.require_all(through(exchange, router, sent, topic))

    def _find_by_router(self, target: Target) -> None:
        tenant = self._caller.tenant
        name = target.exchange
        if not name.isascii():
            name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        target.router = name
        by_attributes = self._by_attributes.get(name)
        if by_attributes is None:
            by_attributes = self._check_exchange(tenant, name)
        target.is_by_attributes = by_attributes
        self.check_key(name, target.key)
        if not by_attributes:
            target.to = self._to_router(name, target.key, None)
        to = target.to
        is_unsure = target.is_mandatory and to is not None and may_be_for_nobody(to)
        target.is_particular = by_attributes or is_unsure

    def _check_exchange(self, tenant: str, name: str) -> bool:
        """Whether headers decide where the exchange's messages go. Refuses what it may not do."""
        self._caller.require(PUBLISH_ROUTER, "exchange", name)
        router = self._client.router(tenant, name)
        if router is None:
            if name in PREDECLARED:
                # `Declarations.router` makes it, which has to be awaited.
                raise NotLoaded
            raise self._no_exchange(name)
        if router.options.internal:
            where = resource("exchange", name, self._caller.virtual_host)
            raise AmqpError(ACCESS_REFUSED, f"cannot publish to internal {where}")
        found = needs_attributes(lambda each: self._client.router(tenant, each), name)
        self._by_attributes[name] = found
        return found

    def destinations(self, target: Target, block: bytes) -> Destinations | None:
        """Where one message goes, whose target is by attributes; None: nowhere.

        Raises AmqpError 404 and NotLoaded.
        """
        fields = properties.split(block)
        attributes = attributes_of(properties.headers_of(fields))
        return self._to_router(target.exchange, target.key, attributes)

    def with_copies(
        self, target: Target, keys: Sequence[str], to: Destinations | None, block: bytes
    ) -> Destinations | None:
        """`to`, and where the further keys of a message lead, each of which is checked as its first
        one is. Raises AmqpError 403, 404, 540; NotLoaded, `missing` tells of what.
        """
        attributes = None
        if target.is_by_attributes:
            attributes = attributes_of(properties.headers_of(properties.split(block)))
        found = [] if to is None else [to]
        for key in keys:
            if key == target.key or not _is_text(key):
                continue
            try:
                if target.exchange:
                    self.check_key(target.router, key)
                    more = self._to_router(target.router, key, attributes)
                else:
                    more = self._to_queue(key)
            except NotLoaded:
                self.missing = (target.exchange, key)
                raise
            if more is not None:
                found.append(more)
        if not found:
            return None
        try:
            return united(cast("list[Found]", found))
        except KernelError as error:
            raise AmqpError(NOT_IMPLEMENTED, error.message) from None

    def _to_router(
        self, name: str, key: str, attributes: Mapping[str, object] | None
    ) -> Destinations | None:
        try:
            to = self._client.to_router(
                self._caller.tenant, name, router_key(name, key), attributes
            )
        except KernelError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            raise self._no_exchange(name) from None
        return to if to.count else None

    def _no_exchange(self, name: str) -> AmqpError:
        return AmqpError(NOT_FOUND, f"no {resource('exchange', name, self._caller.virtual_host)}")


def _is_text(key: str) -> bool:
    """Whether it can be a name here; no queue or key that is not UTF-8 is known."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse(arguments: bytes) -> tuple[str, str, int]:
    """Exchange, routing key and bits. Raises AmqpError 501 if they do not fill `arguments`."""
    size = len(arguments)
    key_at = 1 + arguments[0] if size else size
    if key_at >= size or key_at + 1 + arguments[key_at] + 1 != size:
        raise AmqpError(FRAME_ERROR, "method arguments are cut off")
    exchange = arguments[1:key_at].decode("utf-8", "surrogateescape")
    key = arguments[key_at + 1 : -1].decode("utf-8", "surrogateescape")
    return exchange, key, arguments[-1]
