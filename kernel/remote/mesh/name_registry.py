"""Whose a name is: the leader of its home group says so, from what gateways tell it.

    transient topic, router   RESERVE -> free?  kept until RELEASE, when all stores have been told
    of
                             what has it        the first has it, all others are refused
    client of one connection NAME    -> epoch = term << 32 | counter      the newest has it: the one
                                        before is told (TAKEN), and then the new one is answered;
                                        one of another user is refused

All of it is in the memory of the leader. What is made stands in the announcements that every store
hears, so a new leader knows of it; a reservation that was under way when the leader changed is
found out when two have announced one name: then the later one is told that it has to give it up.
Clients are told of again to a new leader; the higher epoch counts, but of two users the one who
had the name first has it: the other could only come because the leader did not know yet.

Bounds: RESERVED_MAX reservations of one gateway; the clients of a gateway are as many as it has
connections, 300 bytes each.
"""

from __future__ import annotations

from typing import Protocol

from ...api.tree import anothers, belongs_to
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...common.placement import home_group
from ...rpc.channel import Channel, Reply
from ...store.node import Store
from . import mesh_wire as wire
from .remote_memory import RemoteMemory
from .remote_process import Process

RESERVED_MAX = 4_096
"""Names that one gateway takes at the same time: each for some milliseconds."""

TAKEN_MS = 1_000
"""A gateway that has not told a client within so long is stopped, or gone."""

Name = tuple[str, str]
"""(tenant, name) of a client."""

Holder = tuple[Process, int, str]
"""(gateway, epoch, user) of who has a client's name."""


class Changing(Protocol):
    """What is asked of the store's administration."""

    def is_changing(self, tenant: str, name: str) -> bool:
        """Whether something of a name is being made, changed or deleted just now."""


class NameFigures:
    """Counters since this process began."""

    __slots__ = ("refused", "reserved", "taken_over", "unheard")

    def __init__(self) -> None:
        self.reserved = 0
        self.refused = 0
        """Names that another has, or that are many at once."""
        self.taken_over = 0
        """Clients' names that a newer connection has taken from another gateway."""
        self.unheard = 0
        """Of these, whose gateway has not answered in time."""


