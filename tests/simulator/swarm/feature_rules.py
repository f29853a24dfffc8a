"""What features of the log promise (ADR 26), each with a name. The levels are read from the bytes
of what is applied, whatever the product says.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kernel.broker.log_commands import commands
from kernel.broker.log_commands.commands import Command, RaiseLevel
from kernel.common.ids import METADATA_GROUP
from kernel.log.format import entry as entries
from kernel.raft.messages import CONFIGURATION, LEADER, Entry
from kernel.store.raft_groups.consensus import Consensus
from kernel.store.raft_groups.member import Member
from kernel.store.snapshots.transfer import Received

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

_RAISE = entries.COMMAND.pack(Command.RAISE_LEVEL, commands.VERSION, 2) + b"\x91"
"""How a RAISE_LEVEL begins in an entry."""

HIT = 0.5
"""Share of the steps of a raise at which the process that makes it is hit."""

HITS_MAX = 8


class FeatureRules:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 5)
        self._raised: dict[int, list[tuple[int, int]]] = {}
        """By group: index and level of each raise that was applied."""
        self._top: dict[int, int] = {}
        """By group: the last entry that anybody has applied."""
        self._unseen: dict[int, list[tuple[int, int]]] = {}
        """By group: first and last of entries, among them a raise, that only replays have applied:
        nobody was watching."""
        self._versions: dict[tuple[int, str, int], int] = {}
        self._hits = 0

    def level(self, group: int) -> int:
        """What is on in a group, as far as anybody has applied it."""
        rows = self._raised.get(group)
        return rows[-1][1] if rows else 0

    def _before(self, group: int, index: int) -> int | None:
        """What was on before an entry; None if nobody has seen."""
        if any(first <= index <= last for first, last in self._unseen.get(group, ())):
            return None
        rows = self._raised.get(group, ())
        return max((level for at, level in rows if at < index), default=0)

    def _is_raised(self, group: int, index: int, level: int) -> None:
        if level <= self.level(group):
            return
        self._raised.setdefault(group, []).append((index, level))
        self._run.note(f"group {group} has level {level}")

    # --- What is written and applied --------------------------------------------------------

    def appended(self, machine: Machine, group: int, body: bytes) -> None:
        """An entry is queued for a journal: `no_group_is_ahead_of_group_0`."""
        at = body.find(_RAISE)
        if at < 0:
            return
        level = body[at + len(_RAISE)]
        leads = machine.member(group).core.role == LEADER
        if leads and group != METADATA_GROUP and level > self.level(METADATA_GROUP):
            what = f"group {group}: {machine.number} raises {level} before group 0 has"
            self._run.broken("no_group_is_ahead_of_group_0", what)
        if level:
            self._hit(machine, "proposed" if leads else "taken")

    def applying(self, member: Member, entry: Entry) -> None:
        """`level_is_the_logs`, `nothing_before_its_level`: an entry is about to be applied."""
        machine = self._run.machines[member.core.node]
        if machine.workers.dead or _is_replaced(machine, member):
            return  # it ends at what it does not understand; of a real one nothing follows
        group, index = int(member.group), entry.index
        before, has = self._before(group, index), member.state.feature_level
        if before is not None and has != before:
            what = f"group {group} entry {index}: {member.core.node} has level {has}, not {before}"
            self._run.broken("level_is_the_logs", what)
        if index <= self._top.get(group, 0):
            return
        self._top[group] = index
        if entry.kind == CONFIGURATION or not entry.body:
            return
        for batch in entries.batches(entry.body):
            for kind, version, body in batch.commands:
                needs = commands.LEVELS.get((kind, version), 0)
                if needs > self.level(group):
                    what = f"group {group} entry {index}: {Command(kind).name} takes {needs}"
                    self._run.broken("nothing_before_its_level", what)
                if kind == Command.RAISE_LEVEL:
                    change = commands.decode_control(kind, body)
                    assert isinstance(change, RaiseLevel)
                    self._is_raised(group, index, change.level)
                elif needs:
                    self._run.count("command that takes a level")
                    if member.leads:
                        self._run.resizer.applying(member, kind)

    def applied(self, member: Member, entry: Entry) -> None:
        """An entry has been applied."""
        if entry.kind != CONFIGURATION and _RAISE in entry.body and member.state.feature_level:
            machine = self._run.machines[member.core.node]
            self._hit(machine, "applied by the leader" if member.leads else "applied")

    def installing(self, members: Consensus, received: Received) -> None:
        """A snapshot is about to take the place of a state."""
        if received.state.feature_level > members.members[received.group].state.feature_level:
            self._run.count("level learnt from a snapshot")

    def recovered(self, machine: Machine) -> None:
        """A process has started: what is on is what its log says."""
        store = machine.opened.store
        levels = []
        for number in store.groups:
            group, state = int(number), machine.member(number).state
            levels.append(state.feature_level)
            index, top = state.applied, self._top.get(group, 0)
            if index > top:
                self._top[group] = index
                if state.feature_level > self.level(group):
                    self._unseen.setdefault(group, []).append((top + 1, index))
                    self._is_raised(group, index, state.feature_level)
            before = self._before(group, index + 1)
            if before is not None and state.feature_level != before:
                what = f"group {group}: {machine.number} starts with {state.feature_level}"
                self._run.broken("level_is_the_logs", f"{what}, not {before}, at {index}")
        if max(levels) > store.journal.last_checkpoint.level:
            self._run.count("restart with a checkpoint from before a level")

    def version_given(self, group: int, key: str, version: int, write: int) -> None:
        """`no_version_comes_again`: a change of a record was answered, with the level on."""
        known = self._versions.setdefault((group, key, version), write)
        if known != write:
            what = f"group {group}: version {version} of {key} by writes {known} and {write}"
            self._run.broken("no_version_comes_again", what)

    # --- Trouble ----------------------------------------------------------------------------

    def _hit(self, machine: Machine, step: str) -> None:
        """Something happens to who makes a step of a raise, at that very moment."""
        run, chance = self._run, self._chance
        if self._hits >= HITS_MAX or chance.random() >= HIT:
            return
        if run.faults.hit(machine, chance, f"a level was {step}"):
            self._hits += 1
            run.count(f"hit when a level was {step}")


def _is_replaced(machine: Machine, member: Member) -> bool:
    """Whether its process was started again since: what is left of it in the loop still runs."""
    opened = machine._opened
    return opened is not None and (
        opened.store.consensus.members.get(member.group, member) is not member
    )
