"""What a gateway and a store say to each other: the calls of `leader.Leader`, and their
answers (transactions: `transaction_wire`).

    payload: u32 bytes of the head | head: msgpack of one of the structs below | bodies

Bodies (slots, a command, messages) are raw bytes behind the head, in the order in which it
names their lengths: they are never copied into it. The slots of a publish travel as the buffers
they are, and the store takes them out as one. Ranges are checked here, so that nothing that would
not fit into a log entry gets to a leader; what is wrong is a WireError, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ...api.client import LeaseVerb
from ...api.message import HEADER_BYTES, SLOT_BYTES_SMALL
from ...api.model import Reason, RouterInfo, TopicInfo, TopicStatistics
from ...broker.index.features import CUT, LARGE
from ...broker.log_commands import commands, tree_commands
from ...broker.log_commands.commands import Command
from ...broker.log_commands.resize_commands import WindowPart
from ...common.errors import UNDECODABLE, KernelError, error_named
from ...common.ids import Offset, QueueId, RaftGroup
from ...common.limits import BATCH_COMMANDS_MAX, NAME_BYTES_MAX
from ...requests.leader import Identity, LeaseChanging
from ...requests.publish_part import Part
from ...routing.tree_table import is_bad_name
from .call_numbers import (
    U64,
    CallFigures,
    ChangeLeases,
    Page,
    Peek,
    Propose,
    ProposeAll,
    Publish,
    Purge,
    Since,
    Span,
    Standing,
    StoreAddress,
    Transact,
)

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_REFUSED = frozenset({Command.LEADER_START, Command.RAISE_LEVEL})
"""What only a leader itself says: a level that a store does not understand ends it."""


class WireError(Exception):
    """Bytes that no gateway or store of this protocol sends; the text says why."""


class _Plain(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Results of most commands."""

    value: bool | int | list[int | list[tuple[int, bytes]]] | None


class _Failed(msgspec.Struct, frozen=True, array_like=True, tag=1):
    code: str
    message: str


class _Topic(msgspec.Struct, frozen=True, array_like=True, tag=2):
    value: TopicInfo


class _Router(msgspec.Struct, frozen=True, array_like=True, tag=3):
    value: RouterInfo


class _Opened(msgspec.Struct, frozen=True, array_like=True, tag=4):
    value: tree_commands.Opened


class _Belongings(msgspec.Struct, frozen=True, array_like=True, tag=5):
    value: tree_commands.Belongings


class _Window(msgspec.Struct, frozen=True, array_like=True, tag=6):
    value: WindowPart


_Result = _Plain | _Failed | _Topic | _Router | _Opened | _Belongings | _Window
_results = msgspec.msgpack.Decoder(tuple[_Result, ...])
_T = TypeVar("_T")

# --- Calls: encoded by gateways, decoded by stores ----------------------------------------------


def _message(head: object, *bodies: bytes) -> list[bytes]:
    encoded = _encode(head)
    return [_LENGTH.pack(len(encoded)) + encoded, *bodies]


