"""What happens to machines and network, by name (`levels.FAULTS`). It passes after a while."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from kernel.common.errors import KernelError
from kernel.common.ids import METADATA_GROUP
from kernel.log.format.checkpoint import Position
from kernel.log.format.files import segment_name
from kernel.log.format.segment import HEADER_PAGE_BYTES
from kernel.log.hard_read import PAGE_BYTES
from kernel.raft.members.configuration import (
    ADD_LEARNER,
    ADD_VOTER,
    REMOVE,
    Change,
    ConfigurationChange,
)
from kernel.raft.messages import LEADER
from kernel.store.raft_groups.healing import may_vote
from kernel.store.raft_groups.holding import HOLD_MS
from tests.simulator.disk import SimulatedDisk
from tests.simulator.world import WRITER

from .machines import Machine

if TYPE_CHECKING:
    from .run import Run

DAY_MS = 24 * 3_600_000

VOTERS_MIN = 3
"""Of a group in a cluster with a bad disk: without that one there is a majority."""


def is_level(machine: Machine, group: int, learner: int) -> bool:
    """Whether a leader's learner has all but a few entries."""
    core = machine.member(group).core
    return may_vote(core.tracker.progress[learner], core.log.last_index)


class Faults:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 2)
        self._names = list(run.levels.faults)
        self._weights = list(run.levels.faults.values())
        self._act: dict[str, Callable[[], None]] = {
            name: getattr(self, f"_{name}") for name in self._names
        }

    def happen(self) -> None:
        """One of them."""
        (name,) = self._chance.choices(self._names, self._weights)
        self._run.events += 1
        self._run.note(name)
        self._act[name]()

    def hit(
        self, machine: Machine, chance: random.Random, when: str, *, in_peace: bool = False
    ) -> bool:
        """Something happens to a process at this very moment, if that is among the faults.
        `in_peace`: it ends even then, once: this is what comes when all is calm.
        """
        run = self._run
        able = ("kill", "power") if run.peaceful else ("kill", "power", "cut")
        kinds = [each for each in able if each in run.levels.faults]
        if (run.peaceful and not in_peace) or not kinds:
            return False
        kind, seed, process = chance.choice(kinds), chance.getrandbits(30), machine.process
        run.note(f"{kind} of {machine.number} when {when}")

        def act() -> None:
            if not machine.runs or machine.process != process:
                return
            if kind == "kill":
                machine.kill()
            elif kind == "power":
                machine.crash(seed)
            else:
                self.split({machine.number})

        run.loop.call_soon(act)
        return True

    def _some(self) -> Machine | None:
        running = [each for each in self._run.machines.values() if each.runs]
        return self._chance.choice(running) if running else None

    def _later(self, action: Callable[[], None], most_s: float = 4) -> None:
        self._run.loop.call_later(self._chance.uniform(0.05, most_s), action)

    # --- Network ----------------------------------------------------------------------------

    def _cut(self) -> None:
        self.split({self._chance.choice(list(self._run.machines))})

    def _cut_one_way(self) -> None:
        one = self._chance.choice(list(self._run.machines))
        inwards = self._chance.random() < 0.5
        ways = [(one, other) for other in self._run.machines if other != one]
        self._run.network.cut((b, a) if inwards else (a, b) for a, b in ways)
        self._later(self._run.network.heal)

    def _halves(self) -> None:
        numbers = list(self._run.machines)
        self._chance.shuffle(numbers)
        self.split(set(numbers[: self._chance.randint(1, len(numbers) - 1)]))

    def _bridge(self) -> None:
        numbers = list(self._run.machines)
        self._chance.shuffle(numbers)
        bridge, *rest = numbers
        half = len(rest) // 2
        self._run.network.cut(
            way for a, b in product(rest[:half], rest[half:]) for way in ((a, b), (b, a))
        )
        self._run.note(f"over {bridge}")
        self._later(self._run.network.heal)

    def split(self, inside: set[int]) -> None:
        """Nothing goes between these and the others for a while."""
        outside = [each for each in self._run.machines if each not in inside]
        self._run.network.cut(
            way for a, b in product(sorted(inside), outside) for way in ((a, b), (b, a))
        )
        self._later(self._run.network.heal)

    def _noise(self) -> None:
        network = self._run.network
        network.loss, network.repeat = self._chance.uniform(0, 0.3), self._chance.uniform(0, 0.3)
        network.reorder = self._chance.random()
        network.delay_s_max = self._chance.uniform(0.01, 0.5)
        self._later(network.heal)

    # --- Machines ---------------------------------------------------------------------------

    def _kill(self) -> None:
        machine = self._some()
        if machine is not None:
            machine.kill()

    def _power(self) -> None:
        machine = self._some()
        if machine is not None:
            machine.crash(self._chance.getrandbits(30))

    def _power_in_write(self) -> None:
        machine = self._some()
        if machine is not None:
            machine.power_off_in_write(self._chance.randint(1, 12), self._chance.getrandbits(30))

    def _hold(self) -> None:
        """Some stores hold what they commit, as for a backup's cut (`holding`), and let go in their
        time, or later than each of them does by itself.
        """
        running = [each for each in self._run.machines.values() if each.runs]
        some = self._chance.sample(running, self._chance.randint(0, len(running)))
        numbers = [each.number for each in some]
        for machine in some:
            holding = machine.opened.store.consensus.holding
            if not holding.is_held:
                cut = self._chance.getrandbits(64)
                self._run.count("hold")
                holding.hold(cut, numbers)
                self._later(partial(holding.release, cut), 2 * HOLD_MS / 1_000)

    def _sync_error(self) -> None:
        machine = self._some()
        if machine is not None:
            after = self._chance.randint(0, 3)
            machine.disk.fail("fdatasync", OSError(errno.EIO, "I/O error"), after=after)
            if self._chance.random() < 0.5:
                self._later(lambda: machine.crash(1) if machine.runs else None, 1)

    def _no_space(self) -> None:
        machine = self._some()
        if machine is None:
            return
        machine.disk.capacity = machine.disk.used + self._chance.randrange(30_000)

        def room() -> None:
            machine.disk.capacity = 1 << 40

        self._later(room, 6)

    def _stall(self) -> None:
        machine = self._some()
        if machine is None:
            return
        workers = machine.workers
        workers.delay_s[WRITER] = self._chance.uniform(0.1, 2)

        def go_on() -> None:
            workers.delay_s[WRITER] = self._run.levels.write_s

        self._later(go_on)

    def _clock(self) -> None:
        """A wall clock jumps; never two are wrong at once: time is what a majority says."""
        machines = list(self._run.machines.values())
        wrong = [each for each in machines if each.clock.wall_offset_ms]
        machine = self._chance.choice(wrong or machines)
        machine.clock.wall_offset_ms = self._chance.choice((-DAY_MS, 0, DAY_MS))

    def _flip(self) -> None:
        """A bit of what is synced changes, while the machine is off: always on the same one."""
        run = self._run
        machine = run.machines[run.flipped] if run.flipped else self._some()
        if machine is None or not machine.runs or not machine.shows_others:
            return
        if not run.flipped and not run.may_lose():
            return
        run.flipped = machine.number
        machine.kill()
        disk = machine.disk
        # Not in the last batch: a record with a sector of zeros may be taken for torn there, and
        # nobody can tell.
        ends = {
            f"journal/{each}": _end_before(disk, each, machine.proven)
            for each in disk.names("journal")
            if each.endswith(".seg")
        }
        segments = [each for each, end in ends.items() if end > HEADER_PAGE_BYTES]
        snapshots = [f"snap/{each}" for each in disk.names("snap") if each.endswith(".snap")]
        choice = [each for each in (segments, segments, snapshots or segments) if each]
        if not choice:
            return
        name = self._chance.choice(self._chance.choice(choice))
        if name in ends:
            disk.flip(name, self._chance.randrange(HEADER_PAGE_BYTES, ends[name]))
        elif used := len(disk.content(name).rstrip(b"\0")):
            disk.flip(name, self._chance.randrange(used))

    def _bad_entry(self) -> None:
        """An entry below the checkpoint that messages stand in is not what was written any more, or
        the disk does not read a page of it.
        """
        machine = self._some()
        if machine is None:
            return
        journal, chance = machine.opened.store.journal, self._chance
        below = journal.last_checkpoint.position.segment
        held = [each for each in journal._locations.held() if journal.has(*each)]
        placed = {each: journal._locations.locate(*each) for each in held}
        rows = [
            (*key, *place)
            for key, place in placed.items()
            if place[0].number < below and key not in self._run.queues.bad
        ]
        if not rows:
            return
        group, index, segment, offset, length = chance.choice(rows)
        begin = chance.randrange(offset, offset + length)
        name, end = segment_name(segment.number), begin + 1
        unread = chance.random() < 0.5
        if unread:
            begin = begin // PAGE_BYTES * PAGE_BYTES
            end = begin + PAGE_BYTES
        for group, index, other, offset, length in rows:
            if other is segment and offset < end and begin < offset + length:
                self._run.queues.goes_bad(group, index, journal.read(group, index))
                if chance.random() < 0.7:
                    journal.forget(group, index)
        if unread:
            machine.disk.spoil(name, begin, PAGE_BYTES)
        else:
            machine.disk.flip(name, begin, chance.randrange(8))

    # --- Groups -----------------------------------------------------------------------------

    def _leaders(self) -> list[tuple[Machine, int]]:
        return [
            (machine, group)
            for machine in self._run.machines.values()
            if machine.runs
            for group in machine.opened.store.groups
            if machine.member(group).core.role == LEADER
        ]

    def _transfer(self) -> None:
        leaders = self._leaders()
        if leaders:
            machine, group = self._chance.choice(leaders)
            voters = machine.member(group).core.tracker.members.voters
            to = self._chance.choice(voters)
            machine.opened.store.consensus.transfer(group, to)  # type: ignore[arg-type]

    def _members(self) -> None:
        if self._run.levels.placed:
            return  # whoever manages the cluster would put it right again
        self.change_members(self._chance, 0)

    def change_members(self, chance: random.Random, first: int) -> None:
        """A step to other members of some group, of that number or a higher one."""
        leaders = [each for each in self._leaders() if each[1] >= first]
        if not leaders:
            return
        machine, group = chance.choice(leaders)
        tracker = machine.member(group).core.tracker
        # As `cluster.steps` does it: who has nothing yet must not be counted on.
        level = [each for each in tracker.members.learners if is_level(machine, group, each)]
        if tracker.members.learners and not level:
            return
        change = self._change(chance, group, tracker.members.voters, tuple(level))
        if change is None:
            return
        try:
            machine.opened.store.consensus.change_members(
                group,  # type: ignore[arg-type]
                change,
            )
        except KernelError:
            return

    def _change(
        self,
        chance: random.Random,
        group: int,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
    ) -> ConfigurationChange | None:
        """Group 0 is on every store: first of all, and for good (ADR 30)."""
        let_go = ADD_LEARNER if group == METADATA_GROUP else REMOVE
        outside = [each for each in self._run.machines if each not in voters + learners]
        voters_min = VOTERS_MIN if self._run.flipped else 2
        if learners:
            new = chance.choice(learners)
            changes = [Change(ADD_VOTER, new)]
            if len(voters) >= self._run.levels.nodes:
                changes.append(Change(let_go, chance.choice(voters)))
            return ConfigurationChange(tuple(changes))
        if outside:
            new = chance.choice(outside)
            able = group == METADATA_GROUP or new in self._run.everybody(METADATA_GROUP)
            return ConfigurationChange((Change(ADD_LEARNER, new),)) if able else None
        if len(voters) > voters_min:
            return ConfigurationChange((Change(let_go, chance.choice(voters)),))
        return None


def _end_before(disk: SimulatedDisk, segment: str, proven: Position) -> int:
    """How far what is proven to be on disk reaches in a segment; 0 if none of it is."""
    number = int(segment[:-4])
    if number > proven.segment:
        return 0
    used = len(disk.content(f"journal/{segment}").rstrip(b"\0"))
    return min(used, proven.offset) if number == proven.segment else used
