"""Carries out transactions of a gateway that has the store in its own process (see `atomic`).

A transaction is one batch of one entry: a GUARD that names every timed lease it counts on, then its
publishes, settlements and changes. Apply carries out what stands behind a GUARD only if all of it
holds, so that a replay, and a repeat of the batch, come to the same result.

Durability: `transact` returns once the entry is fdatasynced and applied; a crash before leaves all
of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .atomic import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_MESSAGES_MAX,
    TRANSACTION_SETTLEMENTS_MAX,
    ChangeLeases,
    Settle,
    Transaction,
)
from .broker import commands
from .broker.commands import Command
from .broker.consumers import DispatchedConsumer
from .broker.dispatcher import Dispatcher
from .client import LeaseVerb, Settlement
from .errors import Code, KernelError
from .ids import QueueId, RaftGroup
from .leader import Done, Leader
from .model import QueueRef, Reason, TopicInfo
from .origins import INTERNAL
from .proposer import Proposer, first_of
from .publish import Batch, Part
from .pull import decode_token
from .store.node import Store
from .store.open_entry import ranges_of, retain_commands
from .topic_room import Rooms

Packed = tuple[int, int, LeaseVerb, Reason, int]


class _Plan:
    """A transaction as commands of one group, and whose leases it settles."""

    def __init__(self) -> None:
        self.groups: set[RaftGroup] = set()
        self.origin = INTERNAL
        self.part: Part | None = None
        self.settled: list[tuple[DispatchedConsumer, Settlement, Reason, list[int]]] = []
        self.changes: dict[tuple[QueueId, str], dict[int, Packed]] = {}
        """By queue and group, then by offset."""

    def is_refused(self, first: object) -> bool:
        """Whether its first command came to say that nothing was carried out: an error, or a
        guard's leases that are not good.
        """
        return isinstance(first, KernelError) or bool(self.changes and first)

    def commands(self) -> list[commands.Packed]:
        """What is to be carried out, over the slots of its messages."""
        leases = tuple(
            (queue, group, offset, lease, verb.value)
            for (queue, group), packed in self.changes.items()
            for offset, lease, verb, _reason, _until in packed.values()
        )
        found: list[commands.Packed] = []
        if leases:
            found.append(commands.encode_control(commands.Guard(leases)))
        if self.part is not None:
            found.append(_packed(Command.ENQUEUE, commands.encode_enqueue(self.part.runs)))
            found += retain_commands(self.part.retained)
        for consumer, how, reason, offsets in self.settled:
            dispatcher = consumer.dispatcher
            ranges = ranges_of(list(offsets))
            body = commands.encode_settle(
                dispatcher.queue.id, dispatcher.group, how, reason, ranges
            )
            found.append(_packed(Command.SETTLE, body))
        for (queue, group), packed in self.changes.items():
            body = commands.encode_change(queue, group, [*packed.values()])
            found.append(_packed(Command.CHANGE, body))
        return found


class Transactor:
    """`client.Client.transact`."""

    def __init__(
        self,
        store: Store,
        proposer: Proposer,
        refusal: Callable[[Part], KernelError | None],
        dispatcher: Callable[[TopicInfo, str, int], Dispatcher],
        room: Rooms,
    ) -> None:
        self._store = store
        self._proposer = proposer
        self._refusal = refusal
        self._dispatcher = dispatcher
        self._room = room

    async def transact(self, transaction: Transaction) -> None:
        """Carry out a transaction (see `client.Client.transact`)."""
        batch = cast("Batch | None", transaction.publishes)
        try:
            plan = self._plan(transaction, batch)
            if plan.groups:
                await self._carry_out(plan, batch)
        finally:
            if batch is not None:
                self._room.arrived(batch.promised)
        for dispatcher in {each[0].dispatcher for each in plan.settled}:
            dispatcher.pump()

    def _plan(self, transaction: Transaction, batch: Batch | None) -> _Plan:
        plan = _Plan()
        if batch is not None:
            self._add_publishes(plan, batch)
        for settle in transaction.settlements:
            self._add_settlement(plan, settle)
        for change in transaction.changes:
            self._add_changes(plan, change)
        if len(plan.groups) > 1:
            raise KernelError(
                Code.NOT_SAME_GROUP, "a transaction's queues must live in one Raft group"
            )
        settled = sum(len(each[3]) for each in plan.settled)
        if settled + sum(map(len, plan.changes.values())) > TRANSACTION_SETTLEMENTS_MAX:
            raise _limit("transaction_settlements_max", TRANSACTION_SETTLEMENTS_MAX)
        return plan

    def _add_publishes(self, plan: _Plan, batch: Batch) -> None:
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
        consumer = cast("DispatchedConsumer", settle.consumer)
        offsets = list(dict.fromkeys(settle.offsets))
        dispatcher = consumer.dispatcher
        known = [each[3] for each in plan.settled if each[0] is consumer]
        if any(not set(offsets).isdisjoint(each) for each in known):
            raise KernelError(Code.INVALID_ARGUMENT, "a message is settled twice in a transaction")
        if not consumer.held.issuperset(offsets):
            raise KernelError(Code.LEASE_LOST, "a message is not held by the consumer any more")
        if not offsets:
            return
        topic = dispatcher.queue.topic
        ref = next(each for each in topic.refs if each.id == dispatcher.queue.id)
        plan.groups.add(ref.group)
        plan.origin = consumer.origin
        if settle.how is Settlement.RELEASE:
            spent = [each for each in offsets if dispatcher.is_last_attempt(each)]
            if spent:
                plan.settled.append((consumer, Settlement.DEAD_LETTER, Reason.ATTEMPTS, spent))
                offsets = [each for each in offsets if not dispatcher.is_last_attempt(each)]
        if offsets:
            plan.settled.append((consumer, settle.how, settle.reason, offsets))

    def _add_changes(self, plan: _Plan, wanted: ChangeLeases) -> None:
        refs: dict[int, tuple[int, QueueRef]] = {
            ref.id: (number, ref) for number, ref in enumerate(wanted.topic.queues)
        }
        for change in wanted.changes:
            token = decode_token(change.token)
            if token is None or token[0] not in refs:
                raise KernelError(Code.LEASE_LOST, "not a lease of this topic")
            number, ref = refs[token[0]]
            offset, lease = token[1:]
            plan.groups.add(ref.group)
            packed = plan.changes.setdefault((ref.id, wanted.group), {})
            if offset in packed:
                raise KernelError(
                    Code.INVALID_ARGUMENT, "a message is settled twice in a transaction"
                )
            verb, reason, until_ms = change.verb, change.reason, 0
            if change.delay_ms:
                until_ms = self._store.replica(ref.group).log_time_ms() + change.delay_ms
            dispatcher = self._dispatcher(wanted.topic, wanted.group, number)
            if verb is LeaseVerb.RELEASE and dispatcher.is_last_attempt(offset):
                verb, reason, until_ms = LeaseVerb.DEAD_LETTER, Reason.ATTEMPTS, 0
            packed[offset] = (offset, lease, verb, reason, until_ms)

    async def _carry_out(self, plan: _Plan, batch: Batch | None) -> None:
        (group,) = plan.groups
        identity = self._proposer.next_identity()
        lengths = plan.part.lengths if plan.part is not None else []
        buffers = plan.part.buffers if plan.part is not None else []

        own = plan.commands()

        def attempt(leader: Leader, heard: Done) -> None:
            def applied(results: object) -> None:
                if not plan.is_refused(first_of(results)):
                    self._applied(plan, batch, cast("tuple[object, ...]", results))
                heard(results)

            leader.submit(identity, own, lengths, buffers, applied, plan.origin)

        first = await self._proposer.outcome_in_time(group, attempt)
        if plan.is_refused(first):
            raise KernelError(
                Code.LEASE_LOST, "a lease of the transaction has ended, or its message was settled"
            )

    @staticmethod
    def _applied(plan: _Plan, batch: Batch | None, result: tuple[object, ...]) -> None:
        """The log has carried it out: tell the batch and the holders of the leases."""
        for consumer, how, reason, offsets in plan.settled:
            consumer.dispatcher.settle(consumer, how, offsets, reason, urgent=False, logged=True)
        if batch is not None and plan.part is not None:
            batch.part_stored(plan.part, result[1 if plan.changes else 0])
        if batch is not None and batch.live:
            batch.hand_over()


def _packed(kind: Command, body: bytes) -> commands.Packed:
    return int(kind), commands.VERSION, body


def _limit(name: str, most: int) -> KernelError:
    return KernelError(Code.LIMIT_EXCEEDED, f"the transaction is too large: {name} is {most}")