class _Reader:
    """Takes bodies out, one after the other."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self._at = at

    def take(self, length: int) -> bytes:
        """The next so many bytes."""
        end = self._at + length
        if end > len(self._payload):
            raise WireError("a body is cut off")
        self._at, start = end, self._at
        return self._payload[start:end]

    def take_each(self, lengths: Sequence[int]) -> list[bytes]:
        """The next bodies, of these lengths (hot)."""
        payload, at = self._payload, self._at
        taken: list[bytes] = []
        for length in lengths:
            taken.append(payload[at : at + length])
            at += length
        if at > len(payload):
            raise WireError("a body is cut off")
        self._at = at
        return taken

    def rest(self) -> bytes:
        """All that is left."""
        return self._payload[self._at :]

    def end(self) -> None:
        """There must be no more."""
        if self._at != len(self._payload):
            raise WireError("bytes that belong to no body")


def decode(decoder: msgspec.msgpack.Decoder[_T], payload: bytes | memoryview) -> _T:
    """A message, or the head of one, that is all of these bytes. Raises WireError."""
    try:
        return decoder.decode(payload)
    except UNDECODABLE as error:
        raise WireError(str(error)) from None


def _split(payload: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> tuple[_T, _Reader]:
    if len(payload) < _LENGTH.size:
        raise WireError("no head")
    end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    if end > len(payload):
        raise WireError("the head is cut off")
    return decode(decoder, memoryview(payload)[_LENGTH.size : end]), _Reader(payload, end)


message_of, split = _message, _split
"""Of every message with bodies, those of sections too."""


def encode_publish(
    at: tuple[RaftGroup, int], identity: Identity, part: Part, origin: int
) -> list[bytes]:
    """A PUBLISH (hot); `at`: group and lane."""
    head = _encode((*at, identity, part.runs, part.lengths, origin, part.retained, part.routed))
    return [_LENGTH.pack(len(head)) + head, *part.buffers]


_publish = msgspec.msgpack.Decoder(Publish)


def decode_publish(payload: bytes) -> tuple[Publish, Part]:
    """A PUBLISH and its messages (hot)."""
    head, reader = _split(payload, _publish)
    return head, messages_of(head, reader)


def messages_of(head: Publish | Transact, reader: _Reader) -> Part:
    """The messages of a call, which fit together; how they are billed is found out here (hot)."""
    runs, lengths, retained, routed = head.runs, head.lengths, head.retained, head.routed
    whole = reader.take(sum(lengths))
    reader.end()
    slots = len(lengths)
    large = max(lengths, default=0) > SLOT_BYTES_SMALL
    for at, (queue, slot, count, bits) in enumerate(runs):
        if not count or slot + count > slots or bits & CUT:
            raise WireError(f"a run of {count} slots from {slot} on, of {slots}, bits {bits}")
        if large or bits & LARGE:
            runs[at] = queue, slot, count, graded(bits, lengths[slot : slot + count])
    if lengths and min(lengths) < HEADER_BYTES:
        raise WireError("a slot without a whole header")
    if retained:
        _check_retained(retained, slots)
    for at, (tenant, name, slot, count, bits) in enumerate(routed):
        if not count or slot + count > slots or bits & CUT or is_bad_name(name):
            raise WireError(f"{count} messages from {slot} on for the name {name[:80]!r}")
        if large or bits & LARGE:
            bits = graded(bits, lengths[slot : slot + count])  # noqa: PLW2901 - as they should be
            routed[at] = tenant, name, slot, count, bits
    return Part(runs, lengths, [whole], retained, routed)


def graded(bits: int, lengths: Sequence[int]) -> int:
    """Bits of a run whose slots have these lengths."""
    return bits & ~LARGE | LARGE * (max(lengths) > SLOT_BYTES_SMALL)


def _check_retained(retained: Sequence[tuple[str, int]], slots: int) -> None:
    tenants = {tenant for tenant, _ in retained}
    if len(tenants) >= BATCH_COMMANDS_MAX:
        raise WireError(f"messages of {len(tenants)} tenants are retained")
    if any(len(tenant.encode()) > NAME_BYTES_MAX for tenant in tenants):
        raise WireError("a tenant's name is too long")
    if any(slot >= slots for _, slot in retained):
        raise WireError("a slot is retained that is not there")


def encode_propose(
    at: tuple[RaftGroup, int], identity: Identity, change: commands.Control
) -> list[bytes]:
    """A PROPOSE."""
    kind, _, body = commands.encode_control(change)
    return _message(Propose(*at, identity, int(kind)), body)


_propose = msgspec.msgpack.Decoder(Propose)


def decode_propose(payload: bytes) -> tuple[Propose, commands.Control]:
    """A PROPOSE and its command."""
    head, reader = _split(payload, _propose)
    return head, _control(head.kind, reader.rest())


def _control(kind: int, body: bytes) -> commands.Control:
    if kind in _REFUSED or kind not in commands.CONTROL_TYPES:
        raise WireError(f"no control command of type {kind}")
    try:
        return commands.decode_control(kind, body)
    except (*UNDECODABLE, ValueError) as error:
        raise WireError(str(error)) from None


def encode_propose_all(
    at: tuple[RaftGroup, int], identity: Identity, changes: Sequence[commands.Control]
) -> list[bytes]:
    """A PROPOSE_ALL."""
    packed = [commands.encode_control(each) for each in changes]
    kinds = [(int(kind), len(body)) for kind, _, body in packed]
    return _message(ProposeAll(*at, identity, kinds), b"".join(body for _, _, body in packed))


_propose_all = msgspec.msgpack.Decoder(ProposeAll)


def decode_propose_all(payload: bytes) -> tuple[ProposeAll, list[commands.Control]]:
    """A PROPOSE_ALL and its commands."""
    head, reader = _split(payload, _propose_all)
    changes = [_control(kind, reader.take(size)) for kind, size in head.kinds]
    reader.end()
    if any(isinstance(each, commands.ResolveHalf) for each in changes):
        raise WireError("what becomes of a half message is decided alone")
    return head, changes


def encode_change_leases(
    at: tuple[RaftGroup, int],
    identity: Identity,
    queue: QueueId,
    name: str,
    changes: Sequence[LeaseChanging],
    origin: int,
) -> list[bytes]:
    """A CHANGE_LEASES."""
    columns: list[tuple[int, int, LeaseVerb, Reason, int]] = [
        (each.offset, each.lease, each.verb, each.reason, each.delay_ms) for each in changes
    ]
    sizes = (
        [each.slot_bytes for each in changes] if any(each.slot_bytes for each in changes) else []
    )
    return _message(ChangeLeases(*at, identity, queue, name, columns, origin, sizes))


_change_leases = msgspec.msgpack.Decoder(ChangeLeases)


def decode_change_leases(payload: bytes) -> tuple[ChangeLeases, list[LeaseChanging]]:
    """A CHANGE_LEASES and its changes."""
    head, reader = _split(payload, _change_leases)
    reader.end()
    if any(delay_ms >= 1 << 62 for *_, delay_ms in head.changes):
        raise WireError("a delay beyond all times")
    sizes = head.slot_bytes or [0] * len(head.changes)
    if len(sizes) != len(head.changes):
        raise WireError("slot sizes of other changes")
    return head, [
        LeaseChanging(Offset(offset), lease, verb, reason, delay_ms, size)
        for (offset, lease, verb, reason, delay_ms), size in zip(head.changes, sizes, strict=True)
    ]


def encode_purge(
    at: tuple[RaftGroup, int], identity: Identity, queue: QueueId, name: str, *, in_flight: bool
) -> list[bytes]:
    """A PURGE."""
    return _message(Purge(*at, identity, queue, name, in_flight))


_purge = msgspec.msgpack.Decoder(Purge)


def decode_purge(payload: bytes) -> Purge:
    """A PURGE."""
    head, reader = _split(payload, _purge)
    reader.end()
    return head


def encode_question(question: CallFigures | Peek | Span | Since) -> list[bytes]:
    """A FIGURES, a PEEK, a SPAN or a SINCE."""
    return _message(question)


_figures = msgspec.msgpack.Decoder(CallFigures)
_peek = msgspec.msgpack.Decoder(Peek)
_span = msgspec.msgpack.Decoder(Span)
_since = msgspec.msgpack.Decoder(Since)


def decode_figures(payload: bytes) -> CallFigures:
    """A FIGURES."""
    head, reader = _split(payload, _figures)
    reader.end()
    return head


def decode_peek(payload: bytes) -> Peek:
    """A PEEK."""
    head, reader = _split(payload, _peek)
    reader.end()
    return head


def decode_span(payload: bytes) -> Span:
    """A SPAN."""
    head, reader = _split(payload, _span)
    reader.end()
    return head


def decode_since(payload: bytes) -> Since:
    """A SINCE."""
    head, reader = _split(payload, _since)
    reader.end()
    return head


# --- Answers: encoded by stores, decoded by gateways --------------------------------------------


def encode_results(results: object) -> list[bytes]:
    """What a batch came to (`Machine.apply`). WireError for what is no such thing."""
    if not isinstance(results, tuple):
        raise WireError(f"results of type {type(results).__name__}")
    return [_encode([_result(each) for each in results])]


def _result(value: object) -> _Result:
    if isinstance(value, KernelError):
        return _Failed(value.code.wire, value.message)
    if isinstance(value, TopicInfo):
        return _Topic(value)
    if isinstance(value, RouterInfo):
        return _Router(value)
    if isinstance(value, tree_commands.Opened):
        return _Opened(value)
    if isinstance(value, tree_commands.Belongings):
        return _Belongings(value)
    if isinstance(value, WindowPart):
        return _Window(value)
    if value is None or isinstance(value, bool | int | list):
        return _Plain(value)
    raise WireError(f"a result of type {type(value).__name__}")


def decode_results(payload: bytes) -> tuple[object, ...]:
    """What a batch came to."""
    return tuple([_value(each) for each in decode(_results, payload)])


def _value(result: _Result) -> object:
    if isinstance(result, _Failed):
        return error_named(result.code, result.message)
    return result.value


def encode_figures(figures: TopicStatistics) -> list[bytes]:
    """Answer of FIGURES."""
    return [_encode(figures)]


_statistics = msgspec.msgpack.Decoder(TopicStatistics)


def decode_statistics(payload: bytes) -> TopicStatistics:
    """Answer of FIGURES."""
    return decode(_statistics, payload)


_offsets = msgspec.msgpack.Decoder(tuple[U64, U64])


def encode_offsets(span: tuple[int, int]) -> list[bytes]:
    """Answer of SPAN."""
    return [_encode(span)]


def decode_offsets(payload: bytes) -> tuple[int, int]:
    """Answer of SPAN."""
    return decode(_offsets, payload)


_offset = msgspec.msgpack.Decoder(U64)


def encode_offset(offset: Offset) -> list[bytes]:
    """Answer of SINCE."""
    return [_encode(offset)]


def decode_offset(payload: bytes) -> Offset:
    """Answer of SINCE."""
    return Offset(decode(_offset, payload))


def encode_page(found: Sequence[tuple[Offset, bytes]], *, ended: bool) -> list[bytes]:
    """Answer of PEEK."""
    head = Page([(offset, len(slot)) for offset, slot in found], ended)
    return _message(head, *[slot for _, slot in found])


_page = msgspec.msgpack.Decoder(Page)


def decode_page(payload: bytes) -> tuple[list[tuple[Offset, bytes]], bool]:
    """Answer of PEEK: messages, and whether there are no more."""
    head, reader = _split(payload, _page)
    found = [(Offset(offset), reader.take(length)) for offset, length in head.found]
    reader.end()
    return found, head.ended


_standings = msgspec.msgpack.Decoder(list[Standing])


def encode_standings(standings: Sequence[Standing]) -> list[bytes]:
    """Who leads what."""
    return [_encode(standings)]


def decode_standings(payload: bytes) -> list[Standing]:
    """Who leads what."""
    return decode(_standings, payload)


_addresses = msgspec.msgpack.Decoder(list[StoreAddress])


def encode_addresses(addresses: Sequence[StoreAddress]) -> list[bytes]:
    """Answer of ADDRESSES."""
    return [_encode(addresses)]


def decode_addresses(payload: bytes) -> list[StoreAddress]:
    """Answer of ADDRESSES."""
    return decode(_addresses, payload)
