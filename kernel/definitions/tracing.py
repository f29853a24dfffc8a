"""Has the leaders of a store note what becomes of messages of traced topics.

    record (`topic_traces`) + groups led here  ->  `TopicState.trace` of the topics' queues here
                                               ->  `TraceBuffer`, for whoever writes it down

Looked at when a record changes or a group's leader does, and each second, for a topic may get
queues in groups that had none of it. A record whose topic is gone is removed by the leader of its
home.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine

from ..api.changes import PutRecord
from ..api.model import TopicInfo
from ..api.tracing import TraceMode
from ..broker.group_state.state import GroupState
from ..broker.tracing import TopicTrace, TraceBuffer
from ..common.errors import KernelError
from ..common.ids import TopicId
from ..common.placement import home_group
from ..store.node import Store
from ..store.replicas.replica import Replica
from .topic_traces import PREFIX, TopicTraced, decode, key_of, name_of_key

VOID_MS = 60_000
"""The record of a topic that is gone is removed so long after that was seen first."""

Name = tuple[str, str]
"""Tenant and name of a topic."""


class Tracing:
    """Of one store."""

    def __init__(
        self,
        store: Store,
        topic: Callable[[Name], TopicInfo | None],
        administer: Callable[[PutRecord], Awaitable[object]],
        now_ms: Callable[[], int],
        background: Callable[[Coroutine[object, object, object]], None],
    ) -> None:
        """`now_ms`: of a clock that only goes on."""
        self._store = store
        self._topic = topic
        self._administer = administer
        self._now_ms = now_ms
        self._background = background
        self._records: dict[Name, tuple[int, TopicTraced]] = {}
        self._modes: dict[TopicId, TraceMode] = {}
        self._void_ms: dict[Name, int] = {}
        self.buffer = TraceBuffer()
        """What the leaders here have noted."""

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record has changed (version, value) or (None) was removed."""
        name = name_of_key(key) if key.startswith(PREFIX) else None
        if name is None:
            return
        before = self._records.pop(name, None)
        traced = decode(record[1]) if record is not None else None
        if record is not None and traced is not None:
            self._records[name] = record[0], traced
        self._modes = {
            TopicId(each.topic): each.mode
            for _, each in self._records.values()
            if each.mode is not TraceMode.OFF
        }
        if before is not None and TopicId(before[1].topic) not in self._modes:
            for replica in self._store.replicas():
                topic = replica.state.topics.get(TopicId(before[1].topic))
                if topic is not None:
                    topic.trace = None
        self._attach_all()

    def leads(self, replica: Replica) -> None:
        """A group is led here from now on."""
        if not self._is_transient(replica):
            self._attach(replica.state)

    def follows(self, replica: Replica) -> None:
        """A group is not led here any more."""
        for ident in self._modes:
            topic = replica.state.topics.get(ident)
            if topic is not None:
                topic.trace = None

    def look(self) -> None:
        """A second has passed."""
        if self._records:
            self._attach_all()
            self._remove_void()

    def _attach_all(self) -> None:
        for replica in self._store.replicas():
            if replica.serving and not self._is_transient(replica):
                self._attach(replica.state)

    def _is_transient(self, replica: Replica) -> bool:
        return replica is self._store.transient

    def _attach(self, state: GroupState) -> None:
        for ident, mode in self._modes.items():
            topic = state.topics.get(ident)
            if topic is not None and (topic.trace is None or topic.trace.mode is not mode):
                topic.trace = TopicTrace(ident, mode, self.buffer)

    # --- Topics that are gone ---------------------------------------------------------------

    def _remove_void(self) -> None:
        now_ms = self._now_ms()
        for name, (version, traced) in self._records.items():
            is_void = False
            if self._store.serving(home_group(self._store.home_groups, *name)) is not None:
                topic = self._topic(name)
                is_void = topic is None or topic.id != traced.topic
            if not is_void:
                self._void_ms.pop(name, None)
            elif now_ms - self._void_ms.setdefault(name, now_ms) >= VOID_MS:
                self._void_ms[name] = now_ms
                self._background(self._remove(name, version))
        for name in self._void_ms.keys() - self._records.keys():
            del self._void_ms[name]

    async def _remove(self, name: Name, version: int) -> None:
        try:
            await self._administer(PutRecord(key_of(*name), None, version))
        except KernelError:
            return  # it is tried again
