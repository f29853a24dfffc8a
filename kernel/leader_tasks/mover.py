"""Runs the tasks of `moves`: each second it has some ready messages moved, until nothing is left.

A task runs where the group that defines its source is led; that one's next leader goes on with it.
The messages are moved by the leader of their queue: taken out of the hands of the dispatcher first,
so that no consumer gets what is being moved; what becomes of them is the MOVE command's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b

import msgspec

from ..api.changes import CancelMove, StartMove
from ..api.message import decode
from ..api.model import QueueRef, TopicInfo
from ..api.moves import (
    BACK_TO_MAX,
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
from ..broker.delivery.dispatcher import Dispatcher
from ..broker.index.features import Feature
from ..broker.log_commands import commands
from ..common.errors import Code, KernelError
from ..common.ids import METADATA_GROUP, Offset, RaftGroup, dashed, uuid_of
from ..common.keyed_lock import KeyedLock
from ..common.placement import home_group
from ..log.format import entry as entries
from ..requests.leader import NO_IDENTITY, Identity, Leader
from ..requests.peer_stores import Moved, MoveStep, PeerStores
from ..requests.proposer import Proposer, propose_to
from ..routing.topology import Topology
from ..store.leading.dead_letters import history_of
from ..store.node import Store
from ..store.replicas.replica import Replica

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
        leader_of: Callable[[RaftGroup], Leader],
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._topology = topology
        self._proposer = proposer
        self._leader_of = leader_of
        self.peer_stores: PeerStores | None = None
        self.unfinished: Callable[[RaftGroup], None] = lambda _home: None
        """Told of the home of a task that is in its record, perhaps, and that nobody runs."""
        self._wall_ms = wall_ms
        self._new_id = new_id
        self._keyed_lock = KeyedLock()
        self._running: dict[tuple[str, str], _Running] = {}
        """By (tenant, source)."""

    # --- Commands -----------------------------------------------------------------------------

    async def resume(self, groups: Collection[RaftGroup]) -> bool:
        """Go on with the tasks of these groups that nobody runs, since their last leader did, or
        its record could not be written in time; forget those of topics that are gone. Whether to
        look again: one waits for another of its source.
        """
        await self._level()
        waits = False
        for record in list(self._records()):
            key, task = self._task_of(record)
            if task is None or home_group(self._store.home_groups, *key) not in groups:
                continue
            async with self._keyed_lock.of(key):
                _, task = self._task_of(record)  # as it is by now
                if task is not None and key not in self._topology.topics:
                    await self._put(task, None)
                elif task is not None:
                    waits |= not self._go_on(task)
        return waits

    def follows(self, group: RaftGroup) -> None:
        """A group is led elsewhere: its tasks go on there."""
        for key, running in self._running.items():
            if home_group(self._store.home_groups, *key) == group:
                running.end.set()

    async def _level(self) -> None:
        """Learn what the metadata group has decided."""
        if self.peer_stores is not None:
            await self.peer_stores.level([METADATA_GROUP])

    async def stop(self) -> None:
        """Move nothing more; running tasks stay so in their records. A step that waits for other
        stores is given up.
        """
        for running in list(self._running.values()):
            if self.peer_stores is not None and running.worker is not None:
                running.worker.cancel()
            await running.ended()

    async def start(self, change: StartMove, identity: Identity | None = None) -> str:
        """Begin a task (see `StartMove`); of a change with an identity one at most, whose id is
        made of that.
        """
        ident = self._new_id() if identity is None else _id_of(identity)
        if change.per_second is not None and not 1 <= change.per_second <= PER_SECOND_MAX:
            message = f"per_second must be 1 to {PER_SECOND_MAX}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        if change.messages_max is not None and change.messages_max < 1:
            raise KernelError(Code.INVALID_ARGUMENT, "messages_max must be 1 or more")
        if change.back_to is not None and len(change.back_to) > BACK_TO_MAX:
            message = f"back to {len(change.back_to)} topics; at most {BACK_TO_MAX} are named"
            raise KernelError(Code.LIMIT_EXCEEDED, message)
        async with self._keyed_lock.of((change.tenant, change.name)):
            await self._level()
            _, known = self._task_of(prefix_of(change.tenant, change.name) + ident)
            if known is not None:
                self._go_on(known)
                return ident
            for name in (change.name, change.destination):
                if name is not None and (change.tenant, name) not in self._topology.topics:
                    raise KernelError(Code.NOT_FOUND, f"no topic {name}")
            if (change.tenant, change.name) in self._running:
                raise KernelError(Code.IN_USE, f"a task moves messages of {change.name} already")
            if len(self._running) >= RUNNING_MAX:
                raise KernelError(Code.LIMIT_EXCEEDED, f"{RUNNING_MAX} tasks move messages already")
            topic = self._topology.topics[change.tenant, change.name]
            ready = await self._ready(topic, change.group)
            task = MoveTask(
                id=ident,
                tenant=change.tenant,
                source=change.name,
                group=change.group,
                destination=change.destination,
                per_second=change.per_second,
                back_to=change.back_to,
                to_move=min(ready, change.messages_max or ready),
                started_ms=self._wall_ms(),
            )
            try:
                await self._write(task)
                for old in tasks(self._records(), task.tenant, task.source)[KEPT_MAX:]:
                    await self._put(old, None)
            except (KernelError, asyncio.CancelledError):
                self._unfinished(task)  # it may be written all the same
                raise
            self._begin(task)
        return task.id

    async def cancel(self, change: CancelMove) -> int:
        """End a task (see `CancelMove`)."""
        async with self._keyed_lock.of((change.tenant, change.name)):
            await self._level()
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

    def _task_of(self, record: str) -> tuple[tuple[str, str], MoveTask | None]:
        """A task by the key of its record, and (tenant, source); None: there is none."""
        found = self._records().get(record)
        if found is None:
            return ("", ""), None
        task = decode_task(found[1])
        return (task.tenant, task.source), task

    async def _write(self, task: MoveTask) -> None:
        await self._put(task, msgspec.msgpack.encode(task))

    async def _put(self, task: MoveTask, value: bytes | None) -> None:
        key = prefix_of(task.tenant, task.source) + task.id
        await self._proposer.propose(METADATA_GROUP, commands.PutRecord(key, value, None))
        await self._level()

    # --- A task -------------------------------------------------------------------------------

    def _go_on(self, task: MoveTask) -> bool:
        """Have a task run, unless it is over; False: another one of its source runs."""
        running = self._running.get((task.tenant, task.source))
        if task.state is not MoveState.RUNNING or (running is not None and running.id == task.id):
            return True
        if running is None:
            self._begin(task)
        return running is None

    def _unfinished(self, task: MoveTask) -> None:
        self.unfinished(home_group(self._store.home_groups, task.tenant, task.source))

    def _begin(self, task: MoveTask) -> None:
        key = (task.tenant, task.source)
        running = self._running[key] = _Running(task.id)
        running.worker = asyncio.get_running_loop().create_task(self._run(task, running))
        running.worker.add_done_callback(lambda _: self._ended(key, running))

    def _ended(self, key: tuple[str, str], running: _Running) -> None:
        if self._running.get(key) is running:
            del self._running[key]

    async def _run(self, task: MoveTask, running: _Running) -> None:
        try:
            await self._move_all(task, running)
        except KernelError:
            self._unfinished(task)  # what was moved so far is not in its record

    async def _move_all(self, task: MoveTask, running: _Running) -> None:
        while task.state is MoveState.RUNNING and not running.end.is_set():
            moved, state, failure = await self._step(task)
            if not self._decides(task):
                return  # the next leader goes on
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

    def _decides(self, task: MoveTask) -> bool:
        """Whether the home of a task's source is led here."""
        home = home_group(self._store.home_groups, task.tenant, task.source)
        return self.peer_stores is None or self._store.serving(home) is not None

    async def _step(self, task: MoveTask) -> tuple[int, MoveState, MoveFailure | None]:
        """Move what a second allows; how many these were, and how the task stands then."""
        topic = self._topology.topics.get((task.tenant, task.source))
        if topic is None or task.group not in topic.groups:
            return 0, MoveState.FAILED, MoveFailure.NO_SOURCE
        quota = min(task.per_second or PER_SECOND_MAX, task.to_move - task.moved)
        moved = left = 0
        try:
            for ref in topic.queues:
                about = (task.tenant, ref.id, task.group, task.destination, quota - moved)
                found = await self._move(ref, MoveStep(*about, task.back_to))
                moved += found.moved
                left += found.left
                if found.failure is not None:
                    return moved, MoveState.FAILED, MoveFailure(found.failure)
        except KernelError:
            # What was proposed may still come to pass: those messages stay taken. If it does not,
            # the next leader finds them ready.
            return moved, MoveState.RUNNING, None
        is_done = not left or task.moved + moved >= task.to_move
        return moved, MoveState.COMPLETED if is_done else MoveState.RUNNING, None

    async def _ready(self, topic: TopicInfo, group: str) -> int:
        asking = (self._leader_of(ref.group).figures(ref.id, group) for ref in topic.queues)
        return sum(each.ready for each in await asyncio.gather(*asking))

    # --- A step -------------------------------------------------------------------------------

    async def _move(self, ref: QueueRef, step: MoveStep) -> Moved:
        if self.peer_stores is None or self._store.serving(ref.group) is not None:
            return await self.step_here(ref.group, step)
        return await self.peer_stores.move(ref.group, step)

    async def step_here(self, raft_group: RaftGroup, step: MoveStep) -> Moved:
        """Move messages of a queue that is led here. Raises KernelError NOT_FOUND, NOT_LEADER."""
        replica = self._store.replica(raft_group)
        dispatcher = replica.dispatcher(step.queue, step.group)
        moved, failure = 0, None
        if step.count > 0 and len(replica.state.outbox) < OUTBOX_MAX:
            taken = _take(dispatcher, min(step.count, PER_SECOND_MAX))
            found, failure = await self._sorted(step, replica, dispatcher, taken)
            for topic, offsets in found.items():
                move = commands.Move(step.queue, step.group, topic, tuple(offsets))
                # Never by request pipeline: the next leader may have handed these out.
                result = await propose_to(self._store.leader(raft_group), move, NO_IDENTITY)
                moved += result if isinstance(result, int) else 0
        return Moved(moved, dispatcher.ready_count, failure.value if failure is not None else None)

    async def _sorted(
        self, step: MoveStep, replica: Replica, dispatcher: Dispatcher, taken: Sequence[Offset]
    ) -> tuple[dict[str, list[Offset]], MoveFailure | None]:
        """Messages by the topic that they are to go to; if there is none for one, that and those
        behind it are ready again.
        """
        found: dict[str, list[Offset]] = {}
        progress = dispatcher.queue.groups[step.group]
        for at, offset in enumerate(taken):
            if progress.is_acked(offset):
                continue  # too old, since it was taken
            name = step.destination or await self._origin(replica, dispatcher, offset)
            if progress.is_acked(offset):
                continue  # its entry does not read, and was given up
            if not step.destination and step.back_to is not None and name not in step.back_to:
                name = None
            if name is None or not await self._is_there(step.tenant, name):
                dispatcher.released(taken[at:])
                return found, MoveFailure.NO_DESTINATION if name else MoveFailure.NO_ORIGIN
            found.setdefault(name, []).append(offset)
        return found, None

    async def _is_there(self, tenant: str, name: str) -> bool:
        """Whether a topic exists; its home may know of it first."""
        if (tenant, name) not in self._topology.topics and self.peer_stores is not None:
            await self.peer_stores.level([home_group(self._store.home_groups, tenant, name)])
        return (tenant, name) in self._topology.topics

    async def _origin(self, replica: Replica, dispatcher: Dispatcher, offset: Offset) -> str | None:
        """The topic that a message was a dead letter of last."""
        run = dispatcher.queue.index.find(offset)
        entry = self._store.entry(replica.group, run.index)
        while entry is None:
            if self._store.is_given_up(replica.group, run.index):
                return None
            await self._store.fetched(replica.group, run.index)
            entry = self._store.entry(replica.group, run.index)
        history = history_of(decode(entries.slot(entry, run.slot)))
        return str(history[0]["topic"]) if history else None


def _id_of(identity: Identity) -> str:
    """The task that a question with this identity begins, however often it is asked."""
    digest = blake2b(msgspec.msgpack.encode(identity), digest_size=16).digest()
    return dashed(uuid_of(digest))


def _take(dispatcher: Dispatcher, count: int) -> list[Offset]:
    """Up to `count` ready messages that nobody else gets from now on. In a group that keeps the
    order of keys none whose key somebody holds: what that holder has comes first.
    """
    taken: list[Offset] = []
    back: list[Offset] = []
    blocked: set[int] = set()
    index = dispatcher.queue.index
    dispatcher.gather()
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
