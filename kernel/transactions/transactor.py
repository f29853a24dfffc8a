"""Transactions of a process that clients connect to (see `atomic`): gathered here, decided and
carried out by the leader of their group (`store.transacting`).

One that need not be whole, and cannot be, is carried out in steps (`cross_group`): also while one
of its topics is being resized, for messages by themselves can wait until it is known where they go.

Durability: `transact` returns once the leader has applied the entry, which a majority of the
group's voters has fdatasynced (of transient topics: that is in memory). It is done once, also if
its leader dies: a repeat under its identity is told what the first try came to. After TIMEOUT it
may be done yet, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast

from ..api.atomic import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_PARTS_MAX,
    TRANSACTION_SETTLEMENTS_MAX,
    ChangeLeases,
    Settle,
    Transaction,
)
from ..api.client import Settlement
from ..api.model import QueueRef, TopicInfo
from ..api.origins import INTERNAL
from ..common.errors import Code, KernelError
from ..common.ids import MEMORY_FIRST, TRANSIENT_GROUP, Offset, QueueId, RaftGroup
from ..requests.client_trace import ClientTrace, TakingConsumer
from ..requests.leader import Done, Holder, Leader, LeaseChanging, Settling, Together
from ..requests.proposer import Proposer
from ..requests.publish import ProducerBatch
from ..requests.publish_part import BatchPart, Part
from ..requests.pull import decode_token
from .cross_group import CrossGroupTransaction


class _OfTopic(Protocol):
    @property
    def topic(self) -> TopicInfo:
        """The topic, as it was then."""


class _Taken(Protocol):
    """A consumer, wherever its queue lives, as it was asked for."""

    @property
    def spec(self) -> _OfTopic:
        """What the consumer takes."""

    @property
    def ref(self) -> QueueRef:
        """Its queue, which is there."""


class _Plan:
    """A transaction as one group is asked for it."""

    def __init__(self) -> None:
        self.groups: set[RaftGroup] = set()
        self.origin = INTERNAL
        self.part: BatchPart | None = None
        self.settled: list[Settling] = []
        self.changes: dict[tuple[QueueId, str], dict[int, LeaseChanging]] = {}
        """By queue and group, then by offset."""

    def together(self) -> Together:
        """What its leader hears."""
        changes = [
            (queue, group, list(each.values())) for (queue, group), each in self.changes.items()
        ]
        return Together(self.part or Part((), [], []), self.settled, changes)


class Transactor:
    """Carries out `client.Client.transact`."""

    def __init__(
        self,
        proposer: Proposer,
        refusal: Callable[[BatchPart], KernelError | None],
        steps: CrossGroupTransaction,
        topic: Callable[[str, str], TopicInfo | None],
        settled: Callable[[Holder], None],
        trace: ClientTrace,
    ) -> None:
        """`refusal`: why a part of a batch cannot be taken now. `topic`: what there is. `settled`:
        a consumer of this process holds less.
        """
        self._proposer = proposer
        self._refusal = refusal
        self._cross_group = steps
        self._topic = topic
        self._settled = settled
        self._trace = trace

    async def transact(self, transaction: Transaction) -> None:
        """Carry out a transaction (see `client.Client.transact`)."""
        batch = cast("ProducerBatch | None", transaction.publishes)
        if not transaction.whole:
            there = [each for each in transaction.settlements if self._is_there(each)]
            groups = _groups(batch, there)
            # Nobody carries out anything together in the memory of another process.
            far = any(MEMORY_FIRST <= group < TRANSIENT_GROUP for group in groups)
            if far or len(groups) != 1:
                await self._cross_group.carry_out(batch, there)
                return
            transaction = replace(transaction, settlements=there)
        plan = self._plan(transaction, batch)
        if not plan.groups:
            if batch is not None:
                batch.hand_over()
            return
        if len(plan.groups) > 1:
            raise KernelError(
                Code.NOT_SAME_GROUP, "a transaction's queues must live in one Raft group"
            )
        try:
            await self._carry_out(plan, batch)
        except KernelError as error:
            if error.code is not Code.BUSY or transaction.whole:
                raise
            # Nothing was done: a topic of it is being resized. Step by step it can wait for that.
            await self._cross_group.carry_out(batch, transaction.settlements)
            return
        for each in transaction.changes if self._trace.modes else ():
            self._trace.changed(each.group, each.changes, [None] * len(each.changes))

    def _is_there(self, settle: Settle) -> bool:
        """Whether the topic is that what is held was taken of."""
        topic = cast("_Taken", settle.consumer).spec.topic
        found = self._topic(topic.tenant, topic.name)
        return found is not None and found.id == topic.id

    def _plan(self, transaction: Transaction, batch: ProducerBatch | None) -> _Plan:
        plan = _Plan()
        if batch is not None:
            self._add_publishes(plan, batch)
        for settle in transaction.settlements:
            self._add_settlement(plan, settle)
        for change in transaction.changes:
            self._add_changes(plan, change)
        settled = sum(len(each.offsets) for each in plan.settled)
        if settled + sum(map(len, plan.changes.values())) > TRANSACTION_SETTLEMENTS_MAX:
            raise _limit("transaction_settlements_max", TRANSACTION_SETTLEMENTS_MAX)
        if len(plan.settled) + len(plan.changes) > TRANSACTION_PARTS_MAX:
            raise _limit("transaction_parts_max", TRANSACTION_PARTS_MAX)
        return plan

    def _add_publishes(self, plan: _Plan, batch: ProducerBatch) -> None:
        if batch.failures:
            raise next(iter(batch.failures.values()))
        if batch.count > TRANSACTION_MESSAGES_MAX:
            raise _limit("transaction_messages_max", TRANSACTION_MESSAGES_MAX)
        if batch.size_bytes > TRANSACTION_BYTES_MAX:
            raise _limit("transaction_bytes_max", TRANSACTION_BYTES_MAX)
        for part in batch.close():
            refusal = self._refusal(part)
            if refusal is not None:
                raise refusal
            plan.groups.add(part.group)
            plan.part = part
        plan.origin = batch.origin

    def _add_settlement(self, plan: _Plan, settle: Settle) -> None:
        if settle.how not in {Settlement.ACK, Settlement.RELEASE, Settlement.DEAD_LETTER}:
            raise KernelError(Code.INVALID_ARGUMENT, f"no transaction settles by {settle.how.name}")
        consumer = cast("Holder", settle.consumer)
        offsets = list(dict.fromkeys(settle.offsets))
        known = [each.offsets for each in plan.settled if each.consumer is consumer]
        if any(not set(offsets).isdisjoint(each) for each in known):
            raise _twice()
        if not consumer.held.issuperset(offsets):
            raise KernelError(Code.LEASE_LOST, "a message is not held by the consumer any more")
        if offsets:
            plan.groups.add(consumer.ref.group)
            plan.origin = consumer.origin
            plan.settled.append(Settling(consumer, settle.how, settle.reason, offsets))

    def _add_changes(self, plan: _Plan, wanted: ChangeLeases) -> None:
        refs: dict[int, QueueRef] = {ref.id: ref for ref in wanted.topic.queues}
        for change in wanted.changes:
            token = decode_token(change.token)
            if token is None or token[0] not in refs:
                raise KernelError(Code.LEASE_LOST, "not a lease of this topic")
            ref = refs[token[0]]
            offset, lease = token[1:]
            plan.groups.add(ref.group)
            changes = plan.changes.setdefault((ref.id, wanted.group), {})
            if offset in changes:
                raise _twice()
            changes[offset] = LeaseChanging(
                Offset(offset), lease, change.verb, change.reason, change.delay_ms
            )

    async def _carry_out(self, plan: _Plan, batch: ProducerBatch | None) -> None:
        (group,) = plan.groups
        identity = self._proposer.next_identity()
        what = plan.together()

        def attempt(leader: Leader, heard: Done) -> None:
            def told(results: object) -> None:
                if isinstance(results, tuple) and not isinstance(results[0], KernelError):
                    self._done(plan, batch, results)
                heard(results)

            leader.transact(identity, what, told, plan.origin)

        await self._proposer.outcome_in_time(group, attempt)

    def _done(self, plan: _Plan, batch: ProducerBatch | None, results: tuple[object, ...]) -> None:
        """The log has it: tell the batch and the holders of the leases."""
        for each in plan.settled:
            holder = each.consumer
            holder.held.difference_update(each.offsets)
            self._settled(holder)
            if self._trace.modes:
                taken = cast("TakingConsumer", holder)
                self._trace.settled(taken, each.how, each.offsets, each.reason)
        if batch is not None and plan.part is not None:
            batch.part_told(plan.part, results)
            if self._trace.modes:
                self._trace.published(batch)
        if batch is not None and batch.live:
            batch.hand_over()


def _groups(batch: ProducerBatch | None, settlements: Sequence[Settle]) -> set[RaftGroup]:
    """Groups that have a part in it."""
    groups = {cast("_Taken", each.consumer).ref.group for each in settlements if each.offsets}
    return groups if batch is None else groups.union(part.group for part in batch.close())


def _twice() -> KernelError:
    return KernelError(Code.INVALID_ARGUMENT, "a message is settled twice in a transaction")


def _limit(name: str, most: int) -> KernelError:
    return KernelError(Code.LIMIT_EXCEEDED, f"the transaction is too large: {name} is {most}")
