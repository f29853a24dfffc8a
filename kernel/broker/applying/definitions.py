"""Definitions of one Raft group: topics and their groups, routers and routes, metadata records.

The control half of the state machine (`machine` is the other): the same rules, deterministic and
never raising; what cannot be done becomes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...api.model import GroupOptions, QueueRef, RouterInfo, Start, TopicInfo
from ...common.errors import Code, KernelError
from ...common.feature_levels import REGISTER
from ...common.ids import QueueId, RaftGroup, queue_id, topic_of
from ..group_state.progress import GroupProgress
from ..group_state.resized import ResizedTopic
from ..group_state.state import GroupState, QueueState, RouterState, Section, TopicState
from ..index.features import U32_MAX
from ..log_commands import commands
from ..log_commands.commands import Command
from ..observer import Observer, Retention, release, release_all


class Definitions:
    """Applies the commands that change definitions."""

    def __init__(
        self,
        state: GroupState,
        retention: Retention,
        observer: Observer,
        drop_halves: Callable[[Iterable[QueueId]], None],
    ) -> None:
        self.state = state
        self._drop_halves = drop_halves
        self._retention = retention
        self._observer = observer
        self.commands: dict[int, Callable[..., object]] = {
            Command.PUT_TOPIC: self._put_topic,
            Command.PUT_QUEUES: self._put_queues,
            Command.DELETE_TOPIC: self._delete_topic,
            Command.DELETE_GROUP: self._delete_group,
            Command.PUT_ROUTER: self._put_router,
            Command.DELETE_ROUTER: self._delete_router,
            Command.PUT_ROUTE: self._put_route,
            Command.DELETE_ROUTE: self._delete_route,
            Command.PUT_RECORD: self._put_record,
            Command.PUT_RECORDS: self._put_records,
        }

    def _put_record(self, command: commands.PutRecord) -> int | KernelError:
        return self._changed_since(command) or self._set_record(command)

    def _put_records(self, command: commands.PutRecords) -> list[int] | KernelError:
        for each in command.changes:
            error = self._changed_since(each)
            if error is not None:
                return error
        return [self._set_record(each) for each in command.changes]

    def _changed_since(self, command: commands.PutRecord) -> KernelError | None:
        """The record is not what its change was made from."""
        version, _ = self.state.records.get(command.key, (0, b""))
        if command.expected is None or command.expected == version:
            return None
        return KernelError(
            Code.ALREADY_EXISTS, f"record {command.key} has version {version} by now"
        )

    def _set_record(self, command: commands.PutRecord) -> int:
        """Change a record; its new version, 1 more than the last. Without REGISTER a record that is
        made anew has version 1 again, so that a change made from the one before would fit; with it,
        one above all that were removed.
        """
        state, key = self.state, command.key
        version, _ = state.records.get(key, (state.record_version, b""))
        version += 1
        state.changing(Section.RECORDS, key)
        if command.value is not None:
            state.records[key] = (version, command.value)
        else:
            state.records.pop(key, None)
            if state.feature_level >= REGISTER:
                state.record_version = max(state.record_version, version)
        self._observer.record_changed(key, state.records.get(key))
        return version

    # --- Topics -----------------------------------------------------------------------------

    def _put_topic(self, command: commands.PutTopic) -> TopicInfo | KernelError:
        state = self.state
        known = state.topic_names.get((command.tenant, command.name))
        if known is not None:
            topic = state.topics[known]
            if command.must_be_new:
                return KernelError(Code.ALREADY_EXISTS, f"topic {command.name} exists")
            state.changing(Section.TOPICS, known)
            groups = {**topic.groups, **command.groups}
            topic.change(topic.version + 1, command.options, groups)
        else:
            ident = command.ident
            state.next_topic = max(state.next_topic, (ident & U32_MAX) + 1)
            refs = tuple(
                QueueRef(queue_id(ident, number), RaftGroup(group))
                for number, group in enumerate(command.placement)
            )
            topic = TopicState(
                ident,
                command.tenant,
                command.name,
                1,
                command.options,
                refs,
                dict(command.groups),
            )
            state.topics[ident] = topic
            state.topic_names[command.tenant, command.name] = ident
        self._make_queues(topic)
        info = topic.info()
        self._observer.topic_changed(info, removed=False)
        return info

    def _put_queues(self, command: commands.PutQueues) -> None:
        topic = self.state.topics.get(command.topic)
        if topic is None:
            topic = self.state.topics[command.topic] = TopicState(
                command.topic,
                command.tenant,
                command.name,
                command.version,
                command.options,
                command.queues,
                dict(command.groups),
            )
        elif command.version >= topic.version:
            self.state.changing(Section.TOPICS, command.topic)
            groups = {**topic.groups, **command.groups}
            topic.change(command.version, command.options, groups)
        self._make_queues(topic)

    def _make_queues(self, topic: TopicState) -> None:
        for ref in topic.refs:
            if ref.group != self.state.group:
                continue
            queue = self.state.queues.get(ref.id)
            if queue is None:
                # One of a topic that was resized is gone, or its first offset is not known here.
                if topic.id not in self.state.resized:
                    self.state.queues[ref.id] = QueueState(ref.id, topic)
                continue
            for name, options in topic.groups.items():
                if name not in queue.groups:
                    self.state.changing(Section.QUEUES, queue.id)
                    queue.groups[name] = _joining(queue, options)
        self._observer.queues_changed(topic)

    def _delete_topic(self, command: commands.DeleteTopic) -> bool:
        state = self.state
        state.changing(Section.TOPICS, command.topic)
        # Also of one that was to get queues here, and did not.
        for ident in [each for each in state.windows if topic_of(each) == command.topic]:
            del state.windows[ident]
        topic = state.topics.get(command.topic)
        if topic is None:
            return False
        gone: list[QueueState] = []
        resized = state.resized.pop(topic.id, ResizedTopic())
        for ident in resized.queues_here(topic.id, (ref.id for ref in topic.refs)):
            state.changing(Section.QUEUES, ident)
            queue = state.queues.pop(ident)
            state.sealed.discard(ident)
            if queue is None:
                continue
            gone.append(queue)
            for start, end in queue.needed():
                release_all(self._retention.release, state, queue, start, end)
        self._drop_halves(queue.id for queue in gone)
        del state.topics[topic.id]
        state.ledger.retire(topic, gone, resized.never_stored)
        self._observer.queues_removed(gone)
        if state.topic_names.get((topic.tenant, topic.name)) == topic.id:
            del state.topic_names[topic.tenant, topic.name]
            self._observer.topic_changed(topic.info(), removed=True)
        return True

    def _delete_group(self, command: commands.DeleteGroup) -> bool:
        topic = self.state.topics.get(command.topic)
        if topic is None or command.group not in topic.groups:
            return False
        self.state.changing(Section.TOPICS, command.topic)
        groups = {name: each for name, each in topic.groups.items() if name != command.group}
        topic.change(topic.version + 1, topic.options, groups)
        resized = self.state.resized.get(topic.id, ResizedTopic())
        resized.forget_group(command.group)
        for ident in resized.queues_here(topic.id, (ref.id for ref in topic.refs)):
            queue = self.state.queues.get(ident)
            if queue is None or command.group not in queue.groups:
                continue
            self.state.changing(Section.QUEUES, queue.id)
            progress = queue.groups[command.group]
            fresh = progress.ack(progress.floor, queue.index.tail)
            release(self._retention.release, self.state, queue, progress, fresh)
            self._observer.group_removed(queue, command.group)
            del queue.groups[command.group]
            queue.forget()
        if self.state.topic_names.get((topic.tenant, topic.name)) == topic.id:
            self._observer.topic_changed(topic.info(), removed=False)
        return True

    # --- Routers ----------------------------------------------------------------------------

    def _put_router(self, command: commands.PutRouter) -> RouterInfo | KernelError:
        key = (command.tenant, command.name)
        router = self.state.routers.get(key)
        if router is None:
            router = RouterState(command.tenant, command.name, 1, command.options)
            self.state.routers[key] = router
        elif command.must_be_new:
            return KernelError(Code.ALREADY_EXISTS, f"router {command.name} exists")
        else:
            self.state.changing(Section.ROUTERS, key)
            router.version += 1
            router.options = command.options
        self._observer.router_changed(router, removed=False)
        return router.info()

    def _delete_router(self, command: commands.DeleteRouter) -> bool | KernelError:
        key = (command.tenant, command.name)
        router = self.state.routers.get(key)
        if router is None:
            return KernelError(Code.NOT_FOUND, f"no router {command.name}")
        if command.if_unused and router.routes:
            return KernelError(Code.IN_USE, f"router {command.name} has routes")
        self.state.changing(Section.ROUTERS, key)
        del self.state.routers[key]
        self._observer.router_changed(router, removed=True)
        return True

    def _put_route(self, command: commands.PutRoute) -> KernelError | None:
        router = self.state.routers.get((command.tenant, command.router))
        if router is None:
            return KernelError(Code.NOT_FOUND, f"no router {command.router}")
        if command.route not in router.routes:
            self.state.changing(Section.ROUTERS, (command.tenant, command.router))
            router.routes[command.route] = None
            router.version += 1
            self._observer.route_changed(router, command.route, removed=False)
        return None

    def _delete_route(self, command: commands.DeleteRoute) -> bool:
        router = self.state.routers.get((command.tenant, command.router))
        if router is None or command.route not in router.routes:
            return False
        self.state.changing(Section.ROUTERS, (command.tenant, command.router))
        del router.routes[command.route]
        router.version += 1
        self._observer.route_changed(router, command.route, removed=True)
        return True


def _joining(queue: QueueState, options: GroupOptions) -> GroupProgress:
    """Progress of a group that joins: what nobody needs any more counts as acked by it."""
    if options.start is Start.LATEST:
        return GroupProgress(queue.index.tail)
    progress = GroupProgress(max(queue.trimmed, queue.index.head))
    at = progress.floor
    for start, end in queue.needed():
        progress.ack(at, start)
        at = end
    progress.ack(at, queue.index.tail)
    return progress
