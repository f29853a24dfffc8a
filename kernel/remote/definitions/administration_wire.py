"""Changes of definitions as bytes: the question that a gateway puts to the leader of the group that
decides a change, and its answer.

    gateway                                        store
      ADMINISTER (group, identity, change)  ---->  carried out once under that identity
             <----  answer: (indexes, result), or NOT_LEADER, BUSY, TIMEOUT, UNKNOWN_OUTCOME

`indexes` are those of the last entries that have changed definitions, by group, when the answer
was given: whoever has mirrored these sees the change. A refusal has them too, since it may speak of
something that the gateway has not heard of yet.

Everything that comes is checked against the types of the fields; bounds of names and options are
the administrator's to check, for changes of its own process as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ...api import changes
from ...api.model import GroupOptions, Route, RouterInfo, RouterOptions, TopicInfo, TopicOptions
from ...common.errors import Code, KernelError, error_named
from ...common.ids import METADATA_GROUP, RaftGroup
from ...common.placement import home_group
from ...requests.leader import Identity
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_numbers import U16, U32, U64, Name
from ..leader_calls.call_wire import WireError, decode

ADMINISTER = calls.ADMINISTRATION[0]

GROUPS_MAX = 1_024
"""Consumer groups of one PutTopic: far more than an adapter makes at a time."""


class PutTopic(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """`changes.PutTopic` without its session, which only transient topics need."""

    tenant: Name
    name: Name
    options: TopicOptions
    groups: Annotated[dict[Name, GroupOptions], Meta(max_length=GROUPS_MAX)]
    must_be_new: bool
    reserved_name: bool


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Carries a `changes.DeleteTopic`."""

    tenant: Name
    name: Name
    if_unused: bool
    if_empty: bool


