"""One seed: a cluster, its clients, its faults, then peace, and what must be true in the end."""

from __future__ import annotations

import asyncio
import gc
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from kernel.broker.group_state.resized import ResizedTopic
from kernel.broker.group_state.state import GroupState
from kernel.broker.snapshots.snapshot import dump
from kernel.common.errors import KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import METADATA_GROUP, QueueId, RaftGroup, TopicId, home_of, topic_of
from kernel.in_process.opening import LocalStore
from kernel.log.journal import Journal
from kernel.log.writer import WriteBatch
from kernel.raft.members.configuration import ADD_LEARNER, ADD_VOTER, Change, ConfigurationChange
from tests.simulator.loop import SimulatedClock, VirtualLoop
from tests.simulator.peer import Draft
from tests.simulator.stored import wrong_sums

from .beside_resizes import BesideResizes
from .clients import QUEUES, RESIZABLE, TOPICS, Producer, Subscriber, born_in, draft_for
from .faults import VOTERS_MIN, Faults
from .feature_rules import FeatureRules
from .levels import Levels, levels_of
from .machines import DATA_GROUPS, Machine, Network
from .newborn import Newborn
from .operator import Operator
from .placed import Placed
from .probe import observed
from .queue_rules import QueueRules
from .raft_rules import RaftRules, Record
from .resizer import Resizer

PEACE_S_MAX = 90
"""Virtual time in which everything is level and drained once nothing goes wrong any more."""

GROW_S_MAX = 60

FOLLOWS_S = 0.3
"""Between two looks at which queues there are."""

HASH_EVERY = 500
"""Events between two comparisons of states."""


@dataclass
class Outcome:
    """Of one seed."""

    seed: int
    events: int
    broken: list[tuple[str, str]]
    """(invariant, what) of what was broken first."""
    counters: Counter[str]
    crash: str = ""
    virtual_s: float = 0.0
    notes: list[str] = field(default_factory=list)


