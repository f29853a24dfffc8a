"""What a gateway and a store say to each other: every call of `leader.Leader`, and its answers.

    payload: u32 bytes of the head | head: msgpack of one of the structs below | bodies

Bodies (slots, packed commands, messages) are raw bytes behind the head, in the order in which it
names their lengths: they are never copied into it. The slots of a publish travel as the buffers
they are, and the store takes them out as one. Ranges are checked here, so that nothing that would
not fit into a log entry gets to a leader; what is wrong is a WireError, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from ..broker import commands, tree_commands
from ..broker.commands import Command, Packed
from ..client import LeaseVerb
from ..errors import Code, KernelError
from ..ids import Offset, QueueId, RaftGroup
from ..leader import Identity, LeaseChanging
from ..limits import BATCH_COMMANDS_MAX, NAME_BYTES_MAX
from ..message import HEADER_BYTES
from ..model import Reason, RouterInfo, TopicInfo, TopicStatistics
from .calls import (
    ChangeLeases,
    Figures,
    Page,
    Peek,
    Propose,
    Publish,
    Purge,
    Standing,
    Submit,
)

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_REFUSED = frozenset({Command.LEADER_START})
"""What only a leader itself says."""


class WireError(Exception):
    """Bytes that no gateway or store of this protocol sends; the text says why."""


class _Plain(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Results of packed commands and most others."""

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


_CODES = {code.wire: code for code in Code}
_Result = _Plain | _Failed | _Topic | _Router | _Opened
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


