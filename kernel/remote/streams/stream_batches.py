"""What a gateway's streams say to stores: gathered while a turn of the loop lasts, then sent, one
STREAM_BATCH for a store (`wire`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...api.client import Settlement
from ...rpc.channel import Channel
from . import stream_wire
from .parts import (
    GIVING_BACK,
    CreditPool,
    CreditShare,
    PartEntry,
    PartGroup,
    StreamPart,
    head_of,
    settle_of,
)

ATTACHES_MAX = 1_024
"""Streams in one ATTACH."""


class _Outgoing:
    """What one store is about to hear."""

    __slots__ = ("attaches", "cancels", "claims", "credits", "over", "settled", "takes")

    def __init__(self) -> None:
        self.attaches: dict[StreamPart, CreditShare] = {}
        self.claims: dict[int, int] = {}
        self.settled: dict[StreamPart, None] = {}
        self.cancels: dict[StreamPart, None] = {}
        self.takes: dict[StreamPart, None] = {}
        self.over: list[int] = []
        self.credits: list[tuple[int, int]] = []


class StreamBatches:
    """Gathers what is to be sent to each store until the turn of the loop is over."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        group_of: Callable[[int], PartGroup],
        cancelled: Callable[[StreamPart], None],
    ) -> None:
        """`soon(action)` calls it in a later turn of the loop; `cancelled(part)` is called when a
        store has been told.
        """
        self._soon = soon
        self._group_of = group_of
        self._cancelled = cancelled
        self._out: dict[Channel, _Outgoing] = {}
        self._pools: dict[CreditPool, None] = {}
        self._is_awaited = False

    # --- What there is to say ---------------------------------------------------------------

    def _await(self) -> None:
        if not self._is_awaited:
            self._is_awaited = True
            self._soon(self.send)

    def _to(self, channel: Channel) -> _Outgoing:
        out = self._out.get(channel)
        if out is None:
            self._await()
            out = self._out[channel] = _Outgoing()
        return out

    def attach(self, channel: Channel, part: StreamPart, share: CreditShare) -> None:
        """A part is to have a stream."""
        self._to(channel).attaches[part] = share

    def claimed(self, channel: Channel, group: int, term: int) -> None:
        """All parts of a group have been attached by then."""
        self._to(channel).claims[group] = term

    def credit(self, pool: CreditPool) -> None:
        """What a pool has left, or what stores have of it, is another number (hot)."""
        self._pools[pool] = None
        if not self._is_awaited:
            self._await()

    def settle(self, channel: Channel, part: StreamPart) -> None:
        """An attached part has a backlog (hot)."""
        self._to(channel).settled[part] = None

    def cancel(self, channel: Channel, part: StreamPart) -> None:
        """An attached part takes no more."""
        self._to(channel).cancels[part] = None

    def take(self, channel: Channel, part: StreamPart) -> None:
        """A part has a question."""
        self._to(channel).takes[part] = None

    def over(self, channel: Channel, share: CreditShare) -> None:
        """A store has no streams any more that live on a share."""
        self._to(channel).over.append(share.number)

    def forget(self, channel: Channel, part: StreamPart) -> None:
        """A part has no stream there any more."""
        out = self._out.get(channel)
        if out is not None:
            for waiting in (out.attaches, out.settled, out.cancels, out.takes):
                waiting.pop(part, None)

    def closed(self, channel: Channel) -> None:
        """Nothing can be said there any more."""
        self._out.pop(channel, None)

    # --- Saying it --------------------------------------------------------------------------

    def send(self) -> None:
        """Say all of it now (hot)."""
        self._is_awaited = False
        pools, self._pools = self._pools, {}
        for pool in pools:
            for channel, share, more in pool.changes():
                share.granted += more
                self._to(channel).credits.append((share.number, more))
        sending, self._out = self._out, {}
        self._is_awaited = False
        for channel, out in sending.items():
            self._send(channel, out)

    def _send(self, channel: Channel, out: _Outgoing) -> None:
        encode = stream_wire.encode
        if out.attaches:
            heads = [
                head_of(part, share, self._group_of(part.ref.group).there)
                for part, share in out.attaches.items()
            ]
            for at in range(0, len(heads), ATTACHES_MAX):
                parts = encode(heads[at : at + ATTACHES_MAX])
                channel.cast(stream_wire.ATTACH, parts, control=True)
        blocks = self._blocks(out.settled) if out.settled else []
        cancels = [(part.number, sorted(part.held)) for part in out.cancels]
        takes = [_take_of(part) for part in out.takes if part.question is not None]
        if out.credits or blocks or cancels or takes or out.over:
            turn = stream_wire.StreamBatch(out.credits, blocks, cancels, takes, out.over)
            channel.cast(stream_wire.STREAM_BATCH, encode(turn), control=True)
        for part in out.cancels:
            self._cancelled(part)
        for group, term in out.claims.items():
            claimed = encode(stream_wire.Claimed(self._group_of(group).there, term))
            channel.cast(stream_wire.CLAIMED, claimed, control=True)

    def _blocks(self, parts: dict[StreamPart, None]) -> list[stream_wire.Block]:
        by_group: dict[int, tuple[list[tuple[int, list[int]]], list[stream_wire.Settle]]] = {}
        for part in parts:
            ident = part.ref.group
            group = self._group_of(ident)
            known = by_group.get(ident)
            if known is None:
                known = by_group[ident] = [], []
            acks, settles = known
            for entry in part.backlog:
                group.number += 1
                entry.number = group.number
                if entry.how is _ACK and not entry.is_answered:
                    acks.append((part.number, entry.offsets))
                else:
                    settles.append(settle_of(part, entry))
                    if entry.is_answered:
                        group.asked[entry.number] = part, entry
            part.unconfirmed.extend(part.backlog)
            part.backlog = []
            group.unconfirmed[part] = None
        blocks: list[stream_wire.Block] = []
        for number, (acks, settles) in by_group.items():
            group = self._group_of(number)
            group.number += 1
            blocks.append(stream_wire.Block(group.there, group.number, acks, settles))
        return blocks


_ACK = Settlement.ACK
"""A name looked up once: a member of an Enum costs 0.12 us each time it is named."""


def _take_of(part: StreamPart) -> tuple[int, int, int, int]:
    question = part.question
    assert question is not None
    return part.number, question.number, question.messages, question.wait_ms()


def again(
    entries: list[PartEntry], held: Collection[int]
) -> tuple[list[PartEntry], list[PartEntry]]:
    """Those of a part's settlements that its next leader has to hear of again, and those that are
    known to be over, oldest first. What they name has been delivered since, and is held or settled
    by a later one: so it was given back, or had not been leased when it was acked. What is returned
    and claimed by nobody is ready again by itself.
    """
    said: list[PartEntry] = []
    over: list[PartEntry] = []
    later = set(held) if entries else set()
    for entry in reversed(entries):
        if not later.isdisjoint(entry.offsets):
            if entry.how not in GIVING_BACK:
                entry.lost = [each for each in entry.offsets if each in held]
            entry.offsets = [each for each in entry.offsets if each not in later]
        later.update(entry.offsets)
        if not entry.offsets:
            over.append(entry)
        elif entry.how is not Settlement.RETURN or entry.sink is not None:
            said.append(entry)
    return said[::-1], over[::-1]
