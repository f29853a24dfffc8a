"""What the leader of each group looks after, beside serving it: once in the cluster, by whichever
store serves the group, from then until it does not.

    leads(group)  -> mend what the last leader left (changes of the group wait), then lists of the
                     tree, then its moves go on; a while later look again, until nothing is found
    unfinished    -> a change here was not carried out to its end: look again too
    each second   -> features that group 0 has turned on, topics nobody uses, consumer groups nobody
                     uses, questions about half messages
    follows(group)-> all of that ends here

A step that fails is tried again while the group is led here. Each store notes when queues that it
leads were used; the leader of a topic's home asks the others before it deletes one as unused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Protocol

from ..api.client import Administration, DeleteTopic
from ..api.model import TopicInfo
from ..broker.group_state.state import QueueState
from ..common.errors import KernelError
from ..common.ids import TRANSIENT_GROUP, RaftGroup, TopicId, home_of
from ..requests.peer_stores import PeerStores
from ..store.node import Store
from ..store.replicas.replica import Replica
from .level_follower import LevelFollower
from .unused_groups import UnusedGroups
from .unused_topics import UnusedTopics

RETRY_SECONDS = 1.0
"""After a step that has failed."""

LOOK_AGAIN_SECONDS = 60.0
"""Between the two looks of a new leader: longer than anything that the last one has sent is tried
(`limits.PUBLISH_DEADLINE_MS`)."""


class LeaderTask(Protocol):
    """Something to be done for groups that are led here."""

    def __call__(self, groups: Collection[RaftGroup], /) -> Awaitable[bool | None]:
        """Do it. True: look again in a while. Raises KernelError: it has to be begun again."""


class LeaderTasks:
    """Runs the tasks of every group that is led here."""

    def __init__(
        self,
        store: Store,
        monotonic_ms: Callable[[], int],
        administer: Callable[[Administration], Awaitable[object]],
        background: Callable[[Coroutine[object, object, object]], None],
        look_again_seconds: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        """`background` does what nobody waits for; errors of the kernel are no news to it."""
        self._store = store
        self._monotonic_ms = monotonic_ms
        self._administer = administer
        self._background = background
        self.look_again_seconds = look_again_seconds
        self.peer_stores: PeerStores | None = None
        self.unused_topics = UnusedTopics(self._has_consumers)
        self.unused_groups = UnusedGroups(store, monotonic_ms())
        self.level_follower = LevelFollower(store)
        self._expiring: set[TopicId] = set()
        self._first: list[LeaderTask] = []
        self._later: list[LeaderTask] = []
        self._running: dict[RaftGroup, asyncio.Task[None]] = {}
        self._unfinished: set[RaftGroup] = set()
        """Groups that are to be looked at again, whatever is found before."""
        self._waiting: list[RaftGroup] = []
        """Groups that are led before `start`."""
        self._started = False

    def add(self, first: LeaderTask, later: LeaderTask | None = None) -> None:
        """Something to be done when a group begins to be led, and a while later, until it has found
        nothing any more.
        """
        self._first.append(first)
        if later is not None:
            self._later.append(later)

    # --- Life -------------------------------------------------------------------------------

    @property
    def may_begin(self) -> bool:
        """Whether what groups need of each other can be reached."""
        return self.peer_stores is not None or self._store.is_alone

    async def start(self) -> None:
        """Return once what is led already is mended, in a store that needs nobody for that. One
        that does (it leads a group that has just been born, and has no replica of some home) may
        not be reached yet by those whom it has to ask: it begins, as with any group that it leads
        later.
        """
        while self._waiting:
            groups, self._waiting = self._waiting, []
            if not self._store.is_alone:
                for group in groups:
                    self._begin(group, self._look(group))
                continue
            for work in self._first:
                await work(groups)
            for group in groups:
                self._begin(group, self._look_again(group))
        self._started = True

    async def stop(self) -> None:
        """Begin nothing more, also for what is left unfinished by that."""
        tasks = list(self._running.values())
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def leads(self, group: RaftGroup) -> None:
        """A group is served here from now on."""
        self.unused_topics.begin(group, self._monotonic_ms())
        self.unused_groups.begin(group, self._monotonic_ms())
        if not self.may_begin:
            return
        if self._started:
            self._begin(group, self._look(group))
        else:
            self._waiting.append(group)

    def follows(self, group: RaftGroup) -> None:
        """It is not any more."""
        task = self._running.pop(group, None)
        if task is not None:
            task.cancel()
        self._unfinished.discard(group)
        self._waiting = [each for each in self._waiting if each != group]

    def unfinished(self, group: RaftGroup) -> None:
        """A change that a group led here has decided may not be carried out elsewhere yet, and
        nobody does it: whoever asked has gone, or a group elsewhere has not answered.
        """
        if group not in self._running:
            return  # who leads it next begins with that
        if self._running[group].done():
            self._begin(group, self._look_again(group))
        self._unfinished.add(group)

    def _begin(self, group: RaftGroup, work: Coroutine[object, object, None]) -> None:
        self.follows(group)
        self._running[group] = asyncio.get_running_loop().create_task(work)

    async def _look(self, group: RaftGroup) -> None:
        await self._do(self._first, group)
        await self._look_again(group)

    async def _look_again(self, group: RaftGroup) -> None:
        """A store that is alone has nothing that comes late."""
        again = self.peer_stores is not None or group in self._unfinished
        while again:
            await asyncio.sleep(self.look_again_seconds)
            self._unfinished.discard(group)
            again = await self._do(self._later, group) or group in self._unfinished

    async def _do(self, works: list[LeaderTask], group: RaftGroup) -> bool:
        """Whether one of them has to be done again in a while."""
        again = False
        for work in works:
            while True:
                try:
                    again |= bool(await work([group]))
                    break
                except KernelError:
                    await asyncio.sleep(RETRY_SECONDS)
        return again

    # --- What nobody uses -------------------------------------------------------------------

    def each_second(self) -> None:
        """Look after what nobody uses, and levels that have risen."""
        self.level_follower.look()
        now_ms = self._monotonic_ms()
        for topic in self.unused_topics.expired(now_ms):
            if self._serves(home_of(topic.id)) and topic.id not in self._expiring:
                self._expiring.add(topic.id)
                self._background(self._expire(topic))
        self.unused_groups.look(now_ms)

    def used(self, topic: TopicId, group: str) -> None:
        """Somebody pulls from a topic that is led here, or tries to."""
        self.unused_topics.used(topic, self._monotonic_ms())
        self.unused_groups.used(topic, group)

    def left(self, queue: QueueState) -> None:
        """The last consumer of a queue has gone."""
        topic = queue.topic
        self.unused_topics.used(topic.id, self._monotonic_ms())
        if topic.options.delete_when_unused:
            change = DeleteTopic(topic.tenant, topic.name, if_unused=True)
            self._background(self._make(change))

    def idle_ms(self, topic: TopicId) -> int:
        """How long nobody has used the queues of a topic that are led here."""
        return self.unused_topics.idle_ms(topic, self._monotonic_ms())

    async def _make(self, change: Administration) -> None:
        await self._administer(change)

    async def _expire(self, topic: TopicInfo) -> None:
        """Delete a topic unless somebody uses it elsewhere."""
        now_ms = self._monotonic_ms()
        try:
            idle_ms = await self._idle_elsewhere(topic)
            if idle_ms is not None and idle_ms < (topic.options.unused_expiry_ms or 0):
                self.unused_topics.used(topic.id, now_ms - idle_ms)
            elif self.unused_topics.has(topic.id):
                await self._make(DeleteTopic(topic.tenant, topic.name, if_unused=True))
        except KernelError:
            self.unused_topics.used(topic.id, now_ms)
        finally:
            self._expiring.discard(topic.id)

    async def _idle_elsewhere(self, topic: TopicInfo) -> int | None:
        """How long nobody has used queues of a topic that others lead; None: there are none."""
        groups = {ref.group for ref in topic.queues if not self._serves(ref.group)}
        if not groups or self.peer_stores is None:
            return None
        return min(
            await asyncio.gather(*(self.peer_stores.idle_ms(each, topic.id) for each in groups))
        )

    def _serves(self, group: RaftGroup) -> bool:
        return group == TRANSIENT_GROUP or self._store.serving(group) is not None

    def _has_consumers(self, topic: TopicInfo) -> bool:
        return any(
            dispatcher.consumer_count
            for ref in topic.queues
            for dispatcher in self._replica(ref.group).dispatchers_of(ref.id)
        )

    def _replica(self, group: RaftGroup) -> Replica:
        return self._store.replica(group)