def _split(payload: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> tuple[_T, _Reader]:
    if len(payload) < _LENGTH.size:
        raise WireError("no head")
    end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    if end > len(payload):
        raise WireError("the head is cut off")
    try:
        return decoder.decode(memoryview(payload)[_LENGTH.size : end]), _Reader(payload, end)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


message_of, split = _message, _split
"""Of every message with bodies, those of sections too."""


def encode_publish(
    at: tuple[RaftGroup, int],
    identity: Identity,
    runs: Sequence[Sequence[int]],
    lengths: Sequence[int],
    buffers: Sequence[bytes],
    origin: int,
    retained: Sequence[tuple[str, int]],
) -> list[bytes]:
    """A PUBLISH (hot); `at`: group and lane."""
    head = _encode((*at, identity, runs, lengths, origin, retained))
    return [_LENGTH.pack(len(head)) + head, *buffers]


_publish = msgspec.msgpack.Decoder(Publish)


def decode_publish(payload: bytes) -> tuple[Publish, bytes]:
    """A PUBLISH and its slots (hot)."""
    head, reader = _split(payload, _publish)
    lengths = head.lengths
    slots = reader.take(sum(lengths))
    reader.end()
    _check_slots(head.runs, lengths)
    if head.retained:
        _check_retained(head.retained, len(lengths))
    return head, slots


def _check_retained(retained: Sequence[tuple[str, int]], slots: int) -> None:
    tenants = {tenant for tenant, _ in retained}
    if len(tenants) >= BATCH_COMMANDS_MAX:
        raise WireError(f"messages of {len(tenants)} tenants are retained")
    if any(len(tenant.encode()) > NAME_BYTES_MAX for tenant in tenants):
        raise WireError("a tenant's name is too long")
    if any(slot >= slots for _, slot in retained):
        raise WireError("a slot is retained that is not there")


def _check_slots(runs: Sequence[tuple[int, int, int, int]], lengths: Sequence[int]) -> None:
    slots = len(lengths)
    for _, slot, count, _ in runs:
        if not count or slot + count > slots:
            raise WireError(f"a run of {count} slots from {slot} on, of {slots}")
    if lengths and min(lengths) < HEADER_BYTES:
        raise WireError("a slot without a whole header")


def encode_submit(
    at: tuple[RaftGroup, int],
    identity: Identity,
    own: Sequence[Packed],
    lengths: Sequence[int],
    buffers: Sequence[bytes],
    origin: int,
) -> list[bytes]:
    """A SUBMIT."""
    shapes = [(int(kind), version, len(body)) for kind, version, body in own]
    head = Submit(*at, identity, shapes, list(lengths), origin)
    return _message(head, *[body for _, _, body in own], *buffers)


_submit = msgspec.msgpack.Decoder(Submit)


def decode_submit(payload: bytes) -> tuple[Submit, list[Packed], bytes]:
    """A SUBMIT, its commands and slots."""
    head, reader = _split(payload, _submit)
    if len(head.own) > BATCH_COMMANDS_MAX:
        raise WireError(f"{len(head.own)} commands")
    own = [(kind, version, reader.take(length)) for kind, version, length in head.own]
    slots = reader.take(sum(head.lengths))
    reader.end()
    for command in own:
        _check_command(command, head.lengths)
    return head, own, slots


def _check_command(command: Packed, lengths: Sequence[int]) -> None:
    """Whether a command is one that can be applied."""
    kind, version, body = command
    try:
        name = Command(kind)
        if version != commands.VERSION or name in _REFUSED:
            raise WireError(f"command {name.name} of version {version}")
        if name is Command.ENQUEUE:
            _check_slots(commands.decode_enqueue(body), lengths)
        elif name is Command.PREPARE:
            _check_slots(commands.decode_prepare(body)[1], lengths)
        elif name is Command.RETAIN:
            slots = tree_commands.decode_retain(body)[1]
            if max(slots, default=0) >= len(lengths):
                raise WireError("a slot is retained that is not there")
        elif name in _PACKED:
            _PACKED[name](body)
        else:
            commands.decode_control(kind, body)
    except (ValueError, KeyError, IndexError, struct.error, msgspec.MsgspecError) as error:
        raise WireError(f"no command of type {kind}: {error}") from None


def _acks(body: bytes) -> None:
    for _ in commands.decode_ack(body)[1]:
        pass


_PACKED = {
    Command.SETTLE: commands.decode_settle,
    Command.ACK: _acks,
    Command.MARK: commands.decode_mark,
    Command.LEASE: commands.decode_lease,
    Command.CHANGE: commands.decode_change,
}


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
    body = reader.rest()
    if head.kind in _REFUSED or head.kind not in commands.CONTROL_TYPES:
        raise WireError(f"no control command of type {head.kind}")
    try:
        return head, commands.decode_control(head.kind, body)
    except (ValueError, msgspec.MsgspecError) as error:
        raise WireError(str(error)) from None


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
    return _message(ChangeLeases(*at, identity, queue, name, columns, origin))


_change_leases = msgspec.msgpack.Decoder(ChangeLeases)


def decode_change_leases(payload: bytes) -> tuple[ChangeLeases, list[LeaseChanging]]:
    """A CHANGE_LEASES and its changes."""
    head, reader = _split(payload, _change_leases)
    reader.end()
    if any(delay_ms >= 1 << 62 for *_, delay_ms in head.changes):
        raise WireError("a delay beyond all times")
    return head, [
        LeaseChanging(Offset(offset), lease, verb, reason, delay_ms)
        for offset, lease, verb, reason, delay_ms in head.changes
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


def encode_question(question: Figures | Peek) -> list[bytes]:
    """A FIGURES or a PEEK."""
    return _message(question)


_figures = msgspec.msgpack.Decoder(Figures)
_peek = msgspec.msgpack.Decoder(Peek)


def decode_figures(payload: bytes) -> Figures:
    """A FIGURES."""
    head, reader = _split(payload, _figures)
    reader.end()
    return head


def decode_peek(payload: bytes) -> Peek:
    """A PEEK."""
    head, reader = _split(payload, _peek)
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
    if value is None or isinstance(value, bool | int | list):
        return _Plain(value)
    raise WireError(f"a result of type {type(value).__name__}")


def decode_results(payload: bytes) -> tuple[object, ...]:
    """What a batch came to."""
    try:
        return tuple([_value(each) for each in _results.decode(payload)])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


def _value(result: _Result) -> object:
    if isinstance(result, _Failed):
        return KernelError(_CODES.get(result.code, Code.UNAVAILABLE), result.message)
    return result.value


def encode_figures(figures: TopicStatistics) -> list[bytes]:
    """Answer of FIGURES."""
    return [_encode(figures)]


_statistics = msgspec.msgpack.Decoder(TopicStatistics)


def decode_statistics(payload: bytes) -> TopicStatistics:
    """Answer of FIGURES."""
    try:
        return _statistics.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


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


def decode_standings(payload: bytes) -> Iterator[Standing]:
    """Who leads what."""
    try:
        return iter(_standings.decode(payload))
    except msgspec.MsgspecError as error:
        raise WireError(str(error)) from None
