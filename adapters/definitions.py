"""What is defined in a server, as one document: what adapters make of another broker's, and what
the gateway writes and reads (`gateway.definitions`).

    format: weir-definitions/1
    limits:                        of listeners, and of every tenant without its own
      listener:amqp.tcp: {connections: 1000}
    tenants:
      default:
        tenant:   {known_as: {mqtt: acme-devices}, sign_in: true}   one that is not there is made
        policies: {senders: {rules: [allow publish topic:orders-*]}}
        users:    {alice: {policies: [senders], password_hash: $argon2id$...}}
        keys:     {AKID: {user: alice, sealed_secret: ...}}
        limits:   {tenant: {...}, 'user:alice': {...}, 'topic:orders': {...}}
        topics:   {orders: {message_ttl_ms: 60000, groups: {default: {}}, size: {max: large, ...}}}
        routers:  {shop: {match: pattern, routes: [{key: order/+, topic: orders}]}}

A setting that is left out has the default of its struct, which never changes, for what lies on
disks is read with it. Bytes are base64.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from kernel.api.model import (
    AttributesMatch,
    DeadLetter,
    GroupFilter,
    GroupOptions,
    HalfOptions,
    Route,
    RouterOptions,
    TopicOptions,
)
from kernel.api.tracing import TraceMode
from kernel.common.errors import UNDECODABLE
from kernel.definitions.sizes import Size, size_of_class
from kernel.definitions.topic_sizes import Above, TopicSize

FORMAT: Final = "weir-definitions/1"

DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Some 100,000 topics. Reading all of that stops the others for 0.6 s of CPU."""

OPAQUE: Final = "msgpack"
"""The only key of an attribute's value that JSON cannot say."""


class TenantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tenant itself."""

    known_as: dict[str, str] = {}
    """Its name by protocol, where that is not its own."""
    sign_in: bool = True
    """Whether anybody of it signs in."""


class PolicyDefined(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    rules: list[str]
    note: str = ""
    """What the rules were made of, in words of whoever made them (`rabbit_rights`)."""


class UserDefined(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user. One that is there keeps its password if none is given."""

    policies: list[str] = []
    password_hash: str = ""
    enabled: bool = True


