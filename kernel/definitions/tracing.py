"""Has the leaders of a store note what becomes of messages of traced topics.

    record (`topic_traces`) + groups led here  ->  `TopicState.trace` of the topics' queues here
                                               ->  `TraceBuffer`, for whoever writes it down

Looked at when a record changes or a group's leader does, and each second, for a topic may get
queues in groups that had none of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable

from ..api.changes import PutRecord
from ..api.model import TopicInfo
from ..api.tracing import TraceMode
from ..broker.group_state.state import GroupState
from ..broker.tracing import TopicTrace
from ..common.ids import LogIndex, RaftGroup, TopicId
from ..requests.client_trace import ClientTrace
from ..store.node import Store
from ..store.replicas.replica import Replica
from .topic_records import KeptRecords, Name
from .topic_traces import PREFIX, decode, modes_of


class Tracing:
    """Of one store."""

    def __init__(
        self,
        store: Store,
        topic: Callable[[Name], TopicInfo | None],
        administer: Callable[[PutRecord], Awaitable[object]],
        now_ms: Callable[[], int],
        background: Callable[[Coroutine[object, object, object]], None],
        client_trace: ClientTrace,
    ) -> None:
        """`now_ms`: of a clock that only goes on; `client_trace`: of the same process, which has
        the buffer.
        """
        self._store = store
        self._records = KeptRecords(PREFIX, decode, store, topic, administer, now_ms, background)
        self._modes: dict[TopicId, TraceMode] = {}
        self._client_trace = client_trace

    def record_changed(self, key: str, record: tuple[int, bytes] | None) -> None:
        """A metadata record has changed (version, value) or (None) was removed."""
        if not self._records.changed(key, record):
            return
        before, self._modes = self._modes, modes_of(self._records.known.values())
        self._client_trace.modes = self._modes
        for replica in self._store.replicas():
            self._forget(replica, before.keys() - self._modes.keys())
        self._attach_all()

    def leads(self, replica: Replica) -> None:
        """A group is led here from now on."""
        if not self._is_transient(replica):
            self._attach(replica.state)

    def follows(self, replica: Replica) -> None:
        """A group is not led here any more."""
        self._forget(replica, self._modes)

    def look(self) -> None:
        """A second has passed."""
        if self._records.known:
            self._attach_all()
            for _ in self._records.look():
                pass  # what is void is removed

    def _attach_all(self) -> None:
        for replica in self._store.replicas():
            if replica.serving and not self._is_transient(replica):
                self._attach(replica.state)

    @staticmethod
    def _forget(replica: Replica, topics: Iterable[TopicId]) -> None:
        for ident in topics:
            topic = replica.state.topics.get(ident)
            if topic is not None:
                topic.trace = None

    def _read(
        self, group: RaftGroup, index: LogIndex, has_read: Callable[[bytes | None], None]
    ) -> None:
        """See `broker.tracing.ReadEntry`."""
        entry = self._store.entry(group, index)
        if entry is not None:
            has_read(entry)
            return
        # Once only: later nothing may refer to it any more.
        self._store.fetch(group, index, lambda: has_read(self._store.entry(group, index)))

    def _is_transient(self, replica: Replica) -> bool:
        return replica is self._store.transient

    def _attach(self, state: GroupState) -> None:
        for ident, mode in self._modes.items():
            topic = state.topics.get(ident)
            if topic is not None and (topic.trace is None or topic.trace.mode is not mode):
                topic.trace = TopicTrace(ident, mode, self._client_trace.buffer, self._read)
