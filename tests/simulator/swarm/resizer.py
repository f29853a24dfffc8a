"""Somebody who resizes topics (ADR 31), again and again, also while that is under way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

from kernel.api.changes import ResizeTopic
from kernel.broker.log_commands.commands import Command
from kernel.common.errors import KernelError
from kernel.common.ids import TopicId, home_of
from kernel.store.raft_groups.member import Member

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

_STEPS = frozenset(
    (
        Command.PLAN,
        Command.SPREAD_PLAN,
        Command.SEAL,
        Command.RESIZE,
        Command.SPREAD_RESIZE,
        Command.DRAINED,
        Command.RETIRE,
        Command.ADD_WINDOW,
    )
)

SHARE = 0.35
"""Of the seeds in which topics are resized, one or more."""

RESIZES = 0.02
"""Share of what happens that is a resize."""

SPREADS = 0.6
"""Share of these by which the topic gets queues in all Raft groups."""

RESIZES_MAX = 8
QUEUES_MAX = 4

HIT = 0.3
"""Share of the steps of a resize at which the process that makes it is hit."""

SELDOM = frozenset((Command.RETIRE, Command.ADD_WINDOW))
"""In few runs before there is peace: hit whenever they are, and in peace too."""

HITS_MAX = 1
"""At each kind of step."""


class Resizer:
    """Of one run."""

    def __init__(self, run: Run, topics: dict[TopicId, str]) -> None:
        """`topics`: those that may be resized, and their names."""
        self._run = run
        self._chance = random.Random(run.seed + 7)
        self.topics = {topic: name for topic, name in topics.items() if self._chance.random() < 0.7}
        if self._chance.random() >= SHARE:
            self.topics = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._left = RESIZES_MAX
        self._hits: Counter[str] = Counter()

    def look(self) -> None:
        """Resize something, perhaps."""
        run, chance = self._run, self._chance
        if not self.topics or run.peaceful or not self._left or chance.random() >= RESIZES:
            return
        topic = chance.choice(list(self.topics))
        leading = [
            each
            for each in run.machines.values()
            if each.runs and each.member(home_of(topic)).serves
        ]
        if leading:
            self._left -= 1
            run.events += 1
            work = self._resize(chance.choice(leading), topic, chance.randint(1, QUEUES_MAX))
            self._tasks.append(run.loop.create_task(work))

    async def _resize(self, machine: Machine, topic: TopicId, queues: int) -> None:
        run, name = self._run, self.topics[topic]
        spread = self._chance.random() < SPREADS
        run.note(f"{machine.number} resizes {name} to {queues}{' everywhere' if spread else ''}")
        try:
            await machine.opened.client.administrator.administer(
                ResizeTopic("default", name, queues, by_key=True, spread=spread)
            )
        except KernelError as error:
            run.count(f"resize refused: {error.code.name}")
        else:
            run.count("spread answered" if spread else "resize answered")

    def applying(self, member: Member, kind: int) -> None:
        """A leader is about to apply a step of a resize: perhaps something happens to it then."""
        if kind not in _STEPS:
            return
        run, chance, step = self._run, self._chance, Command(kind).name
        run.count(f"{step} applied by the leader")
        hits = kind in SELDOM or chance.random() < HIT
        if not hits or self._hits[step] >= HITS_MAX:
            return
        machine = run.machines[member.core.node]
        if run.faults.hit(machine, chance, f"{step} was applied", in_peace=kind in SELDOM):
            self._hits[step] += 1
            run.count(f"hit when {step} was applied")
