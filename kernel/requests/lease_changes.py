"""Changes of timed leases, by token, wherever the leaders of their queues are.

Durability: `settle` returns changes that are fdatasynced; what `give_back` does may be forgotten by
a crash, and the lease then ends at its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from ..api.client import LeaseChange, LeaseVerb
from ..api.model import QueueRef, Reason, TopicInfo
from ..api.origins import INTERNAL
from ..broker.machine import OVER
from ..common.errors import Code, KernelError
from ..common.ids import Offset, QueueId
from .leader import Done, Identity, Leader, LeaseChanging
from .proposer import Proposer
from .pull import decode_token


class LeaseChanges:
    """Puts them before the leaders."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer

    async def settle(
        self, topic: TopicInfo, group: str, changes: Sequence[LeaseChange], origin: int
    ) -> Sequence[KernelError | None]:
        """Change leases by token (see `client.Client.settle_leases`)."""
        refs = {ref.id: ref for ref in topic.queues}
        by_queue: dict[QueueId, list[tuple[int, LeaseChange, int, int]]] = {}
        results: list[KernelError | None] = [None] * len(changes)
        for position, change in enumerate(changes):
            token = decode_token(change.token)
            if token is None or token[0] not in refs:
                results[position] = KernelError(Code.LEASE_LOST, "not a lease of this topic")
                continue
            by_queue.setdefault(QueueId(token[0]), []).append((position, change, *token[1:]))
        under_way = [
            self._change(refs[ident], group, wanted, origin) for ident, wanted in by_queue.items()
        ]
        # Queues do not wait for one another's commit.
        goods = [await under_way[0]] if len(under_way) == 1 else await asyncio.gather(*under_way)
        for wanted, good in zip(by_queue.values(), goods, strict=True):
            for (position, *_), held in zip(wanted, good, strict=True):
                if held == OVER:
                    results[position] = KernelError(Code.LEASE_OVER, "the lease has run out")
                elif not held:
                    results[position] = KernelError(
                        Code.LEASE_LOST, "the lease has ended, or the message was settled"
                    )
        return results

    async def _change(
        self,
        ref: QueueRef,
        group: str,
        wanted: Sequence[tuple[int, LeaseChange, int, int]],
        origin: int,
    ) -> Sequence[int]:
        changes = [
            LeaseChanging(
                Offset(offset),
                lease,
                change.verb,
                change.reason,
                change.delay_ms,
                change.slot_bytes,
            )
            for _, change, offset, lease in wanted
        ]
        identity = self._proposer.next_identity()
        attempt = partial(_attempt, ref.id, group, changes, identity, origin)
        return cast("Sequence[int]", await self._proposer.outcome(ref.group, attempt))

    def give_back(
        self, ref: QueueRef, group: str, lease: int, slot_sizes: Mapping[int, int], origin: int
    ) -> None:
        """Undo a lease of messages that have reached nobody, without waiting for it: they count as
        never delivered. By offset the size of the slot; `origin`: whose lease it is.
        """
        verb, why = LeaseVerb.RETURN, Reason.REJECTED
        changes = [
            LeaseChanging(Offset(offset), lease, verb, why, 0, size)
            for offset, size in slot_sizes.items()
        ]
        self._send(ref, group, changes, origin)

    def release(self, ref: QueueRef, group: str, lease: int, offsets: Iterable[int]) -> None:
        """End a lease of messages that somebody may have seen, without waiting for it: they count
        as delivered once more. One that has ended meanwhile is left alone.
        """
        verb, why = LeaseVerb.RELEASE, Reason.REJECTED
        changes = [LeaseChanging(Offset(offset), lease, verb, why, 0) for offset in offsets]
        self._send(ref, group, changes, INTERNAL)

    def _send(
        self, ref: QueueRef, group: str, changes: Sequence[LeaseChanging], origin: int
    ) -> None:
        identity = self._proposer.next_identity()
        attempt = partial(_attempt, ref.id, group, changes, identity, origin)
        self._proposer.send(ref.group, attempt, _nobody)


def _attempt(
    queue: QueueId,
    group: str,
    changes: Sequence[LeaseChanging],
    identity: Identity,
    origin: int,
    leader: Leader,
    done: Done,
) -> None:
    leader.change_leases(queue, group, changes, identity, done, origin)


def _nobody(_results: object) -> None:
    """Done of what nobody waits for."""
