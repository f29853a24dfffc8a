"""Applies the commands of the topic tree: reference lists, subscribers, wills, retained messages.

The tree's part of the state machine (`machine` is the whole): the same rules, deterministic and
never raising; what cannot be done becomes a result.

A subscriber's life, by log time:

    open -> connected -> close, or a new leader's start -> will due -> end due -> ended -> left

A connection that opens it again cancels what is due; a clean start ends it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern

from ...api import message as messages
from ...api.model import QueueRef, TopicOptions
from ...api.tree import anothers, belongs_to
from ...common.errors import Code, KernelError
from ...common.ids import INDEX_BIT, LogIndex, RaftGroup, TopicId
from ...common.limits import NOTES_MAX, SUBSCRIPTIONS_MAX
from ..group_state.progress import GroupProgress
from ..group_state.retained import RetainedMessage
from ..group_state.state import INDEX_GROUPS, GroupState, QueueState, Section, TopicState
from ..group_state.tree_state import (
    NO_NOTES,
    IndexChanged,
    SubscriberChanged,
    SubscriberState,
    WillItem,
    WillsGrew,
)
from ..log_commands import tree_commands as tree
from ..log_commands.commands import Command
from ..observer import Observer, Retention, release
from ..snapshots.tree_snapshot import index_queue

INDEX_OPTIONS = TopicOptions(hidden=True)
"""A reference list is a work queue: a message goes when every group has acked it."""

_TTL_FIELD = 10


class Subscribers:
    """Applies the tree's commands to the state of one Raft group."""

    def __init__(self, state: GroupState, retention: Retention, observer: Observer) -> None:
        self.state = state
        self._retention = retention
        self._observer = observer
        self.commands: dict[int, Callable[..., object]] = {
            Command.JOIN_INDEX: self._join,
            Command.LEAVE_INDEX: self._leave,
            Command.OPEN_SUBSCRIBER: self._open,
            Command.CLOSE_SUBSCRIBER: self._close,
            Command.NOTE_SUBSCRIBER: self._note,
            Command.PUT_SUBSCRIPTION: self._put_subscription,
            Command.DELETE_SUBSCRIPTION: self._delete_subscription,
            Command.SUBSCRIBER_DUE: self._due,
            Command.LISTED: lambda command: list(command.counts),
            Command.END_SUBSCRIBER: self._end_by_name,
            Command.SUBSCRIBER_LEFT: self._left,
            Command.WILL_SENT: self._will_sent,
            Command.FORGET_RETAINED: self._forget_retained,
            Command.FORGET_TENANT: self._forget_tenant,
        }

    # --- Reference lists --------------------------------------------------------------------

    def _join(self, command: tree.JoinIndex) -> None:
        state = self.state
        key = (intern(command.tenant), command.pattern)
        ident = state.indexes.get(key)
        if ident is None:
            ident = TopicId(state.group << 32 | INDEX_BIT | state.next_index)
            state.next_index += 1
            ref = QueueRef(index_queue(ident), RaftGroup(state.group))
            topic = TopicState(ident, *key, 1, INDEX_OPTIONS, (ref,), INDEX_GROUPS)
            state.indexes[key] = ident
            state.topics[ident] = topic
            state.queues[ref.id] = QueueState(ref.id, topic)
            self._observer.tree_changed(IndexChanged(*key, ident, removed=False))
        queue = state.queues[index_queue(ident)]
        progress = queue.groups.get(command.group)
        if progress is None:
            if state.cut is not None:
                state.cut.save_queue(queue.id, "")
            progress = queue.groups[command.group] = GroupProgress(queue.index.tail)
            progress.set_mark(0, queue.index.tail + command.ahead)
            progress.used_ms = state.time_ms
        elif state.cut is not None:
            state.cut.save_queue(queue.id, command.group)
        if command.member is not None:
            progress.join(command.member, command.epoch)
        else:
            progress.joined = max(progress.joined, command.epoch)

    def _leave(self, command: tree.LeaveIndex) -> bool:
        state = self.state
        key = (command.tenant, command.pattern)
        ident = state.indexes.get(key)
        if ident is None:
            return False
        queue = state.queues[index_queue(ident)]
        progress = queue.groups.get(command.group)
        if progress is None or not _may_leave(progress, command):
            return False
        state.changing(Section.TOPICS, ident)
        if state.cut is not None:
            state.cut.save_queue(queue.id, command.group)
        if command.member is not None:
            progress.members.pop(command.member)
            if progress.members:
                return True
        fresh = progress.ack(progress.floor, queue.index.tail)
        release(self._retention.release, state, queue, progress, fresh)
        self._observer.group_removed(queue, command.group)
        del queue.groups[command.group]
        queue.forget()
        if not queue.groups:
            del state.indexes[key], state.topics[ident], state.queues[queue.id]
            self._observer.queues_removed([queue])
            self._observer.tree_changed(IndexChanged(*key, ident, removed=True))
        return True

    # --- Subscribers ------------------------------------------------------------------------

    def leader_started(self) -> None:
        """Every connection of the last leader's process is over."""
        for number in sorted(self.state.subscribers):
            known = self.state.subscribers[number]
            if known.connected and not known.owner:
                subscriber = self._by_number(number)
                assert subscriber is not None
                self._disconnected(subscriber)

    def _by_name(self, tenant: str, name: str) -> SubscriberState | None:
        """The subscriber of a name, about to be changed."""
        number = self.state.subscriber_names.get((tenant, name))
        if number is None:
            return None
        self.state.changing(Section.SUBSCRIBERS, number)
        return self.state.subscribers[number]

    def _by_number(self, number: int) -> SubscriberState | None:
        """A subscriber that is about to be changed."""
        self.state.changing(Section.SUBSCRIBERS, number)
        return self.state.subscribers.get(number)

    def _open(
        self, command: tree.OpenSubscriber
    ) -> tree.Opened | tree.Belongings | KernelError | bool:
        state = self.state
        subscriber = self._by_name(command.tenant, command.name)
        if subscriber is None and command.only_known:
            return False
        if subscriber is not None:
            # Before it is touched: who may not have it must not end it by a clean start either.
            refusal = _not_whose(subscriber, command.user, command.adopts)
            if refusal is not None:
                return refusal
        lost = None
        if subscriber is not None and command.clean:
            self._end(subscriber)
            subscriber = None
        resumed = subscriber is not None
        if subscriber is None:
            number = state.group << 40 | state.next_subscriber
            state.next_subscriber += 1
            subscriber = SubscriberState(number, intern(command.tenant), command.name)
            state.subscribers[number] = subscriber
            state.subscriber_names[subscriber.tenant, subscriber.name] = number
        elif subscriber.connected:
            lost = (subscriber.owner, subscriber.epoch)
            if _is_immediate(subscriber.will):
                self._send_will(subscriber)
        subscriber.epoch += 1
        subscriber.connected = True
        subscriber.owner = command.owner
        subscriber.user = intern(command.user)
        subscriber.expiry_ms = command.expiry_ms
        subscriber.will = command.will
        subscriber.will_at_ms = subscriber.ends_at_ms = None
        self._observer.tree_changed(SubscriberChanged(subscriber, lost=lost))
        return tree.Opened(
            subscriber.number,
            subscriber.epoch,
            resumed,
            dict(subscriber.subscriptions),
            dict(subscriber.notes),
        )

    def _close(self, command: tree.CloseSubscriber) -> bool:
        subscriber = self._by_number(command.number)
        if subscriber is None or subscriber.epoch != command.epoch or not subscriber.connected:
            return False
        subscriber.note(command.notes)
        if not command.will:
            subscriber.will = None
        if command.new_expiry:
            subscriber.expiry_ms = command.expiry_ms
        self._disconnected(subscriber)
        return True

    def _disconnected(self, subscriber: SubscriberState) -> None:
        """Begin the waiting for the will and for the end."""
        now = self.state.time_ms
        subscriber.connected = False
        expiry = subscriber.expiry_ms
        subscriber.ends_at_ms = None if expiry is None else now + expiry
        if subscriber.will is not None:
            delay = subscriber.will.delay_ms
            subscriber.will_at_ms = now + (delay if expiry is None else min(delay, expiry))
        self._observer.tree_changed(SubscriberChanged(subscriber))
        self._do_what_is_due(subscriber)

    def _do_what_is_due(self, subscriber: SubscriberState) -> None:
        now = self.state.time_ms
        if subscriber.will_at_ms is not None and subscriber.will_at_ms <= now:
            self._send_will(subscriber)
        if subscriber.ends_at_ms is not None and subscriber.ends_at_ms <= now:
            self._end(subscriber)

    def _due(self, command: tree.SubscriberDue) -> None:
        subscriber = self._by_number(command.number)
        if subscriber is None or subscriber.connected or subscriber.epoch != command.epoch:
            return
        self._do_what_is_due(subscriber)
        if subscriber.number in self.state.subscribers:
            self._observer.tree_changed(SubscriberChanged(subscriber))

    def _end_by_name(self, command: tree.EndSubscriber) -> tree.Belongings | KernelError | bool:
        subscriber = self._by_name(command.tenant, command.name)
        if subscriber is None:
            return False
        if not command.anyones:
            refusal = _not_whose(subscriber, command.user, command.adopts)
            if refusal is not None:
                return refusal
        self._end(subscriber)
        return True

    def _end(self, subscriber: SubscriberState) -> None:
        """It is over: its will goes out at the latest now."""
        if subscriber.will is not None:
            self._send_will(subscriber)
        state = self.state
        del state.subscribers[subscriber.number]
        del state.subscriber_names[subscriber.tenant, subscriber.name]
        if subscriber.subscriptions:
            subscriber.notes = NO_NOTES
            state.ended_subscribers[subscriber.number] = subscriber
        lost = (subscriber.owner, subscriber.epoch) if subscriber.connected else None
        self._observer.tree_changed(SubscriberChanged(subscriber, ended=True, lost=lost))

    def _left(self, command: tree.SubscriberLeft) -> None:
        self.state.changing(Section.ENDED_SUBSCRIBERS, command.number)
        self.state.ended_subscribers.pop(command.number, None)

    def _send_will(self, subscriber: SubscriberState) -> None:
        state = self.state
        will, subscriber.will, subscriber.will_at_ms = subscriber.will, None, None
        if will is not None:
            state.wills[state.next_outbox] = WillItem(state.next_outbox, subscriber.tenant, will)
            state.next_outbox += 1
            self._observer.tree_changed(WillsGrew())

    def _will_sent(self, command: tree.WillSent) -> None:
        self.state.changing(Section.WILLS, command.number)
        self.state.wills.pop(command.number, None)

    def _held(self, number: int, epoch: int) -> SubscriberState | KernelError:
        """The subscriber, if this epoch still has it."""
        subscriber = self._by_number(number)
        if subscriber is None or subscriber.epoch != epoch or not subscriber.connected:
            return KernelError(Code.SESSION_FENCED, "the subscriber has another connection")
        return subscriber

    def _note(self, command: tree.NoteSubscriber) -> KernelError | None:
        subscriber = self._held(command.number, command.epoch)
        if isinstance(subscriber, KernelError):
            return subscriber
        if len(subscriber.notes) + len(command.changes) > NOTES_MAX:
            return KernelError(Code.LIMIT_EXCEEDED, f"a subscriber has at most {NOTES_MAX} notes")
        subscriber.note(command.changes)
        return None

    def _put_subscription(self, command: tree.PutSubscription) -> bool | KernelError:
        subscriber = self._held(command.number, command.epoch)
        if isinstance(subscriber, KernelError):
            return subscriber
        key = (command.share, command.pattern)
        is_new = key not in subscriber.subscriptions
        if is_new and len(subscriber.subscriptions) >= SUBSCRIPTIONS_MAX:
            return KernelError(
                Code.LIMIT_EXCEEDED, f"a subscriber has at most {SUBSCRIPTIONS_MAX} subscriptions"
            )
        subscriber.subscriptions[key] = command.options
        return is_new

    def _delete_subscription(self, command: tree.DeleteSubscription) -> bool | KernelError:
        subscriber = self._held(command.number, command.epoch)
        if isinstance(subscriber, KernelError):
            return subscriber
        key = (command.share, command.pattern)
        return subscriber.subscriptions.pop(key, None) is not None

    # --- Retained messages ------------------------------------------------------------------

    def retain(self, index: LogIndex, body: bytes, entry: bytes, bounds: tuple[int, ...]) -> None:
        """RETAIN: keep the slots as the last messages of their names; an empty body removes."""
        state = self.state
        tenant, slots = tree.decode_retain(body)
        for slot in slots:
            data = entry[bounds[slot] : bounds[slot + 1]]
            fields = messages.HEADER.unpack_from(data)
            ext = messages.decode_ext(data[messages.HEADER_BYTES :][: fields[6]])
            name = ext.get(messages.Ext.TREE_NAME, b"").decode("utf-8", "replace")
            state.changing(Section.RETAINED, (tenant, name))
            if not fields[4]:
                earlier = state.retained.remove(tenant, name)
            else:
                kept = RetainedMessage(index, slot, state.time_ms, fields[_TTL_FIELD])
                earlier = state.retained.put(tenant, name, kept)
                self._retention.retain(state.group, index, 1)
            if earlier is not None:
                self._retention.release(state.group, earlier.index, 1)

    def _forget_retained(self, command: tree.ForgetRetained) -> None:
        for name in command.names:
            known = self.state.retained.get(command.tenant, name)
            if known is not None and known.has_expired(self.state.time_ms):
                self._forget(command.tenant, name, known)

    def _forget(self, tenant: str, name: str, known: RetainedMessage) -> None:
        self.state.changing(Section.RETAINED, (tenant, name))
        self.state.retained.remove(tenant, name)
        self._retention.release(self.state.group, known.index, 1)

    # --- A tenant that is removed -----------------------------------------------------------

    def _forget_tenant(self, command: tree.ForgetTenant) -> int:
        state, tenant, most = self.state, command.tenant, command.most
        # By number and by name: replicas need not have them in the same order.
        numbers = sorted(_of_tenant(state.subscribers, tenant))
        for number in numbers[:most]:
            subscriber = self._by_number(number)
            assert subscriber is not None
            subscriber.will = None
            self._end(subscriber)
        wills = sorted(number for number, each in state.wills.items() if each.tenant == tenant)
        for number in wills[:most]:
            state.changing(Section.WILLS, number)
            del state.wills[number]
        left = len(numbers[most:]) + len(wills[most:])
        left += len(_of_tenant(state.ended_subscribers, tenant))
        if state.retained.count(tenant):
            names = sorted(name for owner, name in state.retained.messages if owner == tenant)
            for name in names[:most]:
                known = state.retained.get(tenant, name)
                assert known is not None
                self._forget(tenant, name, known)
            left += len(names[most:])
        return left


def _not_whose(
    subscriber: SubscriberState, user: str, adopts: int
) -> tree.Belongings | KernelError | None:
    """Why a user is not let have a subscriber; None: it is theirs, or is about to be."""
    if not belongs_to(subscriber.user, user):
        return anothers()
    if subscriber.user or not user or adopts == subscriber.number:
        return None
    return tree.Belongings(
        subscriber.number, dict(subscriber.subscriptions), dict(subscriber.notes)
    )


def _of_tenant(subscribers: Mapping[int, SubscriberState], tenant: str) -> list[int]:
    return [number for number, each in subscribers.items() if each.tenant == tenant]


def _may_leave(progress: GroupProgress, command: tree.LeaveIndex) -> bool:
    """Whether who leaves is who joined last."""
    if command.member is None:
        return not command.epoch or progress.joined <= command.epoch
    joined = progress.members.get(command.member)
    return joined is not None and joined <= command.epoch


def _is_immediate(will: tree.WillRecord | None) -> bool:
    """Whether a will goes out with the connection, though the name is opened again at once."""
    return will is not None and not will.delay_ms
