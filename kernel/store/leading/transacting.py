"""Transactions at their leader (see `atomic`): it decides, the log records.

A transaction is one batch of one entry: a GUARD that names every timed lease it counts on, then its
messages, settlements and changes. Apply carries out what stands behind a GUARD only if all of it
holds, so that a replay, and a repeat of the batch, come to the same result. What a session holds is
known to the leader alone, and is looked at before the entry is filled.

Durability: `done` hears from the apply of the entry, which is fdatasynced; a crash before leaves
all of it or nothing. A repeat under the same identity is told what the first try came to, also by
the next leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...api.client import LeaseVerb, Settlement
from ...api.model import Reason
from ...broker.delivery.consumers import DispatchedConsumer
from ...broker.log_commands import commands
from ...broker.log_commands import tree_commands as tree
from ...broker.log_commands.commands import Command
from ...common.errors import Code, KernelError
from ...common.ids import QueueId
from ...requests.leader import LeaseChanging, Settling, Together
from ...requests.publish_part import Part
from ..replicas.open_entry import ranges_of, retain_commands
from ..replicas.replica import Replica

LOST = "a lease of the transaction has ended, or its message was settled"


def packed_changes(
    replica: Replica, queue: QueueId, group: str, changes: Sequence[LeaseChanging]
) -> list[commands.Change]:
    """Changes of timed leases as the log has them, with its times. Raises KernelError NOT_LEADER,
    NOT_FOUND.
    """
    now_ms = replica.log_time_ms()
    is_last: Callable[[int], bool]
    try:
        is_last = replica.dispatcher(queue, group).is_last_attempt
    except KernelError as error:
        # What has reached nobody is to be counted also if there is nowhere to give it back to.
        if error.code is not Code.NOT_FOUND or not all(each.slot_bytes for each in changes):
            raise
        is_last = _never
    return [
        (each.offset, each.lease, LeaseVerb.DEAD_LETTER, Reason.ATTEMPTS, 0, 0)
        if each.verb is LeaseVerb.RELEASE and is_last(each.offset)
        else (
            each.offset,
            each.lease,
            each.verb,
            each.reason,
            now_ms + each.delay_ms if each.delay_ms else 0,
            each.slot_bytes,
        )
        for each in changes
    ]


def _never(_offset: int) -> bool:
    return False


class Plan:
    """A transaction as the leader carries it out."""

    __slots__ = ("_changes", "_settled")

    def __init__(self, replica: Replica, what: Together) -> None:
        """Raises KernelError NOT_LEADER, NOT_FOUND, LEASE_LOST; BUSY: a queue is sealed."""
        if any(replica.takes_nothing(QueueId(run[0])) for run in what.part.runs):
            raise KernelError(Code.BUSY, "a topic of the transaction is being resized")
        self._settled: list[Settling] = []
        for each in what.settlements:
            self._settle(each)
        self._changes = [
            (queue, group, packed_changes(replica, queue, group, changes))
            for queue, group, changes in what.changes
        ]

    def _settle(self, each: Settling) -> None:
        consumer = cast("DispatchedConsumer", each.consumer)
        if not consumer.held.issuperset(each.offsets):
            raise KernelError(Code.LEASE_LOST, "a message is not held by the consumer any more")
        if each.how is not Settlement.RELEASE:
            self._settled.append(each)
            return
        is_last = consumer.dispatcher.is_last_attempt
        spent = [at for at in each.offsets if is_last(at)]
        others = [at for at in each.offsets if not is_last(at)]
        if spent:
            how, reason = Settlement.DEAD_LETTER, Reason.ATTEMPTS
            self._settled.append(Settling(consumer, how, reason, spent))
        if others:
            self._settled.append(Settling(consumer, each.how, each.reason, others))

    def commands(self, part: Part, counts: Sequence[int] | None) -> list[commands.Packed]:
        """What is to be carried out, over the slots of its messages as they are stored; `counts`:
        how many lists each of their names has brought.
        """
        found: list[commands.Packed] = []
        leases = tuple(
            (queue, group, offset, lease, verb.value)
            for queue, group, packed in self._changes
            for offset, lease, verb, *_ in packed
        )
        if leases:
            found.append(commands.encode_control(commands.Guard(leases)))
        if part.lengths:
            found.append(_packed(Command.ENQUEUE, commands.encode_enqueue(part.runs)))
            found += retain_commands(part.retained)
        for each in self._settled:
            dispatcher = cast("DispatchedConsumer", each.consumer).dispatcher
            queue, group = dispatcher.queue.id, dispatcher.group
            ranges = ranges_of(list(each.offsets))
            body = commands.encode_settle(queue, group, each.how, each.reason, ranges)
            found.append(_packed(Command.SETTLE, body))
        for queue, group, packed in self._changes:
            found.append(commands.encode_change(queue, group, packed))
        if counts is not None:
            found.append(commands.encode_control(tree.Listed(tuple(counts))))
        return found

    def applied(self) -> None:
        """The log has carried it out: the holders of the leases have them no more."""
        for each in self._settled:
            consumer = cast("DispatchedConsumer", each.consumer)
            consumer.dispatcher.settle(
                consumer, each.how, each.offsets, each.reason, urgent=False, logged=True
            )

    def pump(self) -> None:
        """Hand out what it has made ready; in a later turn."""
        consumers = [cast("DispatchedConsumer", each.consumer) for each in self._settled]
        for dispatcher in dict.fromkeys(each.dispatcher for each in consumers):
            dispatcher.pump()


def results_of(what: Together, results: object) -> object:
    """The results of a transaction's batch as its client hears them: those of a publish, or the
    error for which nothing was done.
    """
    if is_refused(results):
        return results
    assert isinstance(results, tuple)
    if what.changes and results[0]:
        return (KernelError(Code.LEASE_LOST, LOST),)
    stored = results[1 if what.changes else 0] if what.part.lengths else []
    return (stored, results[-1]) if what.part.routed else (stored,)


def is_refused(told: object) -> bool:
    """Whether nothing was done, or nobody knows."""
    return not isinstance(told, tuple) or not told or isinstance(told[0], KernelError)


def _packed(kind: Command, body: bytes) -> commands.Packed:
    return int(kind), commands.VERSION, body
