"""Half messages of a process that clients connect to (see `transactions`): prepared and ended at
the leaders of their queues, wherever these are (`store.half_keeper`).

Durability: `prepare` and `end` return from the leader's apply of an entry that a majority of the
group's voters has fdatasynced. Each is done once under its identity, also when the leader dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..api.message import HEADER
from ..api.model import QueueRef, TopicInfo
from ..api.tracing import ConnectedUser
from ..api.transactions import HalfSink, HalfWatch, decode_token, encode_token
from ..broker.applying.half_messages import OTHERWISE, UNKNOWN
from ..broker.index.features import Feature, features_of
from ..broker.log_commands import commands
from ..broker.log_commands.resize_commands import SEALED
from ..common.errors import Code, KernelError
from ..common.ids import TRANSIENT_GROUP, Offset, QueueId
from ..common.limits import GROUP_NAME_BYTES_MAX
from ..requests.client_trace import ClientTrace
from ..requests.half_watches import Key
from ..requests.proposer import Proposer

_KEY_FIELD = 12


class Watching(Protocol):
    """Who sees that sinks are asked."""

    def add(self, key: Key, sink: HalfSink) -> object:
        """One more sink of a producer group."""

    def remove(self, key: Key, sink: HalfSink) -> object:
        """A sink hears no more. Idempotent."""


class _Watch:
    """Has a sink asked about half messages until it is closed (`transactions.HalfWatch`)."""

    __slots__ = ("_key", "_sink", "_watching")

    def __init__(self, watching: Watching, key: Key, sink: HalfSink) -> None:
        self._watching: Watching | None = watching
        self._key = key
        self._sink = sink

    def close(self) -> None:
        """Hear no more."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.remove(self._key, self._sink)


class HalfMessageClient:
    """Stores half messages and decides on them (`transactions.HalfMessages`)."""

    def __init__(self, proposer: Proposer, watching: Watching, trace: ClientTrace) -> None:
        self._proposer = proposer
        self._trace = trace
        self._watching = watching
        self._round_robin = 0

    async def prepare(self, topic: TopicInfo, producers: str, parts: Sequence[bytes]) -> bytes:
        """Store a half message; its token."""
        _check(topic, producers, parts[0])
        ref = self._pick(topic, parts[0])
        identity = self._proposer.next_identity()
        number = _number(
            await self._proposer.outcome_in_time(
                ref.group,
                lambda leader, heard: leader.prepare(identity, producers, ref.id, parts, heard),
            )
        )
        if not number:
            raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")
        if number == SEALED:
            raise KernelError(Code.BUSY, f"topic {topic.name} is being resized")
        return encode_token(ref.id, number)

    async def end(
        self, topic: TopicInfo, token: bytes, *, commit: bool, by: ConnectedUser | None = None
    ) -> tuple[QueueId, Offset] | None:
        """Commit or roll back."""
        ident, number = decode_token(token)
        ref = next((each for each in topic.queues if each.id == ident), None)
        if ref is None:
            raise KernelError(Code.LEASE_LOST, "not a half message of this topic")
        command = commands.ResolveHalf(ref.id, number, commit)
        identity = self._proposer.next_identity()
        outcome = _number(
            await self._proposer.outcome_in_time(
                ref.group, lambda leader, heard: leader.propose(command, identity, heard)
            )
        )
        if outcome == UNKNOWN:
            raise KernelError(Code.LEASE_LOST, "the half message is not known any more")
        if outcome == OTHERWISE:
            done = "rolled back" if commit else "committed"
            raise KernelError(Code.LEASE_LOST, f"the half message has been {done}")
        if not commit:
            return None
        if self._trace.modes:
            self._trace.committed(ref.id, outcome, by)
        return ref.id, Offset(outcome)

    def _pick(self, topic: TopicInfo, header: bytes) -> QueueRef:
        """Queue of a message: by ordering key, else in turn."""
        key: int = HEADER.unpack_from(header)[_KEY_FIELD]
        if not key:
            self._round_robin += 1
            key = self._round_robin
        return topic.queue_of(key)

    def watch(self, tenant: str, producers: str, sink: HalfSink) -> HalfWatch:
        """Have questions about a producer group's half messages put to `sink`."""
        key = (tenant, producers)
        self._watching.add(key, sink)
        return _Watch(self._watching, key, sink)


def _check(topic: TopicInfo, producers: str, header: bytes) -> None:
    """Raise for what cannot be prepared at all."""
    if not producers or len(producers.encode()) > GROUP_NAME_BYTES_MAX:
        raise KernelError(
            Code.INVALID_ARGUMENT, f"producer group must have 1 to {GROUP_NAME_BYTES_MAX} bytes"
        )
    if any(ref.group == TRANSIENT_GROUP for ref in topic.queues):
        raise KernelError(
            Code.INVALID_ARGUMENT, f"topic {topic.name} is transient: it keeps no half messages"
        )
    if features_of(header) & Feature.DEDUPLICATE:
        raise KernelError(Code.INVALID_ARGUMENT, "a half message cannot be deduplicated")


def _number(result: object) -> int:
    """The one number that a command answers; 0: it had nothing to act on."""
    number: object = result[0] if isinstance(result, list) and result else 0
    return number if isinstance(number, int) else 0