class Run:
    """See the module's head."""

    def __init__(self, seed: int, events_max: int, levels: Levels | None = None) -> None:
        self.seed = seed
        self.levels = levels or levels_of(seed)
        self._events_max = events_max
        self.events = 0
        self.loop = VirtualLoop()
        self.clock = SimulatedClock(self.loop)
        self.counters: Counter[str] = Counter()
        self.notes: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.crash = ""
        self.raft = RaftRules(self)
        self.queues = QueueRules(self)
        self.features = FeatureRules(self)
        self.faults = Faults(self)
        self.journals: dict[Journal, Machine] = {}
        self.batches: dict[WriteBatch, tuple[Machine, list[Record]]] = {}
        self.network = Network(self)
        self.newborn = Newborn(self)
        first = tuple(range(1, self.levels.nodes + 1))
        self.machines = {
            number: Machine(self, number, None if number == 1 else ())
            for number in ((*first, len(first) + 1) if len(first) > 1 else first)
        }
        self.draining = False
        self.peaceful = True
        """Nothing goes wrong: before the faults, and after them."""
        self.unknown_outcome = False
        self.flipped = 0
        """The node whose disk is a bad one: the faults that Raft bears are those of a minority."""
        self._chance = random.Random(seed + 3)
        self._starts: list[asyncio.Task[None]] = []
        """One of a process that was killed meanwhile waits for ever."""
        self.left_behind: list[LocalStore] = []
        """Of processes that have ended: tasks of theirs wait for ever."""
        self._hashed_at = 0
        self._followed_s = 0.0
        self._followers = 10
        self._operator = Operator(self, events_max)
        self._placed = Placed(self)
        self._hashes: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.resizer = Resizer(self, RESIZABLE)
        self.beside = BesideResizes(self)
        self._places: dict[QueueId, RaftGroup] = {}
        """Of queues of topics that may be spread."""
        self._producers = [Producer(self, number) for number in (1, 2)]
        self._subscribers = [
            Subscriber(self, number, queue)
            for number, queue in enumerate([*QUEUES, QUEUES[0], QUEUES[2], QUEUES[3]])
        ]

    def draft(self, topic: TopicId, chance: random.Random) -> Draft:
        """A message for a topic."""
        return draft_for(topic, chance, self.levels.body_bytes_max)

    # --- What the parts tell ----------------------------------------------------------------

    def broken(self, invariant: str, what: str) -> None:
        """An invariant does not hold."""
        self.found.append((invariant, what))

    def crashed(self, what: str) -> None:
        """The product has failed in a way that it should not."""
        self.crash = self.crash or what

    def count(self, what: str, times: int = 1) -> None:
        """Something that must happen often, over all seeds."""
        self.counters[what] += times

    def note(self, what: str) -> None:
        """For a person who reads a failing run."""
        self.notes.append(f"{self.loop.time():8.3f} {what}")

    def machine_of(self, journal: Journal) -> Machine | None:
        """Whose journal it is, once that is known."""
        return self.journals.get(journal)

    def ended(self, machine: Machine) -> None:
        """A process has ended. Somebody starts it again."""
        gateways = [each.gateway for each in self._producers]
        for client in (*self._producers, *gateways, *self._subscribers, self._operator):
            client.link.died(machine)
        for each in self.machines.values():
            if each.peer_stores is not None:
                each.peer_stores.link.died(machine)
        if not self.draining:
            self.loop.call_later(self._chance.uniform(0.1, 5), self._restart, machine)

    def _restart(self, machine: Machine) -> None:
        self._starts.append(self.loop.create_task(self._started(machine)))

    async def _started(self, machine: Machine) -> None:
        try:
            runs = await machine.try_start()
        except KernelError as error:
            self.crashed(f"node {machine.number} does not start: {error!r}")
            return
        if not runs and not self.draining:
            self.loop.call_later(self._chance.uniform(0.5, 2), self._restart, machine)

    def may_lose(self) -> bool:
        """Whether any one disk may be lost: a majority of every group is left."""
        for each in self.machines.values():
            for group in each.opened.store.groups if each.runs else ():
                core = each.member(group).core
                members = core.tracker.members
                if core.log.configurations or members.voters_outgoing or group in each.heals:
                    return False
                if members.has(each.number) and len(members.voters) < VOTERS_MIN:
                    return False
        return True

    def term_of(self, group: int) -> int:
        """The highest term in which anybody leads a group."""
        return max(
            (
                each.member(group).core.term
                for each in self.machines.values()
                if each.runs and each.serves(group)
            ),
            default=0,
        )

    def someone_who_leads(self, group: int, chance: random.Random) -> Machine | None:
        """A node that says it leads a group, or else any that runs."""
        running = [each for each in self.machines.values() if each.runs]
        leading = [each for each in running if each.serves(group)]
        choice = leading or running
        return chance.choice(choice) if choice else None

    # --- The run ----------------------------------------------------------------------------

    def go(self) -> Outcome:
        """Run the seed."""
        asyncio.set_event_loop(self.loop)
        try:
            with observed(self):
                self.loop.run_until_complete(self._story())
        except Exception as error:  # noqa: BLE001 - told as a crash
            self.loop.errors.append(error)
        finally:
            self._close()
        for error in self.loop.errors:
            self.crashed("".join(traceback.format_exception(error))[-3_000:])
        return Outcome(
            self.seed,
            self.events,
            self.found,
            self.counters,
            self.crash,
            self.loop.time(),
            self.notes,
        )

    def _close(self) -> None:
        self.draining = True
        self.loop.go_on()
        # What was just begun begins: a coroutine that nobody ever awaits is warned of.
        self.loop.run_until_complete(asyncio.sleep(0))
        for machine in self.machines.values():
            if machine.runs:
                machine.kill()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            gathered = asyncio.gather(*tasks, return_exceptions=True)
            self.loop.run_until_complete(gathered)
        self.loop.close()
        asyncio.set_event_loop(None)

    @property
    def _over(self) -> bool:
        return bool(self.found or self.crash or self.loop.errors)

    async def _story(self) -> None:
        for machine in self.machines.values():
            await machine.start()
        for topic in TOPICS:
            self._producers[0].administer(topic)
        async with asyncio.timeout(GROW_S_MAX):
            await self._grow()
        chance = self._chance
        levels = self.levels
        self.peaceful = False
        if levels.placed:
            self._placed.begin()
        while self.events < self._events_max and not self._over:
            await asyncio.sleep(chance.expovariate(1 / levels.pause_s))
            fate = chance.random()
            if fate < levels.fault_share:
                self.faults.happen()
            elif fate < 0.55:
                chance.choice(self._producers).publish()
            elif fate < 0.98:
                chance.choice(self._subscribers).look_around()
            else:
                chance.choice(self._subscribers).disconnect()
            self._operator.look()
            self._placed.look()
            self.newborn.look()
            self._look_at_sizes()
            self.beside.look()
            if self.events - self._hashed_at > HASH_EVERY:
                self._hashed_at = self.events
                self.same_state_at_the_same_index()
        if not self._over:
            await self._peace()

    async def _grow(self) -> None:
        """One node becomes a cluster, as an operator makes it (ADR 9), while nothing goes wrong.
        The last machine stays apart.
        """
        trouble = self.network
        trouble.be_pleasant()
        await asyncio.sleep(self.levels.checkpoint_s + 2)
        first = self.machines[1]
        voters = tuple(range(1, self.levels.nodes + 1))
        for kind in (ADD_LEARNER, ADD_VOTER):
            for number in voters[1:]:
                for group in self.groups():
                    core = first.member(group).core
                    change = ConfigurationChange((Change(kind, number),))
                    first.opened.store.consensus.change_members(group, change)
                    while number not in (
                        core.tracker.members.learners
                        if kind == ADD_LEARNER
                        else core.tracker.members.voters
                    ):
                        await asyncio.sleep(0.01)
            while kind == ADD_LEARNER and not self._is_level():
                await asyncio.sleep(0.1)
        trouble.heal()
        self.counters.clear()
        self.events = 0
        self.note(f"{len(voters)} nodes")

    def _is_level(self) -> bool:
        return all(
            progress.match == core.log.last_index
            for group in self.groups()
            for core in (self.machines[1].member(group).core,)
            for progress in core.tracker.peers
        )

    def _look_at_sizes(self) -> None:
        """Topics are resized, and whoever follows them follows."""
        if not self.resizer.topics:
            return
        self.resizer.look()
        for each in self._producers:
            each.gateway.look(list(self.resizer.topics))
        now = self.loop.time()
        if now - self._followed_s >= FOLLOWS_S:
            self._followed_s = now
            self._follow()

    def _follow(self) -> None:
        """Each queue has a consumer, and one that is gone has none."""
        for topic in self.resizer.topics:
            leader = self.leader(home_of(topic))
            known = leader.member(home_of(topic)).state.topics.get(topic) if leader else None
            if known is None:
                continue
            refs = {ref.id for ref in known.refs}
            self._places.update((ref.id, ref.group) for ref in known.refs)
            for each in [e for e in self._subscribers if topic_of(e.queue) == topic]:
                if each.queue not in refs:
                    self._subscribers.remove(each)
                    each.disconnect()
                refs.discard(each.queue)
            for queue in sorted(refs):
                self._followers += 1
                self._subscribers.append(Subscriber(self, self._followers, queue))

    # --- Peace ------------------------------------------------------------------------------

    async def _peace(self) -> None:
        """Faults end: `converges`, then what must be true of everything."""
        self.note("peace")
        self.peaceful = True
        self._operator.renew_all()
        end = self.loop.time() + PEACE_S_MAX
        while self.loop.time() < end and not self._over:
            self.network.heal()
            self.network.be_pleasant()
            for machine in list(self.machines.values()):
                machine.disk.capacity = 1 << 40
                machine.disk.on_boundary = None
                machine.disk._failures.clear()
                machine.workers.delay_s.clear()
                await machine.try_start()
            self.draining = self.loop.time() > end - PEACE_S_MAX + 3
            for subscriber in self._subscribers:
                subscriber.look_around()
            self._operator.look()
            self._placed.look()
            self._look_at_sizes()
            await asyncio.sleep(0.1)
            if self.draining and self._is_quiet():
                break
        if self._over:
            return
        if not self._is_quiet():
            below = self._placed.below()
            self.broken("no_group_below_r" if below else "converges", below or self._why_not())
            return
        self.same_state_at_the_same_index()
        if self.levels.nodes == 1:  # replay comes to the same
            self.machines[1].kill()
            await self.machines[1].try_start()
        for group in self.groups():
            leader = self.leader(group)
            assert leader is not None
            self.queues.counted_is_stored(leader.member(group).state)
        await self.beside.check()
        self.queues.total_queue()
        self.queues.publish_order()

    def groups(self) -> list[RaftGroup]:
        """Numbers of all groups that the register says are there."""
        return [*self.founding(), *sorted(self.newborn.there)]

    def founding(self) -> list[RaftGroup]:
        """Those that it began with."""
        return [RaftGroup(number) for number in range(DATA_GROUPS + 1)]

    def group_of(self, queue: QueueId) -> RaftGroup:
        """Raft group of a queue."""
        return self._places.get(queue) or born_in(queue)

    def is_acked(self, queue: int, group: str, offset: int) -> bool:
        """Whether a message is done with, or its queue gone, as who has applied most knows."""
        at = self.group_of(QueueId(queue))
        states = [each.member(at).state for each in self.machines.values() if each.runs]
        furthest = max(states, key=lambda each: each.applied)
        found = furthest.queues.get(QueueId(queue))
        return found is None or found.groups[group].is_acked(offset)

    def leader(self, group: int) -> Machine | None:
        """The node that leads a group, of the highest term."""
        leading = [e for e in self.machines.values() if e.runs and e.serves(group)]
        return max(leading, key=lambda each: each.member(group).core.term, default=None)

    def voters(self, group: int) -> set[int]:
        """As who leads a group knows them; nobody if none does."""
        leader = self.leader(group)
        return set(leader.member(group).core.tracker.members.voters if leader else ())

    def everybody(self, group: int) -> set[int]:
        """Voters and learners, as who leads a group knows them; nobody if none does."""
        leader = self.leader(group)
        learners = leader.member(group).core.tracker.members.learners if leader else ()
        return self.voters(group) | set(learners)

    def _is_quiet(self) -> bool:
        return not self._why_not()

    def _why_not(self) -> str:
        """What is not level or drained yet; nothing if all is."""
        gateways = [each.gateway for each in self._producers]
        if self._operator.pending or any(each.pending for each in (*self._producers, *gateways)):
            return "publishes are not answered"
        for machine in self.machines.values():
            if not machine.runs:
                return f"node {machine.number} does not start"
            if machine.mends:
                return f"node {machine.number} mends what was left half done"
        moves = self._placed.why_not() or self.newborn.why_not() or self.beside.why_not()
        if moves:
            return moves
        for group in self.groups():
            leader = self.leader(group)
            if leader is None:
                return f"group {group} has no leader"
            member = leader.member(group)
            members = member.core.tracker.members
            if members.voters_outgoing:
                return f"group {group} is in a joint configuration"
            for number in (*members.voters, *members.learners):
                machine = self.machines[number]
                if machine.runs and group not in machine.opened.store.groups:
                    return f"group {group}: node {number} has not heard of it"
                if machine.runs and group in machine.heals:
                    return f"group {group}: node {number} is not healed"
                if machine.runs and machine.member(group).state.applied != member.state.applied:
                    return f"group {group}: node {number} is not level"
            follows = self.voters(group) & self.voters(METADATA_GROUP)
            if member.state.feature_level < LATEST and follows:
                return f"group {group} has level {member.state.feature_level}"
            if member.state.outbox:
                return f"group {group}: {len(member.state.outbox)} dead letters wait"
        for machine in self.machines.values():
            for group in machine.heals:
                if RaftGroup(group) in self.groups():  # (members are looked at above)
                    return f"group {group}: node {machine.number} waits to be healed, or to leave"
            opened = machine.opened.store
            if opened.feature_level > opened.journal.last_checkpoint.level:
                return f"the checkpoint of {machine.number} does not say what is on"
        for topic in TOPICS:
            leader = self.leader(home_of(topic))
            assert leader is not None
            member = leader.member(home_of(topic))
            if topic not in member.state.topics:
                return f"topic {topic:x} is not there"
            groups = {ref.group for ref in member.state.topics[topic].refs} | {home_of(topic)}
            for group in groups:
                leader = self.leader(group)
                assert leader is not None
                if why := self._why_not_drained(leader.member(group).state, topic):
                    return why
        return ""

    def _why_not_drained(self, state: GroupState, topic: TopicId) -> str:
        resized = state.resized.get(topic, ResizedTopic())
        if resized.plan is not None:
            return f"topic {topic:x} is being resized"
        refs = (ref.id for ref in state.topics[topic].refs if ref.group == state.group)
        for queue, found in (
            (each, state.queues[each]) for each in resized.queues_here(topic, refs)
        ):
            for progress in found.groups.values():
                if progress.floor < found.index.tail:
                    return f"queue {queue:x}: acked to {progress.floor} of {found.index.tail}"
        return ""

    def same_state_at_the_same_index(self) -> None:
        """Replicas that have applied the same index have the same state."""
        self.same_state_in(*self.machines.values())

    def same_state_in(self, *machines: Machine) -> None:
        """Of these, and of what was seen so far."""
        for group in self.groups():
            for machine in machines:
                if not machine.runs or group not in machine.opened.store.groups:
                    continue
                state = machine.member(group).state
                digest = blake2b(digest_size=16)
                for record in dump(state):
                    digest.update(record)
                key = (int(group), int(state.applied))
                row = (machine.number, digest.digest())
                known = self._hashes.setdefault(key, row)
                if known[1] != row[1]:
                    what = f"group {group} index {key[1]}: {known[0]} and {row[0]} differ"
                    self.broken("same_state_at_the_same_index", what)
                wrong = wrong_sums(state)
                if wrong:
                    self.broken("sums_are_of_what_is_stored", f"node {machine.number}, {wrong}")


def run_seed(task: tuple[int, int]) -> Outcome:
    """One seed with so many events."""
    seed, events = task
    return Run(seed, events).go()


def seldom_collect() -> None:
    """Have Python's cycle collector leave alone what is loaded, and look at the rest seldom: by
    default it takes a tenth of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