class ResizeTopic(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Carries a `changes.ResizeTopic`."""

    tenant: Name
    name: Name
    queues: int
    by_key: bool


class PurgeTopic(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Carries a `changes.PurgeTopic`."""

    tenant: Name
    name: Name
    group: Name
    in_flight: bool


class DeleteGroup(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Carries a `changes.DeleteGroup`."""

    tenant: Name
    name: Name
    group: Name


class PutRouter(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Carries a `changes.PutRouter`."""

    tenant: Name
    name: Name
    options: RouterOptions
    must_be_new: bool
    reserved_name: bool


class DeleteRouter(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Carries a `changes.DeleteRouter`."""

    tenant: Name
    name: Name
    if_unused: bool


class PutRoute(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Carries a `changes.PutRoute`."""

    tenant: Name
    router: Name
    route: Route


class DeleteRoute(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Carries a `changes.DeleteRoute`."""

    tenant: Name
    router: Name
    route: Route


class PutRecord(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Carries a `changes.PutRecord`."""

    key: str
    value: bytes | None
    expected: U64 | None


class StartMove(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Carries a `changes.StartMove`."""

    tenant: Name
    name: Name
    group: Name
    destination: Name | None
    per_second: int | None
    back_to: tuple[Name, ...] | None = None


class CancelMove(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Carries a `changes.CancelMove`."""

    tenant: Name
    name: Name
    task: str


class PurgeBefore(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Carries a `changes.PurgeTopic` with `before_ms`: builds that do not know of that must not
    take it for one of everything.
    """

    tenant: Name
    name: Name
    group: Name
    in_flight: bool
    before_ms: U64


class StartMoveOfSome(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Carries a `changes.StartMove` with `messages_max`; of its own as `PurgeBefore`."""

    tenant: Name
    name: Name
    group: Name
    destination: Name | None
    per_second: int | None
    back_to: tuple[Name, ...] | None
    messages_max: U64


class SpreadTopic(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Carries a `changes.ResizeTopic` with `spread`; of its own as `PurgeBefore`."""

    tenant: Name
    name: Name
    queues: int
    by_key: bool
    spread: bool


Change = (
    PutTopic
    | DeleteTopic
    | PurgeTopic
    | DeleteGroup
    | PutRouter
    | DeleteRouter
    | PutRoute
    | DeleteRoute
    | PutRecord
    | StartMove
    | CancelMove
    | PurgeBefore
    | StartMoveOfSome
    | ResizeTopic
    | SpreadTopic
)


class Question(msgspec.Struct, frozen=True, array_like=True):
    """What an ADMINISTER asks of the leader of a group."""

    group: U16
    """The one that decides the change."""
    identity: tuple[U64, U32, U64]
    """(client, epoch, sequence): repeats of a question have the same."""
    change: Change


class _Plain(msgspec.Struct, frozen=True, array_like=True, tag=0):
    value: bool | int | str | None


class _Topic(msgspec.Struct, frozen=True, array_like=True, tag=1):
    value: TopicInfo


class _Router(msgspec.Struct, frozen=True, array_like=True, tag=2):
    value: RouterInfo


class _Failed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    code: str
    message: str


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    indexes: dict[U16, U64]
    result: _Plain | _Topic | _Router | _Failed


_encode = msgspec.msgpack.Encoder().encode
_question = msgspec.msgpack.Decoder(Question)
_answer = msgspec.msgpack.Decoder(_Answer)
_KINDS: dict[type[changes.Administration], type[msgspec.Struct]] = {
    changes.PutTopic: PutTopic,
    changes.DeleteTopic: DeleteTopic,
    changes.PurgeTopic: PurgeTopic,
    changes.ResizeTopic: ResizeTopic,
    changes.DeleteGroup: DeleteGroup,
    changes.PutRouter: PutRouter,
    changes.DeleteRouter: DeleteRouter,
    changes.PutRoute: PutRoute,
    changes.DeleteRoute: DeleteRoute,
    changes.PutRecord: PutRecord,
    changes.StartMove: StartMove,
    changes.CancelMove: CancelMove,
}
_CHANGES: dict[type[msgspec.Struct], type[changes.Administration]] = {
    **{packed: change for change, packed in _KINDS.items()},
    PurgeBefore: changes.PurgeTopic,
    StartMoveOfSome: changes.StartMove,
    SpreadTopic: changes.ResizeTopic,
}


def _kind_of(change: changes.Administration) -> type[msgspec.Struct]:
    """What carries a change."""
    if isinstance(change, changes.PurgeTopic) and change.before_ms is not None:
        return PurgeBefore
    if isinstance(change, changes.StartMove) and change.messages_max is not None:
        return StartMoveOfSome
    if isinstance(change, changes.ResizeTopic) and change.spread:
        return SpreadTopic
    return _KINDS[type(change)]


def decides(groups: Sequence[RaftGroup], change: changes.Administration) -> RaftGroup:
    """The group whose leader carries a change out; `groups`: `placement.home_groups`."""
    if isinstance(change, changes.PutRecord):
        return METADATA_GROUP
    return home_group(groups, change.tenant, changes.name_of(change))


def encode_question(
    group: RaftGroup, identity: Identity, change: changes.Administration
) -> list[bytes]:
    """ADMINISTER. Raises KernelError INVALID_ARGUMENT for what has no bytes: a number beyond 64
    bits, half a surrogate pair.
    """
    kind = _kind_of(change)
    fields = {each: getattr(change, each) for each in kind.__struct_fields__}
    if isinstance(change, changes.PutTopic):
        fields["groups"] = dict(change.groups)
    try:
        return [_encode((group, identity, kind(**fields)))]
    except (OverflowError, UnicodeEncodeError) as error:
        raise KernelError(Code.INVALID_ARGUMENT, f"no value of a change: {error}") from None


def decode_question(payload: bytes) -> tuple[RaftGroup, Identity, changes.Administration]:
    """ADMINISTER. Raises WireError."""
    head = decode(_question, payload)
    if not head.identity[0] or head.identity[0] >= 1 << 63:
        raise WireError("a change without an identity")
    packed = head.change
    fields = {each: getattr(packed, each) for each in packed.__struct_fields__}
    return RaftGroup(head.group), head.identity, _CHANGES[type(packed)](**fields)


def encode_answer(indexes: Mapping[RaftGroup, int], result: object) -> list[bytes]:
    """What a change came to: a result, or a KernelError."""
    packed: _Plain | _Topic | _Router | _Failed
    if isinstance(result, KernelError):
        packed = _Failed(result.code.wire, result.message)
    elif isinstance(result, TopicInfo):
        packed = _Topic(result)
    elif isinstance(result, RouterInfo):
        packed = _Router(result)
    else:
        assert result is None or isinstance(result, bool | int | str)
        packed = _Plain(result)
    return [_encode(_Answer({int(group): each for group, each in indexes.items()}, packed))]


def decode_answer(payload: bytes) -> tuple[dict[RaftGroup, int], object]:
    """(indexes, result or KernelError). Raises WireError."""
    answer = decode(_answer, payload)
    indexes = {RaftGroup(group): index for group, index in answer.indexes.items()}
    result = answer.result
    if isinstance(result, _Failed):
        return indexes, error_named(result.code, result.message)
    return indexes, result.value
