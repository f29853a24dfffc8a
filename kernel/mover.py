"""Runs the tasks of `moves`: each second it has some ready messages moved, until nothing is left.

The messages are taken out of the hands of the dispatcher first, so that no consumer gets what is
being moved; what becomes of them is the MOVE command's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from .broker import commands
from .broker.dispatcher import Dispatcher
from .broker.features import Feature
from .changes import CancelMove, StartMove
from .errors import Code, KernelError
from .ids import METADATA_GROUP, Offset
from .log import entry as entries
from .message import decode
from .model import TopicInfo
from .moves import (
    KEPT_MAX,
    OUTBOX_MAX,
    PER_SECOND_MAX,
    PREFIX,
    RUNNING_MAX,
    MoveFailure,
    MoveState,
    MoveTask,
    decode_task,
    prefix_of,
    tasks,
)
from .proposer import Proposer
from .store.dead_letters import history_of
from .store.node import Store
from .store.replica import Replica
from .topology import Topology
from .turns import Turns

STEP_S = 1.0


class _Running:
    """A task that runs here."""

    __slots__ = ("end", "id", "is_cancelled", "worker")

    def __init__(self, ident: str) -> None:
        self.id = ident
        self.end = asyncio.Event()
        """It is to move nothing more, once the step under way is over."""
        self.is_cancelled = False
        self.worker: asyncio.Task[None] | None = None

    async def ended(self) -> None:
        """Have it end; return when it has."""
        self.end.set()
        if self.worker is not None:
            await asyncio.gather(self.worker, return_exceptions=True)


class Mover:
    """Runs the tasks of this process's store."""

    def __init__(
        self,
        store: Store,
        topology: Topology,
        proposer: Proposer,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._topology = topology
        self._proposer = proposer
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._turns = Turns()
        self._running: dict[tuple[str, str], _Running] = {}
        """By (tenant, source)."""

    # --- Commands -----------------------------------------------------------------------------

    async def resume(self) -> None:
        """Go on with the tasks that the last process has left; forget those of topics that are
        gone. For a start.
        """
        for _, value in self._records().values():
            task = decode_task(value)
            if (task.tenant, task.source) not in self._topology.topics:
                await self._put(task, None)
            elif task.state is MoveState.RUNNING:
                self._begin(task)

    async def stop(self) -> None:
        """Move nothing more; running tasks stay so in their records."""
        for running in list(self._running.values()):
            await running.ended()

    async def start(self, change: StartMove) -> str:
        """Begin a task (see `StartMove`)."""
        if change.per_second is not None and not 1 <= change.per_second <= PER_SECOND_MAX:
            message = f"per_second must be 1 to {PER_SECOND_MAX}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        async with self._turns.of((change.tenant, change.name)):
            for name in (change.name, change.destination):
                if name is not None and (change.tenant, name) not in self._topology.topics:
                    raise KernelError(Code.NOT_FOUND, f"no topic {name}")
            if (change.tenant, change.name) in self._running:
                raise KernelError(Code.IN_USE, f"a task moves messages of {change.name} already")
            if len(self._running) >= RUNNING_MAX:
                raise KernelError(Code.LIMIT_EXCEEDED, f"{RUNNING_MAX} tasks move messages already")
            topic = self._topology.topics[change.tenant, change.name]
            task = MoveTask(
                id=self._new_id(),
                tenant=change.tenant,
                source=change.name,
                group=change.group,
                destination=change.destination,
                per_second=change.per_second,
                to_move=sum(each.ready_count for _, each in self._dispatchers(topic, change.group)),
                started_ms=self._wall_ms(),
            )
            await self._write(task)
            for old in tasks(self._records(), task.tenant, task.source)[KEPT_MAX:]:
                await self._put(old, None)
            self._begin(task)
        return task.id

    async def cancel(self, change: CancelMove) -> int:
        """End a task (see `CancelMove`)."""
        async with self._turns.of((change.tenant, change.name)):
            known = tasks(self._records(), change.tenant, change.name)
            if change.task not in [each.id for each in known]:
                raise KernelError(Code.NOT_FOUND, f"no task {change.task} of {change.name}")
            running = self._running.get((change.tenant, change.name))
            if running is None or running.id != change.task:
                raise KernelError(Code.NOT_ALLOWED, f"task {change.task} does not run any more")
            running.is_cancelled = True
            await running.ended()
            known = tasks(self._records(), change.tenant, change.name)
        return next((each.moved for each in known if each.id == change.task), 0)

    # --- Records ------------------------------------------------------------------------------

    def _records(self) -> dict[str, tuple[int, bytes]]:
        records = self._store.replica(METADATA_GROUP).state.records
        return {key: each for key, each in records.items() if key.startswith(PREFIX)}

    async def _write(self, task: MoveTask) -> None:
        await self._put(task, msgspec.msgpack.encode(task))

    async def _put(self, task: MoveTask, value: bytes | None) -> None:
        key = prefix_of(task.tenant, task.source) + task.id
        await self._proposer.propose(METADATA_GROUP, commands.PutRecord(key, value, None))

    # --- A task -------------------------------------------------------------------------------

    def _begin(self, task: MoveTask) -> None:
        key = (task.tenant, task.source)
        running = self._running[key] = _Running(task.id)
        running.worker = asyncio.get_running_loop().create_task(self._run(task, running))
        running.worker.add_done_callback(lambda _: self._running.pop(key, None))

    async def _run(self, task: MoveTask, running: _Running) -> None:
        while task.state is MoveState.RUNNING and not running.end.is_set():
            moved, state, failure = await self._step(task)
            if moved or state is not MoveState.RUNNING:
                task = msgspec.structs.replace(
                    task, moved=task.moved + moved, state=state, failure=failure
                )
                await self._write(task)
            if task.state is MoveState.RUNNING:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(running.end.wait(), STEP_S)
        if running.is_cancelled and task.state is MoveState.RUNNING:
            await self._write(msgspec.structs.replace(task, state=MoveState.CANCELLED))

    async def _step(self, task: MoveTask) -> tuple[int, MoveState, MoveFailure | None]:
        """Move what a second allows; how many these were, and how the task stands then."""
        topic = self._topology.topics.get((task.tenant, task.source))
        if topic is None or task.group not in topic.groups:
            return 0, MoveState.FAILED, MoveFailure.NO_SOURCE
        quota = min(task.per_second or PER_SECOND_MAX, task.to_move - task.moved)
        moved = left = 0
        try:
            for replica, dispatcher in self._dispatchers(topic, task.group):
                if len(replica.state.outbox) < OUTBOX_MAX and moved < quota:
                    taken = _take(dispatcher, quota - moved)
                    found, failure = await self._sorted(task, replica, dispatcher, taken)
                    moved += await self._move(task, replica, dispatcher, found)
                    if failure is not None:
                        return moved, MoveState.FAILED, failure
                left += dispatcher.ready_count
        except KernelError:
            # What was proposed may still come to pass: those messages stay taken. If it does not,
            # the next leader finds them ready.
            return moved, MoveState.RUNNING, None
        is_done = not left or task.moved + moved >= task.to_move
        return moved, MoveState.COMPLETED if is_done else MoveState.RUNNING, None

    def _dispatchers(self, topic: TopicInfo, group: str) -> Iterator[tuple[Replica, Dispatcher]]:
        for ref in topic.queues:
            replica = self._store.replica(ref.group)
            yield replica, replica.dispatcher(ref.id, group)

    async def _move(
        self,
        task: MoveTask,
        replica: Replica,
        dispatcher: Dispatcher,
        found: Mapping[str, Sequence[Offset]],
    ) -> int:
        moved = 0
        for topic, offsets in found.items():
            move = commands.Move(dispatcher.queue.id, task.group, topic, tuple(offsets))
            result = await self._proposer.propose(replica.group, move)
            moved += result if isinstance(result, int) else 0
        return moved

    async def _sorted(
        self, task: MoveTask, replica: Replica, dispatcher: Dispatcher, taken: Sequence[Offset]
    ) -> tuple[dict[str, list[Offset]], MoveFailure | None]:
        """Messages by the topic that they are to go to; if there is none for one, that and those
        behind it are ready again.
        """
        found: dict[str, list[Offset]] = {}
        progress = dispatcher.queue.groups[task.group]
        for at, offset in enumerate(taken):
            if progress.is_acked(offset):
                continue  # too old, since it was taken
            name = task.destination or await self._origin(replica, dispatcher, offset)
            if name is None or (task.tenant, name) not in self._topology.topics:
                dispatcher.released(taken[at:])
                return found, MoveFailure.NO_DESTINATION if name else MoveFailure.NO_ORIGIN
            found.setdefault(name, []).append(offset)
        return found, None

    async def _origin(self, replica: Replica, dispatcher: Dispatcher, offset: Offset) -> str | None:
        """The topic that a message was a dead letter of last."""
        run = dispatcher.queue.index.find(offset)
        entry = self._store.entry(replica.group, run.index)
        while entry is None:
            await self._store.fetched(replica.group, run.index)
            entry = self._store.entry(replica.group, run.index)
        history = history_of(decode(entries.slot(entry, run.slot)))
        return str(history[0]["topic"]) if history else None


def _take(dispatcher: Dispatcher, count: int) -> list[Offset]:
    """Up to `count` ready messages that nobody else gets from now on. In a group that keeps the
    order of keys none whose key somebody holds: what that holder has comes first.
    """
    taken: list[Offset] = []
    back: list[Offset] = []
    blocked: set[int] = set()
    index = dispatcher.queue.index
    if dispatcher.queue.topic.groups[dispatcher.group].ordered:
        held = dispatcher.holds()
        if dispatcher.leased_count != len(held):
            return []  # a lease is on its way into the log: of which key, the next step will know
        there = [each for each in held if each >= index.head]
        blocked = {index.find(each).value(Feature.KEY, each) for each in there} - {0}
    for level in range(dispatcher.ready.levels - 1, -1, -1):
        while len(taken) < count:
            found = dispatcher.ready.take(level, index.tail, count - len(taken))
            if found is None:
                break
            run, offsets = found
            for each in offsets:
                is_blocked = bool(blocked) and run.value(Feature.KEY, each) in blocked
                (back if is_blocked else taken).append(Offset(each))
    if back:
        dispatcher.released(back)
    return taken
