"""Transactions that no single Raft group can carry out: one step after the other (see `atomic`).

    publishes ----all stored----> settlements ----all on disk----> done
        |                              |
        +-- one refused: nothing       +-- one failed: the publishes stay
            is settled

Nothing is settled before everything published is stored: a crash, or an error, between the two
leaves messages twice, never none of them.

Durability: `carry_out` returns when a majority of each group's voters has fdatasynced its part (of
transient topics: when memory holds it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..api.atomic import Settle
from ..api.client import Consumer, PublishBatch, Settlement, SettleSink
from ..api.model import Reason
from ..common.errors import Code, KernelError
from ..common.limits import PUBLISH_DEADLINE_MS
from ..requests.publish import ProducerBatch


class SettleCall(Protocol):
    """Settles what a consumer holds, as `client.Client.settle` does."""

    def __call__(
        self,
        consumer: Consumer,
        how: Settlement,
        offsets: Sequence[int],
        *,
        reason: Reason = Reason.REJECTED,
        sink: SettleSink | None = None,
        tag: object = None,
    ) -> None:
        """Settle leases."""


class _Stored:
    """`client.PublishSink` of the first step."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def published(self, batch: PublishBatch) -> None:
        """The batch is answered."""
        if not self.heard.done():
            self.heard.set_result(None)


class _Settled:
    """`client.SettleSink` of the second step."""

    def __init__(self, count: int) -> None:
        self.heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failures: list[KernelError] = []
        self._left = count

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        """One of the settlements is answered."""
        del tag
        self.failures += (failures or {}).values()
        self._left -= 1
        if not self._left and not self.heard.done():
            self.heard.set_result(None)


class CrossGroupTransaction:
    """Carries transactions out."""

    def __init__(self, submit: Callable[[PublishBatch], None], settle: SettleCall) -> None:
        """What the client does for everybody."""
        self._submit = submit
        self._settle = settle

    async def carry_out(self, batch: ProducerBatch | None, settlements: Sequence[Settle]) -> None:
        """Raises KernelError: what refused a publish or a settlement; TIMEOUT."""
        if batch is not None and batch.count:
            await self._publish(batch)
        if settlements:
            await self._settle_all(settlements)

    async def _publish(self, batch: ProducerBatch) -> None:
        if not batch.failures:
            stored = _Stored()
            batch.sink = stored
            self._submit(batch)
            await stored.heard
        if batch.failures:
            raise next(iter(batch.failures.values()))

    async def _settle_all(self, settlements: Sequence[Settle]) -> None:
        settled = _Settled(len(settlements))
        for each in settlements:
            try:
                self._settle(
                    each.consumer, each.how, each.offsets, reason=each.reason, sink=settled
                )
            except KernelError as error:
                if error.code is not Code.NOT_FOUND:
                    raise
                settled.settled(None, None)  # the topic is gone, and with it what was held
        try:
            async with asyncio.timeout(PUBLISH_DEADLINE_MS / 1000):
                await settled.heard
        except TimeoutError:
            raise KernelError(Code.TIMEOUT, "not settled within the publish deadline") from None
        if settled.failures:
            raise settled.failures[0]