class KeyDefined(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An access key. One that is there keeps its secret if none is given."""

    user: str
    sealed_secret: bytes = b""
    """As it lies on the disk: only a server with the same key file opens it."""
    enabled: bool = True


class HalfDefined(HalfOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `HalfOptions`."""


class FilterDefined(GroupFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As `GroupFilter`."""


class DeadLetterDefined(DeadLetter, frozen=True, forbid_unknown_fields=True):
    """As `DeadLetter`."""


class GroupDefined(GroupOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer group with its settings."""

    dead_letter: DeadLetterDefined | None = None
    filter: FilterDefined | None = None


class FiguresDefined(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What is published a second. 0: that figure bounds nothing."""

    messages: float = 0.0
    bytes: float = 0.0


class SizeDefined(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The size of a topic: from which to which, each the name of a class or figures."""

    min: str | FiguresDefined
    max: str | FiguresDefined
    by_key: bool = False
    spread: bool = False
    above: Above = Above.SERVE


class TopicDefined(TopicOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic with its settings, and its groups by name. Groups that are not named stay."""

    half: HalfDefined = HalfDefined()
    groups: dict[str, GroupDefined] = msgspec.field(default_factory=dict)
    size: SizeDefined | None = None
    """None: one that has a size keeps it."""
    trace: Literal["sample", "all"] | None = None
    """Which of its messages are traced. None: as it is."""


class RouteDefined(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route. Exactly one of `topic` and `router` is given."""

    key: str = ""
    attributes: dict[str, Any] = {}
    """By name: text, a number, true, false, null (any value), or {msgpack: base64}."""
    combine: AttributesMatch = AttributesMatch.ALL_OF
    topic: str | None = None
    router: str | None = None
    declaration: bytes = b""


class RouterDefined(RouterOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A router with its settings and routes. Routes that are not listed stay."""

    routes: list[RouteDefined] = msgspec.field(default_factory=list)


class TenantDefined(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What one tenant has, by kind and name."""

    tenant: TenantSettings | None = None
    """None: it has to be there, and stays as it is."""
    policies: dict[str, PolicyDefined] = {}
    users: dict[str, UserDefined] = {}
    keys: dict[str, KeyDefined] = {}
    limits: dict[str, dict[str, int]] = {}
    topics: dict[str, TopicDefined] = {}
    routers: dict[str, RouterDefined] = {}


class Definitions(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The whole document."""

    format: str
    limits: dict[str, dict[str, int]] = {}
    tenants: dict[str, TenantDefined] = {}


class Unlike(Struct, frozen=True):
    """Something of another broker that has no equal here, or another form."""

    what: str
    """Its name, as users of that broker know it."""
    why: str


class Foreign(Struct, frozen=True):
    """Another broker's definitions, as far as they can be said here, and what cannot."""

    definitions: Definitions
    unlike: list[Unlike]


_DEFAULTS: Final[dict[type[Struct], dict[str, Any]]] = {
    kind: msgspec.to_builtins(kind())
    for kind in (
        TenantSettings,
        UserDefined,
        GroupDefined,
        TopicDefined,
        RouteDefined,
        RouterDefined,
    )
}


def said(value: Struct) -> dict[str, Any]:
    """What a document says of a thing: plain values by name, without defaults."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    defaults = _DEFAULTS.get(type(value), {})
    kept = {name: each for name, each in found.items() if defaults.get(name, ...) != each}
    if isinstance(value, TopicDefined) and value.groups:
        kept["groups"] = {name: said(each) for name, each in value.groups.items()}
    if isinstance(value, RouterDefined) and value.routes:
        kept["routes"] = [said(each) for each in value.routes]
    return kept


def topic_options(defined: TopicDefined) -> TopicOptions:
    """A topic's settings for the kernel."""
    return msgspec.convert(_given(defined), TopicOptions)


def topic_size(defined: SizeDefined, topic: int) -> TopicSize:
    """The size of a topic (its id) for the kernel. Raises KernelError INVALID_ARGUMENT."""
    least, most = (
        size_of_class(each) if isinstance(each, str) else Size(each.messages, each.bytes)
        for each in (defined.min, defined.max)
    )
    bounds = least.messages, least.bytes, most.messages, most.bytes
    size = TopicSize(topic, *bounds, defined.by_key, defined.spread, defined.above)
    size.check()
    return size


def size_defined(size: TopicSize) -> SizeDefined:
    """What a document says of a size."""
    return SizeDefined(
        min=FiguresDefined(messages=size.messages_min, bytes=size.bytes_min),
        max=FiguresDefined(messages=size.messages_max, bytes=size.bytes_max),
        by_key=size.by_key,
        spread=size.spread,
        above=size.above,
    )


def group_options(defined: GroupDefined) -> GroupOptions:
    """A group's settings for the kernel."""
    return msgspec.convert(_given(defined), GroupOptions)


def router_options(defined: RouterDefined) -> RouterOptions:
    """A router's settings for the kernel."""
    return msgspec.convert(_given(defined), RouterOptions)


def _given(defined: Struct) -> object:
    return msgspec.to_builtins(defined)


def topic_defined(
    options: TopicOptions,
    groups: dict[str, GroupOptions],
    size: TopicSize | None = None,
    trace: TraceMode = TraceMode.OFF,
) -> TopicDefined:
    """What a document says of a topic."""
    said = msgspec.to_builtins(options)
    said["groups"] = {name: msgspec.to_builtins(groups[name]) for name in sorted(groups)}
    if trace is not TraceMode.OFF:
        said["trace"] = trace.value
    defined = msgspec.convert(said, TopicDefined)
    if size is None:
        return defined
    return msgspec.structs.replace(defined, size=size_defined(size))


def router_defined(options: RouterOptions, routes: list[RouteDefined]) -> RouterDefined:
    """What a document says of a router."""
    said = msgspec.convert(msgspec.to_builtins(options), RouterDefined)
    return msgspec.structs.replace(said, routes=routes)


def route_of(defined: RouteDefined) -> Route:
    """A route for the kernel. Raises ValueError."""
    return Route(
        key=defined.key,
        attributes=tuple((name, _packed(value)) for name, value in defined.attributes.items()),
        combine=defined.combine,
        topic=defined.topic,
        router=defined.router,
        declaration=defined.declaration,
    )


def route_defined(route: Route) -> RouteDefined:
    """What a document says of a route."""
    return RouteDefined(
        key=route.key,
        attributes={name: _unpacked(value) for name, value in route.attributes},
        combine=route.combine,
        topic=route.topic,
        router=route.router,
        declaration=route.declaration,
    )


def _packed(value: object) -> bytes:
    if isinstance(value, dict) and value.keys() == {OPAQUE}:
        return msgspec.convert(value[OPAQUE], bytes)
    if isinstance(value, dict | list):
        message = "an attribute's value is text, a number, true, false or null"
        raise ValueError(message)  # noqa: TRY004 - one kind of error for what a document says
    return msgspec.msgpack.encode(value)


def _unpacked(packed: bytes) -> object:
    """What `_packed` makes the same bytes of."""
    try:
        value = msgspec.msgpack.decode(packed)
    except UNDECODABLE:
        value = packed
    if value is None or isinstance(value, str | int | float | bool):
        said: object = msgspec.json.decode(msgspec.json.encode(value))
        if msgspec.msgpack.encode(said) == packed:
            return said
    return {OPAQUE: msgspec.to_builtins(packed)}
