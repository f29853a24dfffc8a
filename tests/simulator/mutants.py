"""Bugs put in on purpose. Each must be found by an invariant of the simulator, not by a crash.

    python -m tests.simulator.mutants [--only NAME ...] [--seeds 500] [--quick]

Without this nobody knows what the number of seeds says.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernel.broker import machine as broker
from kernel.broker.applying.resizes import Resizes
from kernel.broker.log_commands import commands
from kernel.broker.log_commands.commands import Command, RaiseLevel
from kernel.broker.log_commands.give_up import GiveUp
from kernel.broker.snapshots import snapshot
from kernel.broker.snapshots.snapshot_records import ClientRecord, decode
from kernel.cluster import added_groups
from kernel.cluster.births import Births
from kernel.cluster.placement.view import Kind
from kernel.cluster.placing import Placing
from kernel.definitions.window_hand_over import WindowHandOver
from kernel.in_process.local_client import LocalClient
from kernel.log.format.mark import Mark
from kernel.log.install import InstallJob
from kernel.log.journal import Journal
from kernel.log.locations import pack_position
from kernel.log.recovering.scan import Scan
from kernel.log.writer import WriteBatch, Writer
from kernel.raft import election, leader
from kernel.raft.core import RaftCore
from kernel.raft.log import RaftLog
from kernel.raft.members.tracker import Tracker
from kernel.requests.cut_over import CutOvers
from kernel.requests.leader import NO_IDENTITY
from kernel.requests.request_pipeline import RequestPipeline
from kernel.store.leading.first_tries import FirstTries
from kernel.store.leading.local_leader import LocalLeader
from kernel.store.node import Store
from kernel.store.raft_groups.consensus import Consensus
from kernel.store.raft_groups.healing import Healing
from kernel.store.raft_groups.leaving import LeaveGroup
from kernel.store.raft_groups.member import Member
from kernel.store.recovery import damage
from kernel.store.recovery.unreadable import Unreadable
from kernel.store.replicas import unsettled_keys
from kernel.store.replicas.gates import Gates
from kernel.store.replicas.replica import Replica
from kernel.store.snapshots import transfer
from tests.simulator.swarm.run import Run

Mutant = Callable[[], list[tuple[Any, str, Any]]]


def _answer_before_sync() -> list[tuple[Any, str, Any]]:
    def await_disk(store: Any, member: Any, ready: Any) -> None:
        for message in ready.messages_after_sync:
            store._peers.send(member.group, message)
        member.core.stable(ready.number)

    return [(Store, "await_disk", await_disk)]


def _no_own_term_rule() -> list[tuple[Any, str, Any]]:
    def maybe_commit(core: Any) -> bool:
        index = core.tracker.committed()
        if index <= core.log.committed:
            return False
        core.log.committed = index
        return True

    return [(leader, "maybe_commit", maybe_commit)]


def _truncate_without_conflict() -> list[tuple[Any, str, Any]]:
    def accept(log: Any, index: int, term: int, entries: Any) -> bool:
        if log.term(index) != term:
            return False
        log.truncate(max(index, log.committed) + 1)
        for entry in entries:
            if entry.index > log.last_index:
                log.append(entry)
        return True

    return [(RaftLog, "accept", accept)]


def _vote_not_persisted() -> list[tuple[Any, str, Any]]:
    inner = Journal.append_hard_state

    def append_hard_state(journal: Any, group: int, term: int, vote: int, commit: int) -> None:
        inner(journal, group, term, 0, commit)

    return [(Journal, "append_hard_state", append_hard_state)]


def _retry_after_sync_error() -> list[tuple[Any, str, Any]]:
    inner, begun = WriteBatch.run, WriteBatch.start

    def sync_again(batch: Any) -> None:
        for part in batch.parts:
            if part.segment.file is not None:
                part.segment.file.fdatasync()
        batch.done = True

    def run(batch: Any) -> None:
        try:
            inner(batch)
        except OSError:
            sync_again(batch)

    def start(batch: Any, done: Any) -> bool:
        def ended(error: BaseException | None) -> None:
            if isinstance(error, OSError):
                sync_again(batch)
                error = None
            done(error)

        return begun(batch, ended)

    return [(WriteBatch, "run", run), (WriteBatch, "start", start)]


def _ack_applied_twice() -> list[tuple[Any, str, Any]]:
    inner = broker.Machine._acknowledge

    def acknowledge(machine: Any, body: bytes, origin: int) -> None:
        inner(machine, body, origin)
        name, ranges = broker.commands.decode_ack(body)
        more = [(queue, first + count, 1) for queue, first, count in ranges]
        inner(
            machine,
            broker.commands.encode_ack(
                name, [broker.commands.ACK_RANGE.pack(*each) for each in more]
            ),
            origin,
        )

    return [(broker.Machine, "_acknowledge", acknowledge)]


def _lease_not_fenced() -> list[tuple[Any, str, Any]]:
    inner = broker._is_late

    def is_late(progress: Any, offset: int, lease: int, verb: Any) -> bool | None:
        holder = progress.holder(offset)
        return inner(progress, offset, holder[0] if holder else lease, verb)

    return [(broker, "_is_late", is_late)]


def _without(*kinds: type) -> list[tuple[Any, str, Any]]:
    inner = snapshot.load

    def load(records: Any, *how: Any) -> Any:
        return inner((each for each in records if not isinstance(decode(each), kinds)), *how)

    return [(transfer, "load", load), (damage, "load", load)]


def _results_forgotten_in_snapshot() -> list[tuple[Any, str, Any]]:
    return _without(ClientRecord)


def _snapshot_without_membership() -> list[tuple[Any, str, Any]]:
    inner = snapshot.load

    def load(records: Any, *how: Any) -> Any:
        state = inner(records, *how)
        state.membership = None
        return state

    return [(damage, "load", load)]


def _repeat_is_stored() -> list[tuple[Any, str, Any]]:
    inner = broker.Machine.apply

    def apply(machine: Any, index: Any, term: int, body: bytes) -> Any:
        for known in machine.state.clients.values():
            known.results.clear()
            known.floor = 0
        return inner(machine, index, term, body)

    return [(broker.Machine, "apply", apply)]


def _commit_by_any_disk() -> list[tuple[Any, str, Any]]:
    def committed(tracker: Any) -> int:
        return max((each.match for each in tracker.progress.values()), default=0)

    return [(Tracker, "committed", committed)]


def _cut_at_first_bad_record() -> list[tuple[Any, str, Any]]:
    return [(Scan, "_damage", lambda *_what, **_how: None)]


def _damaged_replica_goes_on() -> list[tuple[Any, str, Any]]:
    inner = Healing.__init__

    def begin(self: Any, node: int, _damaged: Any, *what: Any) -> None:
        inner(self, node, (), *what)

    return [(Healing, "__init__", begin)]


def _commits_forgotten() -> list[tuple[Any, str, Any]]:
    def append_hard_state(journal: Any, group: int, term: int, vote: int, commit: int) -> None:
        inner(journal, group, term, vote, 0)

    inner = Journal.append_hard_state
    return [(Journal, "append_hard_state", append_hard_state)]


def _handed_out_without_a_lease() -> list[tuple[Any, str, Any]]:
    def may_hand_out(_replica: Any) -> bool:
        return True

    def holds_lease(_replica: Any, _holds: bool) -> None:
        pass

    return [(Replica, "may_hand_out", may_hand_out), (Replica, "holds_lease", holds_lease)]


def _sent_again_newest_first() -> list[tuple[Any, str, Any]]:
    again = RequestPipeline._again

    def newest_first(request_pipeline: Any, group: Any, lane: Any) -> None:
        lane.sent = dict(reversed(lane.sent.items()))
        again(request_pipeline, group, lane)

    return [(RequestPipeline, "_again", newest_first)]


def _refused_is_stored_later() -> list[tuple[Any, str, Any]]:
    def is_new(_tries: Any, _identity: Any) -> bool:
        return True

    return [(FirstTries, "is_new", is_new)]


def _leads_before_its_vote_is_on_disk() -> list[tuple[Any, str, Any]]:
    inner = RaftCore.become_candidate

    def become_candidate(core: Any) -> None:
        inner(core)
        core.tracker.votes[core.node] = True

    return [(RaftCore, "become_candidate", become_candidate)]


def _commit_of_another_log() -> list[tuple[Any, str, Any]]:
    def learn_committed(core: Any, message: Any) -> None:
        index = min(message.index, core.log.last_index)
        if message.reject and index > core.log.committed:
            core.log.commit_to(index)

    return [(election, "learn_committed", learn_committed)]


def _mark_before_its_sync() -> list[tuple[Any, str, Any]]:
    inner = Writer.begin

    def begin(writer: Any) -> Any:
        batch = inner(writer)
        if batch is not None:
            end = batch.parts[-1].segment
            writer.mark.note(Mark(batch.last_sequence, end.number, end.end))
        return batch

    return [(Writer, "begin", begin)]


def _neighbour_given_up_too() -> list[tuple[Any, str, Any]]:
    inner = Unreadable._carry_out

    async def carry_out(self: Any, replica: Any, index: int, places: Any, aside: Any) -> None:
        await inner(self, replica, index, places, aside)
        replica.propose(GiveUp(index + 1, tuple(places)), (0, 0, 0), lambda _result: None)

    return [(Unreadable, "_carry_out", carry_out)]


def _given_up_outside_the_log() -> list[tuple[Any, str, Any]]:
    async def carry_out(self: Any, replica: Any, index: int, places: Any, _aside: Any) -> None:
        replica.machine._control[Command.GIVE_UP](GiveUp(index, tuple(places)))
        self._given_up.add((replica.group, index))

    return [(Unreadable, "_carry_out", carry_out)]


def _written_before_its_level() -> list[tuple[Any, str, Any]]:
    return [(commands, "CONTROL_LEVELS", {})]


def _level_of_group_0_is_looked_at() -> list[tuple[Any, str, Any]]:
    inner = LocalLeader.propose

    def propose(leader: Any, change: Any, identity: Any, done: Any) -> None:
        level = commands.CONTROL_LEVELS.get(type(change), 0)
        if level and level <= leader._host.feature_level:
            leader._replica.propose(change, identity, done)
        else:
            inner(leader, change, identity, done)

    return [(LocalLeader, "propose", propose)]


def _groups_raised_without_group_0() -> list[tuple[Any, str, Any]]:
    inner = LocalClient.raise_level

    async def raise_level(client: Any, level: int) -> int:
        store = client._store
        for group in store.data_groups:
            if store.serving(group) is not None:
                store.leader(group).propose(RaiseLevel(level), NO_IDENTITY, None)
        return await inner(client, level)

    return [(LocalClient, "raise_level", raise_level)]


def _level_lost_in_snapshot() -> list[tuple[Any, str, Any]]:
    inner = snapshot.load

    def load(records: Any, *how: Any) -> Any:
        state = inner(records, *how)
        state.feature_level = 0
        return state

    return [(transfer, "load", load), (damage, "load", load)]


def _old_leave_obeyed() -> list[tuple[Any, str, Any]]:
    return [(LeaveGroup, "check", lambda *_what: None)]


def _vote_forgotten_with_the_group() -> list[tuple[Any, str, Any]]:
    inner = Consensus.leave

    def leave(self: Any, group: Any) -> None:
        inner(self, group)
        core = self.members[group].core
        core.term = core.vote = 0

    return [(Consensus, "leave", leave)]


def _short_group_is_left_short() -> list[tuple[Any, str, Any]]:
    inner = Placing._begin

    async def begin(self: Any, move: Any) -> None:
        if move.kind is not Kind.ADD:
            await inner(self, move)

    return [(Placing, "_begin", begin)]


def _wiped_store_makes_its_group_again() -> list[tuple[Any, str, Any]]:
    def look(births: Any) -> None:
        store = births._store
        for number, (_, group) in added_groups.read(
            births._client.records(added_groups.PREFIX)
        ).items():
            if number in store.groups:
                continue
            own = group.store == store.node
            if own or group.state is not added_groups.GroupState.WANTED:
                store.add_group(number, born=own)

    return [(Births, "look", look)]


def _stuck_lease_holds_the_queue() -> list[tuple[Any, str, Any]]:
    return [(unsettled_keys, "GATE_MESSAGES_MAX", 0)]


def _key_opened_too_early_in_another_group() -> list[tuple[Any, str, Any]]:
    inner = Gates.told

    def told(self: Any, gate: Any, answer: Any) -> None:
        if answer.is_all and answer.keys:
            answer = answer._replace(keys=answer.keys[1:])
        inner(self, gate, answer)

    return [(Gates, "told", told)]


def _transaction_goes_on_though_sealed() -> list[tuple[Any, str, Any]]:
    return [(Replica, "takes_nothing", lambda _replica, _queue: False)]


def _sent_before_outstanding_is_answered() -> list[tuple[Any, str, Any]]:
    inner = CutOvers._is_ready

    def is_ready(self: Any, ident: Any) -> bool:
        cut = self._topics.get(ident)
        if cut is not None and ident in self._known:
            cut.waiting.clear()
        return inner(self, ident)

    return [(CutOvers, "_is_ready", is_ready)]


def _latch_lost_at_an_election() -> list[tuple[Any, str, Any]]:
    inner = Member.lead

    def lead(self: Any, *args: Any, **named: Any) -> bool:
        for resized in self.state.resized.values():
            for successor in resized.successors.values():
                successor.drained.clear()
        return inner(self, *args, **named)

    return [(Member, "lead", lead)]


def _deduplication_not_handed_over() -> list[tuple[Any, str, Any]]:
    return [(broker, "known_before", lambda *_what: None)]


def _window_not_told_to_other_groups() -> list[tuple[Any, str, Any]]:
    async def hand_over(_of_one: Any, _ends: Any = None) -> None:
        """Nothing of it."""

    return [(WindowHandOver, "hand_over", hand_over)]


def _number_used_again_at_offset_0() -> list[tuple[Any, str, Any]]:
    inner = Resizes._make

    def make(self: Any, resized: Any, topic: Any, ident: Any, _first: int) -> None:
        inner(self, resized, topic, ident, 0)

    return [(Resizes, "_make", make)]


def _lost_group_is_never_left() -> list[tuple[Any, str, Any]]:
    """Who may have had a group, and has lost it, is not told that it is no member."""
    inner = Store.has_nothing_of

    def has_nothing_of(store: Any, group: Any) -> bool:
        member = store.consensus.members[group]
        lost = group in store.consensus.healing.patients and not member.core.log.last_index
        return lost or inner(store, group)

    return [(Store, "has_nothing_of", has_nothing_of)]


def _uncommitted_taken_over() -> list[tuple[Any, str, Any]]:
    """What stands in the log, applied or not, need not come with a snapshot."""
    inner = InstallJob.take

    def take(job: Any, index: int) -> bool:
        if inner(job, index):
            return True
        if not job._locations.has(job.group, index):
            return False
        segment, offset, length = job._locations.locate(job.group, index)
        job._taken.add(index, pack_position(segment.number, offset), length)
        return True

    return [(InstallJob, "take", take)]


MUTANTS: dict[str, Mutant] = {
    make.__name__.removeprefix("_"): make
    for make in (
        *(_answer_before_sync, _no_own_term_rule, _truncate_without_conflict),
        *(_vote_not_persisted, _retry_after_sync_error, _cut_at_first_bad_record),
        *(_ack_applied_twice, _lease_not_fenced, _results_forgotten_in_snapshot),
        *(_snapshot_without_membership, _repeat_is_stored, _commit_by_any_disk),
        *(_commits_forgotten, _damaged_replica_goes_on, _handed_out_without_a_lease),
        *(_sent_again_newest_first, _refused_is_stored_later, _leads_before_its_vote_is_on_disk),
        *(_commit_of_another_log, _mark_before_its_sync),
        *(_neighbour_given_up_too, _given_up_outside_the_log),
        *(_written_before_its_level, _level_of_group_0_is_looked_at),
        *(_groups_raised_without_group_0, _level_lost_in_snapshot),
        *(_old_leave_obeyed, _vote_forgotten_with_the_group, _short_group_is_left_short),
        *(_wiped_store_makes_its_group_again, _stuck_lease_holds_the_queue),
        _key_opened_too_early_in_another_group,
        *(_transaction_goes_on_though_sealed, _sent_before_outstanding_is_answered),
        *(_latch_lost_at_an_election, _deduplication_not_handed_over),
        _window_not_told_to_other_groups,
        *(_number_used_again_at_offset_0, _uncommitted_taken_over),
        _lost_group_is_never_left,
    )
}

QUICK = (
    *("answer_before_sync", "vote_not_persisted", "ack_applied_twice"),
    "sent_again_newest_first",
)
"""Those that CI runs."""


@contextmanager
def mutated(make: Mutant) -> Iterator[None]:
    """The product with that bug."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in make():
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def hunt(name: str, seeds: int, events: int) -> tuple[int, str]:
    """(seed, invariant) that finds it first; seed 0 if none does."""
    with mutated(MUTANTS[name]):
        for seed in range(1, seeds + 1):
            outcome = Run(seed, events).go()
            if outcome.broken:
                return seed, outcome.broken[0][0]
    return 0, ""


def main() -> int:
    """Exit code 1 if one lives."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.mutants")
    parser.add_argument("--only", nargs="*", choices=sorted(MUTANTS))
    parser.add_argument("--quick", action="store_true", help="those that CI runs")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--events", type=int, default=2_000)
    asked = parser.parse_args()
    names = asked.only or (QUICK if asked.quick else tuple(MUTANTS))
    found = 0
    for name in names:
        begun = time.monotonic()
        seed, invariant = hunt(name, asked.seeds, asked.events)
        found += bool(seed)
        what = f"found in {seed} seeds by {invariant}" if seed else "LIVES"
        print(f"{name}: {what} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{found} passed, {len(names) - found} failed")
    return 0 if found == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
