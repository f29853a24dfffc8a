"""Topics and groups as the admin API says them: what may be asked, what is shown.

Times are milliseconds, sizes bytes; null means "no limit". A field left out of a change stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from adapters.definitions import DeadLetterDefined
from gateway.admin.resources.declared_shapes import NORMAL, WORK
from kernel.api.model import (
    DEFAULT_GROUP,
    DeadLetter,
    GroupOptions,
    HalfOptions,
    Overflow,
    Start,
    TopicKind,
    TopicOptions,
)
from kernel.api.tracing import TraceMode
from kernel.common.errors import Code, KernelError
from kernel.common.limits import RESERVED_PREFIXES
from kernel.definitions.topic_sizes import Above

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.admin.resources.declared_shapes import DeclaredShapes
    from kernel.api.model import TopicInfo

STREAM_QUEUES = 8
STREAM_RETENTION_MS = 72 * 3_600_000
"""What a stream has unless its creator says otherwise (docs/design/model.md#topics-and-queues)."""

Positive = Annotated[int, Meta(ge=1, le=2**62)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]


class TopicFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a topic that may change while it lives."""

    message_ttl_ms: Milliseconds | UnsetType | None = UNSET
    message_bytes_max: Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)] | UnsetType = UNSET
    messages_max: Positive | UnsetType | None = UNSET
    overflow: Overflow | UnsetType = UNSET
    retention_ms: Positive | UnsetType | None = UNSET
    deduplication_ms: Positive | UnsetType | None = UNSET
    unused_expiry_ms: Positive | UnsetType | None = UNSET
    tree: bool | UnsetType = UNSET
    """Part of the topic tree (docs/design/model.md#the-topic-tree); on for what is made here,
    unless told."""


class TopicNew(TopicFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to be created. A stream has 8 queues unless told otherwise, a work topic 1."""

    name: str
    type: str = NORMAL
    queues: Annotated[int, Meta(ge=1, le=256)] | UnsetType = UNSET
    priority_max: Annotated[int, Meta(ge=0, le=255)] | UnsetType = UNSET


class GroupFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a consumer group that may change while it lives."""

    ordered: bool | UnsetType = UNSET
    attempts_max: Positive | UnsetType | None = UNSET
    dead_letter: DeadLetterDefined | UnsetType | None = UNSET
    lease_ms: Annotated[int, Meta(ge=1, le=43_200_000)] | UnsetType = UNSET
    in_flight_max: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    single_active_consumer: bool | UnsetType = UNSET


class GroupNew(GroupFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group to be created on a topic."""

    name: str
    start: Start | UnsetType = UNSET
    """Where it begins: `earliest` unless told."""


class GroupShown(Struct, frozen=True, kw_only=True):
    """A group with its figures of now."""

    topic: str
    name: str
    ready: int
    leased: int
    delayed: int
    expired: int
    """Lost unacked because they were too old, since the group began."""
    oldest_age_ms: int | None
    consumers: int
    options: GroupOptions


class QueueShown(Struct, frozen=True, kw_only=True):
    """One queue: `messages` are those between its first and its next offset."""

    number: int
    raft_group: int
    first_offset: int
    next_offset: int
    sealed: bool
    """It takes nothing new, and goes once it is consumed: the topic was resized."""
    once: bool
    """It takes only what is published exactly once: the topic was spread over Raft groups."""


class TopicShown(Struct, frozen=True, kw_only=True):
    """A topic in a listing. `ready` is that of the group that is furthest behind."""

    name: str
    type: str
    durable: bool
    queues: int
    groups: int
    ready: int
    leased: int
    size: SizeShown | None
    """None: it keeps the queues that it has, and its publishers are bounded by limits only."""


class OptionsShown(Struct, frozen=True, kw_only=True):
    """A topic's settings (`kernel.api.model.TopicOptions`) without what is opaque or shown
    elsewhere.
    """

    kind: TopicKind
    durable: bool
    delete_when_unused: bool
    unused_expiry_ms: int | None
    message_ttl_ms: int | None
    message_bytes_max: int
    messages_max: int | None
    bytes_max: int | None
    overflow: Overflow
    priority_max: int
    retention_ms: int | None
    retention_bytes: int | None
    tree: bool
    deduplication_ms: int | None
    half: HalfOptions


class Figures(Struct, frozen=True):
    """Messages and bytes a second; 0: that figure bounds nothing."""

    messages: float
    bytes: float


class SizeShown(Struct, frozen=True):
    """Between which sizes a topic grows and shrinks by itself; the same one twice: it keeps it."""

    min: Figures
    max: Figures
    by_key: bool
    spread: bool
    above: Above
    """What becomes of publishers above the largest one."""
    now: Figures
    """That of the queues it has."""


class TopicDetails(Struct, frozen=True, kw_only=True):
    """A topic by itself."""

    name: str
    type: str
    version: int
    hidden: bool
    options: OptionsShown
    declared_by: list[str]
    queues: list[QueueShown]
    trace: TraceMode
    """Which of its messages are traced (`topic_traces`)."""
    size: SizeShown | None
    """As in `TopicShown`."""
    groups: list[GroupShown]
    unspelled_by: list[str]
    """Protocols served here whose clients cannot name it."""


def options_shown(options: TopicOptions) -> OptionsShown:
    """A topic's settings, as they are shown."""
    names = OptionsShown.__struct_fields__
    return OptionsShown(**{name: getattr(options, name) for name in names})


def new_topic(
    asked: TopicNew, declared: DeclaredShapes, spelled: Mapping[str, bool]
) -> tuple[TopicOptions, Mapping[str, GroupOptions]]:
    """Options and groups of a topic to be created. `spelled`: whether the clients of each protocol
    that is served can spell its name. Raises KernelError INVALID_ARGUMENT.
    """
    check_new_name("topic", asked.name)
    declared.check(asked.type, spelled)
    if spelled and not any(spelled.values()):
        message = f"no client of {', '.join(spelled)}, which are served here, can spell this name"
        raise KernelError(Code.INVALID_ARGUMENT, message)
    if asked.type == WORK:
        return changed(TopicOptions(queues=_or(asked.queues, 1), tree=True), asked), {
            DEFAULT_GROUP: GroupOptions()
        }
    options = TopicOptions(
        kind=TopicKind.STREAM,
        queues=_or(asked.queues, STREAM_QUEUES),
        retention_ms=STREAM_RETENTION_MS,
        tree=True,
    )
    return declared.typed(changed(options, asked), asked.type), {}


def changed(options: TopicOptions, asked: TopicFields) -> TopicOptions:
    """Options with the fields asked for."""
    return msgspec.structs.replace(options, **_given(asked, ("name", "type", "queues")))


def new_group(asked: GroupNew, topic: TopicInfo, declared: DeclaredShapes) -> GroupOptions:
    """Options of a group to be created: as adapters count on, unless asked for others. Raises
    KernelError INVALID_ARGUMENT.
    """
    check_new_name("group", asked.name)
    return changed_group(declared.groups.options(topic, asked.name), asked)


def changed_group(options: GroupOptions, asked: GroupFields) -> GroupOptions:
    """Options with the fields asked for."""
    given = _given(asked, ("name",))
    target = given.get("dead_letter")
    if target is not None:
        given["dead_letter"] = DeadLetter(target.router, target.key)
    return msgspec.structs.replace(options, **given)


def check_new_name(what: str, name: str) -> None:
    """Raise KernelError INVALID_ARGUMENT if only the server may give a thing this name."""
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            message = f"the name of a {what} may not begin with {prefix}: that is reserved"
            raise KernelError(Code.INVALID_ARGUMENT, message)
    if not name.isprintable():
        raise KernelError(Code.INVALID_ARGUMENT, f"the name of a {what} must be printable")


def _or(value: int | UnsetType, default: int) -> int:
    return default if isinstance(value, UnsetType) else value


def _given(asked: Struct, besides: tuple[str, ...]) -> dict[str, Any]:
    """The fields that were given, by name."""
    fields = ((name, getattr(asked, name)) for name in asked.__struct_fields__)
    return {name: value for name, value in fields if value is not UNSET and name not in besides}