class NameRegistry:
    """See the module's head. `remote_memory.Arbiter`."""

    def __init__(self, store: Store, remote_memory: RemoteMemory, changing: Changing) -> None:
        self._store = store
        self._remote_memory = remote_memory
        self._changing = changing
        self._reserved: dict[tuple[str, str, str], Channel] = {}
        self._by_channel: dict[Channel, set[tuple[str, str, str]]] = {}
        self._channels: dict[Process, Channel] = {}
        """By which gateways can be told."""
        self._clients: dict[RaftGroup, tuple[int, dict[Name, Holder]]] = {}
        """By group: the term of which, and who holds each."""
        self._counter = 0
        self.figures = NameFigures()
        remote_memory.arbiter = self
        remote_memory.given_up = self._given_up

    # --- Gateways ---------------------------------------------------------------------------

    def opened(self, channel: Channel) -> None:
        """A gateway has come."""
        self._channels[channel.peer.node, channel.peer.store] = channel
        self._by_channel[channel] = set()

    def closed(self, channel: Channel) -> None:
        """It has gone: what it was about to make it will not make."""
        for name in self._by_channel.pop(channel):
            del self._reserved[name]
        process = channel.peer.node, channel.peer.store
        if self._channels.get(process) is channel:
            del self._channels[process]

    def _given_up(self, process: Process) -> None:
        """A gateway is gone for good."""
        for _, clients in self._clients.values():
            for name in [key for key, (holder, *_) in clients.items() if holder == process]:
                del clients[name]

    # --- Topics and routers -----------------------------------------------------------------

    def is_reserved(self, kind: str, tenant: str, name: str) -> bool:
        """Whether a name is just being taken by a gateway."""
        return (kind, tenant, name) in self._reserved

    def is_anothers(self, kind: str, tenant: str, name: str, process: Process) -> bool:
        """Whether a "topic" or "router" is for certain another's: this store leads its home."""
        group = home_group(self._store.home_groups, tenant, name)
        if self._store.serving(group) is None:
            return False
        state = self._store.replica(group).state
        if (tenant, name) in (state.topic_names if kind == "topic" else state.routers):
            return True
        reserved = self._reserved.get((kind, tenant, name))
        if reserved is not None and (reserved.peer.node, reserved.peer.store) != process:
            return True
        return self._remote_memory.has_holder(kind, tenant, name, process)

    def reserve(self, channel: Channel, asked: wire.Named) -> None:
        """Keep a name for a gateway. Raises KernelError: NOT_LEADER; ALREADY_EXISTS;
        LIMIT_EXCEEDED; BUSY, it is being changed.
        """
        self._term(asked.group)
        key = asked.kind, asked.tenant, asked.name
        reserved = self._by_channel[channel]
        if key in reserved:
            return
        process = channel.peer.node, channel.peer.store
        if self.is_anothers(*key, process):
            self.figures.refused += 1
            raise KernelError(Code.ALREADY_EXISTS, f"another has the {asked.kind} {asked.name}")
        if self._changing.is_changing(asked.tenant, asked.name):
            raise KernelError(Code.BUSY, f"{asked.name} is being changed")
        if len(reserved) >= RESERVED_MAX:
            self.figures.refused += 1
            raise KernelError(Code.LIMIT_EXCEEDED, f"{RESERVED_MAX} names at once (reserved_max)")
        self.figures.reserved += 1
        self._reserved[key] = channel
        reserved.add(key)

    def release(self, channel: Channel, asked: wire.Named) -> None:
        """The gateway has made what was to have the name, or will not."""
        key = asked.kind, asked.tenant, asked.name
        if self._reserved.get(key) is channel:
            del self._reserved[key]
            self._by_channel[channel].discard(key)

    def _term(self, group: int) -> int:
        """Term of a group that is led here. Raises KernelError NOT_LEADER."""
        known = RaftGroup(group)
        leads = known in self._store.groups and self._store.serving(known) is not None
        term, node = self._store.standing(known) if known in self._store.groups else (0, 0)
        if not leads:
            raise KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", node)
        return term

    # --- Clients ----------------------------------------------------------------------------

    def name(self, channel: Channel, asked: wire.ProcessClients, reply: Reply) -> None:
        """A gateway has clients' connections; answered once those who had them before have heard.
        Raises KernelError NOT_LEADER; NOT_ALLOWED, if a client just opened is another user's.
        """
        group = RaftGroup(asked.group)
        term = self._term(group)
        if self._clients.get(group, (0, {}))[0] != term:
            self._clients[group] = term, {}
        clients = self._clients[group][1]
        process = channel.peer.node, channel.peer.store
        epochs: list[int] = []
        waiting = _Waiting(reply, epochs)
        users = asked.users or [""] * len(asked.clients)
        for (tenant, name, claimed), user in zip(asked.clients, users, strict=False):
            key = tenant, name
            holder, known, whose = clients.get(key, (process, 0, user))
            is_theirs = asked.drops or belongs_to(whose, user)
            if not claimed and not asked.drops:
                self._check_user(group, key, user)
                if holder != process and not is_theirs:
                    self.figures.refused += 1
                    raise anothers()
            if claimed and (claimed < known) == is_theirs:
                epochs.append(0)
                continue
            self._counter += not claimed
            epoch = claimed or term << 32 | self._counter
            epochs.append(int(known > 0) if asked.drops else epoch)
            if holder != process or (asked.drops and known):
                taken = wire.Client(group, tenant, name, max(epoch, known + 1))
                self._take(holder, taken, waiting)
            if asked.holds:
                clients[key] = process, epoch, user
            else:
                clients.pop(key, None)
        waiting.done()

    def _check_user(self, group: RaftGroup, key: Name, user: str) -> None:
        """Refuse a name whose record is another user's before anybody is told to let go of it. The
        log has the last word (`broker.subscribers`): this look at it may be a moment old.
        """
        state = self._store.replica(group).state
        number = state.subscriber_names.get(key)
        if number is not None and not belongs_to(state.subscribers[number].user, user):
            self.figures.refused += 1
            raise anothers()

    def _take(self, holder: Process, taken: wire.Client, waiting: _Waiting) -> None:
        """Tell a gateway that a client of it has a newer connection elsewhere."""
        self.figures.taken_over += 1
        channel = self._channels.get(holder)
        if channel is None:
            return

        def answered(answer: bytes | KernelError) -> None:
            self.figures.unheard += isinstance(answer, KernelError)
            waiting.done()

        try:
            channel.call(wire.TAKEN, wire.encode(taken), answered, TAKEN_MS)
        except KernelError:
            self.figures.unheard += 1
            return
        waiting.count += 1

    def left(self, channel: Channel, client: wire.Client) -> None:
        """A client of a gateway has gone."""
        _, clients = self._clients.get(RaftGroup(client.group), (0, {}))
        process = channel.peer.node, channel.peer.store
        holder, epoch, _ = clients.get((client.tenant, client.name), (process, 0, ""))
        if holder == process and epoch and epoch <= client.epoch:
            del clients[client.tenant, client.name]


class _Waiting:
    """A NAME that is answered when all have heard."""

    __slots__ = ("_epochs", "_reply", "count")

    def __init__(self, reply: Reply, epochs: list[int]) -> None:
        self._reply = reply
        self._epochs = epochs
        self.count = 1

    def done(self) -> None:
        """One of those that were waited for is done."""
        self.count -= 1
        if not self.count:
            self._reply(wire.encode(self._epochs))
