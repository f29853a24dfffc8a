"""The asking side of feeds: a mirror of what a Raft group defines, kept by its leader. A gateway
has one of every group, a store of those that it has no replica of.

    leader known -> SUBSCRIBE -> pages into a new mirror -> WHOLE: become it -> changes
         ^                                                                        |
         +---- another leader, a broken connection, ENDED, a refusal -------------+

While there is no feed the mirror stays as it was: a look-up is then as old as the break. What is
told after it is compared with the mirror, so that nothing that has gone meanwhile stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ...common.errors import Code, KernelError
from ...common.ids import ADDED_FIRST, MEMORY_FIRST, RaftGroup
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from ..leader_calls.leaders import RemoteLeaders
from . import feed_wire as wire
from .mirror import SILENCE, Hears, Mirror

SUBSCRIBE_MS = 3_000
"""A leader that has not answered within so long is asked again, or the next one."""

AGAIN_S = 0.05
"""After a refusal, or the end of a feed, it is tried again so much later."""

REACHED_SECONDS = 10.0
"""So long whoever has changed something waits for the mirror to show it: longer than a connection
takes to break and open again. The change is made in any case."""


class _Group:
    """What is known of one Raft group."""

    __slots__ = ("applied", "channel", "feed", "is_whole", "mirror", "next", "timer")

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.next: Mirror | None = None
        """The one that is being filled."""
        self.applied = 0
        """The mirror shows every change up to this index."""
        self.is_whole = False
        """It has been told as a whole, once at least."""
        self.feed = 0
        self.channel: Channel | None = None
        """Where the feed comes from, if there is one."""
        self.timer: asyncio.TimerHandle | None = None


class Definitions:
    """See the module's head. `sections.Section` of `RemoteLeaders`."""

    methods = calls.DEFINITIONS

    def __init__(self, leaders: RemoteLeaders, groups: Iterable[RaftGroup] = ()) -> None:
        """`groups`: of a gateway all of the cluster, the metadata group too."""
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._groups = {each: _Group() for each in groups}
        self._hears: list[Hears] = []
        self._feeds = 0
        self._full: set[Channel] = set()
        """Stores that have no room for new messages."""
        self._waiting: list[tuple[Mapping[RaftGroup, int], asyncio.Future[None]]] = []
        self._stopped = False
        self._takes_added = False
        """Groups that are added to the cluster are mirrored too."""
        self.subscribed = 0
        """Feeds begun since this process began."""
        self.late = 0
        """Waits for a change that ended at REACHED_SECONDS."""

    def hear(self, hears: Hears) -> None:
        """Have changes told to `hears` too, after those who came before it. What is mirrored
        already it has to look up.
        """
        self._hears.append(hears)

    async def start(self) -> None:
        """Return once every group is mirrored. Those that are added later are too."""
        self._takes_added = True
        self._leaders.watch(self._subscribe)
        for group in self._groups:
            self._subscribe(group)
        await self.until(dict.fromkeys(self._groups, 0))

    def watch(self) -> None:
        """Subscribe from now on wherever a leader is found; groups come and go (`follow`)."""
        self._leaders.watch(self._subscribe)

    def follow(self, group: RaftGroup, known: Mirror) -> None:
        """Mirror a group from now on, of which look-ups show what is in `known`."""
        state = self._groups[group] = _Group()
        state.mirror = known
        self._subscribe(group)

    def leave(self, group: RaftGroup, now: Mirror) -> None:
        """Mirror a group no more: it is known here by itself, as `now`."""
        state = self._groups.pop(group)
        if state.timer is not None:
            state.timer.cancel()
        state.mirror.become(now, self._hears)
        self._wake()

    @property
    def groups(self) -> list[RaftGroup]:
        """Those that are mirrored."""
        return list(self._groups)

    def stop(self) -> None:
        """Subscribe no more; who waits for a change waits no longer."""
        self._stopped = True
        for state in self._groups.values():
            if state.timer is not None:
                state.timer.cancel()
        for _, future in self._waiting:
            if not future.done():
                future.set_result(None)

    # --- Look-ups ---------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """False while a store that leads a group has no room for new messages."""
        if not self._full:
            return True
        return not any(self._leaders.channel_to(group) in self._full for group in self._groups)

    def mirror(self, group: RaftGroup) -> Mirror:
        """What a group defines."""
        return self._groups[group].mirror

    def applied(self, group: RaftGroup) -> int:
        """The mirror of a group shows every change up to this index."""
        return self._groups[group].applied

    async def reached(self, applied: Mapping[RaftGroup, int]) -> None:
        """Return once the mirrors show every change up to these indexes, or after
        REACHED_SECONDS.
        """
        try:
            async with asyncio.timeout(REACHED_SECONDS):
                await self.until(applied)
        except TimeoutError:
            self.late += 1

    async def until(self, applied: Mapping[RaftGroup, int]) -> None:
        """Return once the mirrors show every change up to these indexes, of groups that are
        mirrored by then.
        """
        if not self._has_reached(applied):
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((applied, future))
            try:
                await future
            finally:
                self._waiting = [each for each in self._waiting if each[1] is not future]

    def _has_reached(self, applied: Mapping[RaftGroup, int]) -> bool:
        groups = self._groups
        return all(
            groups[group].is_whole and groups[group].applied >= index
            for group, index in applied.items()
            if group in groups
        )

    # --- Subscribing ------------------------------------------------------------------------

    def _subscribe(self, group: RaftGroup) -> None:
        """Hear of a group from whoever leads it now."""
        if self._takes_added and ADDED_FIRST <= group < MEMORY_FIRST:
            self._groups.setdefault(group, _Group())
        state = self._groups.get(group)
        if state is None or self._stopped:
            return
        channel = self._leaders.channel_to(group)
        if channel is None or channel is state.channel:
            return
        self._feeds += 1
        self.subscribed += 1
        state.feed, state.channel, state.next = self._feeds, channel, None
        parts = wire.encode(wire.Subscribe(state.feed, group))
        answered = partial(self._answered, group, state.feed)
        try:
            channel.call(wire.SUBSCRIBE, parts, answered, SUBSCRIBE_MS)
        except KernelError:
            self._lost(group)

    def _answered(self, group: RaftGroup, feed: int, answer: bytes | KernelError) -> None:
        state = self._groups.get(group)
        if state is not None and isinstance(answer, KernelError) and state.feed == feed:
            channel = state.channel
            self._lost(group)
            if answer.code is not Code.BUSY:
                self._leaders.failed(group, channel, answer)

    def _lost(self, group: RaftGroup) -> None:
        """There is no feed of a group: look for one soon."""
        state = self._groups[group]
        state.feed, state.channel, state.next = 0, None, None
        if state.timer is None and not self._stopped:
            state.timer = self._loop.call_later(AGAIN_S, self._again, group)

    def _again(self, group: RaftGroup) -> None:
        state = self._groups[group]
        state.timer = None
        self._subscribe(group)
        if state.channel is None and not self._stopped:
            state.timer = self._loop.call_later(AGAIN_S, self._again, group)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached: `RemoteLeaders.watch` tells what it leads."""

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more."""
        self._full.discard(channel)
        for group, state in self._groups.items():
            if state.channel is channel:
                self._lost(group)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Stores ask nothing of gateways."""
        raise RpcError(f"method {method} is not called")

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Something of a feed."""
        try:
            if method == wire.TOLD:
                self._take(channel, wire.decode_told(payload), len(payload))
            elif method == wire.ENDED:
                self._ended(channel, wire.decode_ended(payload))
            elif method == wire.ACCEPTING:
                full = self._full.discard if wire.decode_accepting(payload) else self._full.add
                full(channel)
            else:
                raise RpcError(f"method {method} is not told to gateways")
        except WireError as error:
            raise RpcError(str(error)) from None

    def _ended(self, channel: Channel, feed: int) -> None:
        for group, state in self._groups.items():
            if state.channel is channel and state.feed == feed:
                self._lost(group)

    def _take(self, channel: Channel, told: wire.Told, size: int) -> None:
        found = [each for each in self._groups.items() if each[1].feed == told.feed]
        if not found or found[0][1].channel is not channel:
            # Of a feed that has been given up: nobody is to wait for it.
            channel.cast(wire.TAKEN, wire.encode(wire.Taken(told.feed, size)), control=True)
            return
        group, state = found[0]
        if told.flags & wire.BEGINS:
            state.next = Mirror()
        filled = state.next or state.mirror
        hears: Sequence[Hears] = self._hears if state.next is None else SILENCE
        for item in told.items:
            filled.take(item, hears)
            if isinstance(item, wire.SubscriberIs):
                for each in self._hears:
                    each.subscriber_changed(item)
        if told.flags & wire.WHOLE and state.next is not None:
            state.mirror.become(state.next, self._hears)
            state.next = None
            state.is_whole = True
            for each in self._hears:
                each.mirrored(group)
        if state.next is None:
            state.applied = told.applied
            self._wake()
        channel.cast(wire.TAKEN, wire.encode(wire.Taken(told.feed, size)), control=True)

    def _wake(self) -> None:
        for applied, future in self._waiting:
            if not future.done() and self._has_reached(applied):
                future.set_result(None)
