"""What a change of a definition must keep to, wherever the thing lives. Raises KernelError."""

from __future__ import annotations

from ..api.changes import PutRoute, PutRouter, PutTopic
from ..api.filters import compile_filter
from ..api.message import BODY_BYTES_MAX
from ..api.model import TOPICS_ROUTER, RouterOptions, TopicInfo, TopicKind, TopicOptions
from ..common.errors import Code, KernelError
from ..common.ids import QUEUES_PER_TOPIC_MAX
from ..common.limits import GROUP_NAME_BYTES_MAX, NAME_BYTES_MAX, RESERVED_PREFIXES, UNUSED_MS_MIN
from ..common.names import ByName
from ..quotas.limits import LimitSet


def check_name(tenant: str, name: str) -> None:
    """INVALID_ARGUMENT for a tenant or a name that nothing can have."""
    _check_length(tenant, NAME_BYTES_MAX, "tenant")
    _check_length(name, NAME_BYTES_MAX, "name")


def check_topic(change: PutTopic, known: TopicInfo | None) -> None:
    """Whether the topic can become what is asked for; `known`: what it is now."""
    options = change.options
    if not 1 <= options.queues <= QUEUES_PER_TOPIC_MAX:
        raise KernelError(Code.INVALID_ARGUMENT, f"queues must be 1 to {QUEUES_PER_TOPIC_MAX}")
    for name, group in change.groups.items():
        _check_length(name, GROUP_NAME_BYTES_MAX, "group")
        compile_filter(group.filter)
        if group.unused_ms is not None and group.unused_ms < UNUSED_MS_MIN:
            raise KernelError(Code.INVALID_ARGUMENT, f"unused_ms must be at least {UNUSED_MS_MIN}")
    if options.durable and options.owner is not None:
        message = "a topic that goes with its owner's session is not durable"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    _check_limits(options)
    if known is None:
        if not change.reserved_name:
            _check_not_reserved(change.name)
        return
    if change.must_be_new:
        raise KernelError(Code.ALREADY_EXISTS, f"topic {change.name} exists")
    fixed = known.options
    if (fixed.kind, fixed.durable, fixed.queues) != (options.kind, options.durable, options.queues):
        raise KernelError(
            Code.ALREADY_EXISTS,
            f"topic {change.name} exists with another kind, durability or number of queues",
        )


def check_resize(topic: TopicInfo, *, by_key: bool) -> None:
    """NOT_ALLOWED for a topic that keeps the queues it has: what is ordered as a queue, and what a
    queue alone can know. `by_key`: that its messages have no order but that of their keys is known.
    """
    options = topic.options
    # As long as nobody has resized it: later everything is in the order of its key already.
    has_one = len(topic.queues) == 1 and not topic.ring
    reasons = {
        "it lives in memory": not options.durable,
        "it has priorities": options.priority_max > 0,
        "it may hold only so many messages": (options.messages_max, options.bytes_max)
        != (None, None),
        "its deduplication ids may be those of the whole topic; they belong to a key in one that "
        "was made with several queues": options.deduplication_ms is not None and has_one,
        "it is a stream, whose readers keep offsets in each queue": options.kind
        is TopicKind.STREAM,
        "its messages come in the order of its one queue; say that they need none but that of "
        "their keys (--by-key)": has_one
        and not by_key
        and not all(each.ordered for each in topic.groups.values()),
        "one consumer at a time gets its deliveries": any(
            each.single_active_consumer for each in topic.groups.values()
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise KernelError(Code.NOT_ALLOWED, f"topic {topic.name} cannot be resized: {reason}")


def check_room(
    change: PutTopic, known: TopicInfo | None, allowed: LimitSet, topics: ByName[TopicInfo]
) -> None:
    """LIMIT_EXCEEDED for a topic or a group that its tenant may not have any more. What there is
    stays, and may change; others that are just being made elsewhere are not counted.
    """
    if (
        allowed.topics is not None
        and known is None
        and topics.count(change.tenant) >= allowed.topics
    ):
        message = f"the tenant has {allowed.topics} topics, and may have no more"
        raise KernelError(Code.LIMIT_EXCEEDED, message)
    new = change.groups.keys() - (known.groups.keys() if known is not None else ())
    if allowed.groups is None or not new:
        return
    groups = sum(len(each.groups) for each in topics.of(change.tenant))
    if groups + len(new) > allowed.groups:
        message = f"the tenant may have {allowed.groups} groups, and has {groups}"
        raise KernelError(Code.LIMIT_EXCEEDED, message)


def check_router(change: PutRouter, known: RouterOptions | None) -> None:
    """Whether the router can become what is asked for; `known`: what it is now."""
    check_not_built_in(change.name)
    if known is None:
        if not change.reserved_name:
            _check_not_reserved(change.name)
        return
    if known.durable != change.options.durable:
        raise KernelError(
            Code.ALREADY_EXISTS, f"router {change.name} exists with another durability"
        )
    if change.must_be_new:
        raise KernelError(Code.ALREADY_EXISTS, f"router {change.name} exists")


def check_route(change: PutRoute) -> None:
    """Whether a route can be what is asked for; not, whether its ends exist."""
    route = change.route
    if (route.topic is None) == (route.router is None):
        raise KernelError(Code.INVALID_ARGUMENT, "a route leads to one topic or one router")
    if route.router is not None and TOPICS_ROUTER in {route.router, change.router}:
        raise KernelError(Code.NOT_ALLOWED, f"{TOPICS_ROUTER} copies to topics only")


def check_not_built_in(name: str) -> None:
    """NOT_ALLOWED for the router that every tenant has."""
    if name == TOPICS_ROUTER:
        raise KernelError(Code.NOT_ALLOWED, f"router {name} is built in")


def _check_length(name: str, bytes_max: int, what: str) -> None:
    if not name or len(name.encode()) > bytes_max:
        raise KernelError(Code.INVALID_ARGUMENT, f"{what} must have 1 to {bytes_max} bytes")


def _check_not_reserved(name: str) -> None:
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            raise KernelError(
                Code.INVALID_ARGUMENT, f"a name may not begin with {prefix}: that is reserved"
            )


def _check_limits(options: TopicOptions) -> None:
    """Refuse limits out of bounds, and those that a topic of this kind does not have."""
    if not 1 <= options.message_bytes_max <= BODY_BYTES_MAX:
        raise KernelError(Code.INVALID_ARGUMENT, f"message_bytes_max must be 1 to {BODY_BYTES_MAX}")
    stream = options.kind is TopicKind.STREAM
    wrong = "bytes_max" if stream and options.bytes_max is not None else None
    if not stream and options.retention_bytes is not None:
        wrong = "retention_bytes"
    if wrong is not None:
        raise KernelError(
            Code.INVALID_ARGUMENT,
            f"a {options.kind.value} topic has no {wrong}: bytes_max is for work topics, "
            "retention_bytes for streams",
        )
    for name, value in (
        ("bytes_max", options.bytes_max),
        ("retention_bytes", options.retention_bytes),
    ):
        if value is not None and value < 0:
            raise KernelError(Code.INVALID_ARGUMENT, f"{name} must not be negative")
