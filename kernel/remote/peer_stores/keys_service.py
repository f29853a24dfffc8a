"""Which keys a sealed queue has unsettled: how the store that leads a successor in another Raft
group asks the one that leads the queue, and how that answers (ADR 31, `store.replicas.key_lists`).

A section of its own: those of its questions that wait are no tasks, and keep no other question
waiting. A store of an older build answers INVALID_ARGUMENT, as to any method that it does not know.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...common.limits import GROUP_NAME_BYTES_MAX
from ...in_process.answering_keys import answer_keys
from ...requests.peer_stores import KeysAnswer, KeysQuestion
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.node import Store
from ...store.replicas.unsettled_keys import GATE_MESSAGES_MAX
from ..leader_calls.call_numbers import U16, U64, UNSETTLED_KEYS
from ..leader_calls.call_wire import WireError, decode
from ..leader_calls.leaders import RemoteLeaders

KEYS = UNSETTLED_KEYS[0]

KEY_BYTES = 8
ANSWER_BYTES_MAX = GATE_MESSAGES_MAX * KEY_BYTES
"""Of the keys of one answer: 512 KB, and some milliseconds of each end's loop."""


class KeysAsked(msgspec.Struct, frozen=True, array_like=True):
    """KEYS; `peer_stores.KeysQuestion`."""

    group: U16
    queue: U64
    name: Annotated[str, Meta(max_length=GROUP_NAME_BYTES_MAX)]
    end: U64
    version: tuple[U64, U64, U64]


class KeysTold(msgspec.Struct, frozen=True, array_like=True):
    """Its answer; `peer_stores.KeysAnswer`."""

    version: tuple[U64, U64, U64]
    keys: Annotated[bytes, Meta(max_length=ANSWER_BYTES_MAX)] | None
    """KEY_BYTES for each, little-endian."""
    is_all: bool


_asked = msgspec.msgpack.Decoder(KeysAsked)
_told = msgspec.msgpack.Decoder(KeysTold)
_encode = msgspec.msgpack.Encoder().encode


def encode_answer(answer: KeysAnswer) -> list[bytes]:
    """An answer as it is sent."""
    keys = answer.keys
    packed = None if keys is None else struct.pack(f"<{len(keys)}Q", *keys)
    return [_encode(KeysTold(answer.version, packed, answer.is_all))]


def decode_answer(payload: bytes) -> KeysAnswer:
    """An answer that has come. Raises WireError."""
    told = decode(_told, payload)
    if told.keys is None:
        return KeysAnswer(told.version, None, told.is_all)
    if len(told.keys) % KEY_BYTES:
        raise WireError("a part of a key")
    keys = struct.unpack(f"<{len(told.keys) // KEY_BYTES}Q", told.keys)
    return KeysAnswer(told.version, keys, told.is_all)


class KeysService:
    """The answering end (`sections.Section`)."""

    methods = UNSETTLED_KEYS

    def __init__(self, store: Store) -> None:
        self._store = store

    def opened(self, channel: Channel, peer: Hello) -> None:
        """Stores ask when they want something."""

    def closed(self, channel: Channel) -> None:
        """What waits is answered in vain, within a second or two."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Everything here is asked."""
        raise RpcError(f"method {method} is not told to stores")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A question has come."""
        if method != KEYS:
            raise RpcError(f"method {method} is not called")
        try:
            asked = decode(_asked, payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        question = KeysQuestion(QueueId(asked.queue), asked.name, asked.end, asked.version)
        answer_keys(self._store, RaftGroup(asked.group), question, partial(_reply, reply))


def _reply(reply: Reply, answer: KeysAnswer | KernelError) -> None:
    reply(answer if isinstance(answer, KernelError) else encode_answer(answer))


async def ask_keys(leaders: RemoteLeaders, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
    """Ask the leader of a sealed queue in another store, once. Raises KernelError."""
    asked = KeysAsked(group, question.queue, question.group, question.end, question.version)
    channel = leaders.channel_to(group)
    try:
        node = leaders.table.of(group)
        return await leaders.ask_node(node, KEYS, [_encode(asked)], decode_answer)
    except KernelError as error:
        if error.code is Code.NOT_LEADER:
            leaders.doubt(group, channel, error)
        raise
