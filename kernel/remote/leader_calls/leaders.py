"""The gateway's side: a connection to every store, and where the leader of each group is.

Who leads what is learnt from standings, which each store tells when a connection opens and
whenever they change, and from the hints of refusals. When a call fails, its leader is in doubt, and
every store is asked. The standing of the highest term counts.

The address of one store is enough: if it names a leader that is not connected, it is asked where
the stores are, until the cluster's register is known (`update`).

`send` is the `Link` of a request pipeline, which tries again; a question is tried again here, at
whoever leads then, until its deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ...api.model import TopicStatistics
from ...common.errors import Code, KernelError
from ...common.ids import Offset, QueueId, RaftGroup
from ...common.ports import Clock
from ...requests.leader import Done
from ...requests.request_pipeline import Attempt
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...rpc.link import Dialer
from ...rpc.roles import STORE
from ..sections import Section, Sections
from . import call_numbers as calls
from . import call_wire as wire
from .lanes import RemoteLeader

CALL_MS = 10_000
"""A call that is not answered within so long is sent again, at whoever leads then: longer than a
stall of the disk or an election, and a third of the publish deadline."""

QUESTION_MS = 10_000
"""A question ends so long after it was asked, wherever it was tried."""

QUESTION_TRY_MS = 3_000
"""One try of it, which ends before that."""

QUESTION_PAUSE_MS = 50
"""Before it is tried again."""

AGAIN = frozenset({Code.NOT_LEADER, Code.UNKNOWN_OUTCOME, Code.TIMEOUT, Code.BUSY})

Address = tuple[str, int]
_T = TypeVar("_T")


class Leaders:
    """Who leads what, as far as it is known."""

    def __init__(self, changed: Callable[[int], None] = lambda _group: None) -> None:
        """`changed(group)` is called when another node is taken for a group's leader, or none."""
        self._known: dict[int, tuple[int, int]] = {}
        """By group: (term, node); node 0: in doubt."""
        self._changed = changed

    @property
    def groups(self) -> list[int]:
        """Numbers of all groups that a store has told of."""
        return sorted(self._known)

    def _set(self, group: int, term: int, node: int) -> None:
        before = self.of(group)
        self._known[group] = term, node
        if node != before:
            self._changed(group)

    def of(self, group: int) -> int:
        """Number of the node that leads a group; 0: not known."""
        return self._known.get(group, (0, 0))[1]

    def told(self, group: int, term: int, node: int) -> None:
        """A store has told who leads a group."""
        known_term, known = self._known.get(group, (0, 0))
        if term > known_term or (term == known_term and not known):
            self._set(group, term, node)

    def refused(self, group: int, by: int, hint: int) -> None:
        """A node has refused a call, and perhaps named another."""
        term, known = self._known.get(group, (0, 0))
        if known in (0, by):
            self._set(group, term, hint)

    def doubted(self, node: int) -> None:
        """A node has gone."""
        for group, (term, known) in list(self._known.items()):
            if known == node:
                self._set(group, term, 0)


class RemoteLeaders:
    """See the module's head. `request_pipeline.Link`, and `rpc.channel.Handler` of its channels."""

    def __init__(
        self,
        own: Callable[[], Hello],
        secret: bytes,
        addresses: Mapping[int, Address],
        clock: Clock,
        *,
        given: Mapping[int, Address] | None = None,
        tls: ssl.SSLContext | None = None,
        call_ms: int = CALL_MS,
        question_ms: int = QUESTION_MS,
    ) -> None:
        """`own`: who this gateway is, with a new nonce each time, and in `store` an id of its
        process. `addresses`: of every store, by number. `given`: by the operator, whom those are
        tried at too that do not answer elsewhere; None: the same. Starts with `start`.
        """
        self._own = own
        self._secret = secret
        self._clock = clock
        self._tls = tls
        self._question_ms = question_ms
        self._loop = asyncio.get_running_loop()
        self._given = dict(addresses if given is None else given)
        self._dialers = {node: self._dialer(node, *each) for node, each in addresses.items()}
        self._closing: list[asyncio.Task[None]] = []
        self._started = False
        self._channels: dict[int, Channel] = {}
        self._asking: set[tuple[Channel, int]] = set()
        self._leaders: dict[RaftGroup, RemoteLeader] = {}
        self.table = Leaders(self._leader_changed)
        self._sections = Sections()
        self._watchers: list[Callable[[RaftGroup], None]] = []
        self.call_ms = call_ms
        self.lanes_broken = 0
        self.produced: dict[int, int] = {}

    def _dialer(self, node: int, host: str, port: int) -> Dialer:
        make = partial(self._channel, node)
        dialer = Dialer(host, port, make, self._clock, self._tls)
        dialer.also = self._given.get(node)
        return dialer

    def _channel(self, node: int, wake: Callable[[], None]) -> Channel:
        own = self._own()

        def admit(peer: Hello) -> str | None:
            if (peer.cluster, peer.node, peer.role) != (own.cluster, node, STORE):
                return f"{peer.role} {peer.node} of cluster {peer.cluster!r} is not store {node}"
            return None

        now_ms = self._clock.monotonic_ms()
        return Channel(own, self._secret, admit, self, wake, now_ms, is_dialer=True)

    def add(self, section: Section) -> None:
        """Serve a section too; it hears at once of the stores that can be reached already."""
        self._sections.add(section)
        for channel in self._channels.values():
            section.opened(channel, channel.peer)

    def watch(self, action: Callable[[RaftGroup], None]) -> None:
        """Have `action(group)` called whenever another node is taken for a group's leader, or none;
        then `channel_to` tells which. A leader whose connection opens later is told of as well.
        """
        self._watchers.append(action)

    def _leader_changed(self, group: int) -> None:
        channel, leader = self.channel_to(RaftGroup(group)), self._leaders.get(RaftGroup(group))
        if channel is not None and leader is not None:
            leader.led_over(channel)
        for action in self._watchers:
            action(RaftGroup(group))

    # --- Life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Dial every store, and keep the connections up."""
        self._started = True
        for dialer in self._dialers.values():
            dialer.start()

    async def stop(self) -> None:
        """Close every connection; what is unanswered fails."""
        for dialer in self._dialers.values():
            await dialer.stop()
        await asyncio.gather(*self._closing)

    @property
    def knows_all(self) -> bool:
        """Whether the leader of every group that stores have told of is known and connected."""
        groups = self.table.groups
        return bool(groups) and all(self.channel_to(RaftGroup(each)) for each in groups)

    @property
    def channels(self) -> list[Channel]:
        """The connections that are open now."""
        return list(self._channels.values())

    @property
    def bytes_moved(self) -> int:
        """Of all connections that are open now, in and out."""
        return sum(each.bytes_moved for each in self._channels.values())

    @property
    def connected(self) -> list[int]:
        """Stores that can be reached now."""
        return sorted(self._channels)

    @property
    def nodes(self) -> list[int]:
        """Stores that are dialled."""
        return sorted(self._dialers)

    def last_error(self, node: int) -> str:
        """Why a store could not be reached lately; empty if it could."""
        return self._dialers[node].last_error if node in self._dialers else "its address is unknown"

    def update(self, addresses: Mapping[int, Address]) -> None:
        """What the register says: stores are elsewhere now, have come, or are gone. None at all:
        it is not known.
        """
        if not addresses:
            return
        for node in self._dialers.keys() - addresses.keys():
            self._hang_up(node)
        for node, address in addresses.items():
            self._dial(node, address)

    def _dial(self, node: int, address: Address) -> None:
        dialer = self._dialers.get(node)
        if dialer is not None:
            if address in (dialer.address, dialer.tried):
                dialer.address = address
                return
            self._hang_up(node)
        dialer = self._dialers[node] = self._dialer(node, *address)
        if self._started:
            dialer.start()

    def _hang_up(self, node: int) -> None:
        self._closing = [each for each in self._closing if not each.done()]
        self._closing.append(self._loop.create_task(self._dialers.pop(node).stop()))

    # --- request_pipeline.LeaderLink --------------------------------------------------------

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        """Have the attempt made by the group's leader (hot)."""
        attempt(self.leader(group), answer)

    def leader(self, group: RaftGroup) -> RemoteLeader:
        """The leader of a group, wherever it is."""
        leader = self._leaders.get(group)
        if leader is None:
            leader = self._leaders[group] = RemoteLeader(group, self)
        return leader

    # --- lanes.Roads ------------------------------------------------------------------------

    def soon(self, action: Callable[[], None], /) -> object:
        """Call `action` in a later turn of the loop."""
        return self._loop.call_soon(action)

    def channel_to(self, group: RaftGroup) -> Channel | None:
        """The connection to whoever leads a group."""
        return self._channels.get(self.table.of(group))

    def failed(self, group: RaftGroup, channel: Channel | None, error: KernelError) -> None:
        """A lane has broken."""
        self.lanes_broken += 1
        self.doubt(group, channel, error)

    def doubt(self, group: RaftGroup, channel: Channel | None, error: KernelError) -> None:
        """Something has failed (None: nobody is known to lead): find out who leads the group."""
        if error.code is Code.BUSY:
            return
        if channel is not None:
            self.table.refused(group, channel.peer.node, error.hint)
        for each in list(self._channels.values()):
            self._ask_who_leads(each)

    def _ask_who_leads(self, channel: Channel) -> None:
        self._ask_store(channel, calls.WHO_LEADS, partial(self.told, channel, calls.STANDINGS))

    def _ask_store(self, channel: Channel, method: int, heard: Callable[[bytes], object]) -> None:
        """Ask one store something, unless it is being asked that. No answer is none: it is asked
        the next time, or is of an older build.
        """
        key = channel, method
        if key in self._asking or not channel.is_open:
            return

        def answered(answer: bytes | KernelError) -> None:
            self._asking.discard(key)
            if not isinstance(answer, KernelError):
                heard(answer)

        try:
            channel.call(method, (), answered, QUESTION_TRY_MS)
        except KernelError:
            return  # too much is waiting for it
        self._asking.add(key)

    def _heard_addresses(self, payload: bytes) -> None:
        """A store has said where all are: those that are not connected are dialled there."""
        try:
            told = wire.decode_addresses(payload)
        except wire.WireError as error:
            raise RpcError(str(error)) from None
        for each in told:
            if each.node not in self._channels:
                self._dial(each.node, (each.host, each.port))

    # --- Questions --------------------------------------------------------------------------

    async def figures(
        self, group: RaftGroup, queue: QueueId, name: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """`Leader.figures` of whoever leads a group. Also raises KernelError UNAVAILABLE."""
        parts = wire.encode_question(calls.CallFigures(group, queue, name, offset))
        return await self.ask(group, calls.FIGURES, parts, wire.decode_statistics)

    async def span(self, group: RaftGroup, queue: QueueId) -> tuple[int, int]:
        """`Leader.span` of whoever leads a group. Also raises KernelError UNAVAILABLE."""
        parts = wire.encode_question(calls.Span(group, queue))
        return await self.ask(group, calls.SPAN, parts, wire.decode_offsets)

    async def offset_since(self, group: RaftGroup, queue: QueueId, time_ms: int) -> Offset:
        """`Leader.offset_since` of whoever leads a group. Also raises KernelError UNAVAILABLE."""
        # What no clock shows finds what the nearest time finds that the wire has a number for.
        question = calls.Since(group, queue, min(max(time_ms, 0), calls.TIME_MS_MAX))
        parts = wire.encode_question(question)
        return await self.ask(group, calls.SINCE, parts, wire.decode_offset)

    async def peek(
        self, group: RaftGroup, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """`Leader.peek` of whoever leads a group, page by page. Also raises KernelError
        UNAVAILABLE.
        """
        found: list[tuple[Offset, bytes]] = []
        at, ended = offset, False
        while not ended and len(found) < messages:
            question = calls.Peek(group, queue, at, messages - len(found))
            parts = wire.encode_question(question)
            page, ended = await self.ask(group, calls.PEEK, parts, wire.decode_page)
            if not page:
                break
            found += page
            at = Offset(page[-1][0] + 1)
        return found

    async def ask(
        self,
        group: RaftGroup,
        method: int,
        parts: Sequence[bytes],
        decode: Callable[[bytes], _T],
        *,
        question_ms: int | None = None,
    ) -> _T:
        """The answer of whoever leads a group, asked again until `question_ms` have passed: so a
        question must be one that does no harm twice. Raises KernelError: what the leader answers;
        UNAVAILABLE if none does.
        """
        wait_ms = self._question_ms if question_ms is None else question_ms
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            channel = self.channel_to(group)
            answer = await self._try(channel, method, parts, deadline_ms)
            if not isinstance(answer, KernelError):
                try:
                    return decode(answer)
                except wire.WireError as error:
                    message = f"a store's answer is none: {error}"
                    raise KernelError(Code.UNAVAILABLE, message) from None
            if answer.code not in AGAIN:
                raise answer
            if self._clock.monotonic_ms() + QUESTION_PAUSE_MS >= deadline_ms:
                message = f"no leader of group {group} has answered: {answer.message}"
                message += "".join(
                    f"; store {node} cannot be reached: {self.last_error(node)}"
                    for node in self.nodes
                    if node not in self._channels
                )
                raise KernelError(Code.UNAVAILABLE, message)
            self.doubt(group, channel, answer)
            await asyncio.sleep(QUESTION_PAUSE_MS / 1_000)

    async def ask_node(
        self, node: int, method: int, parts: Sequence[bytes], decode: Callable[[bytes], _T]
    ) -> _T:
        """The answer of one store, asked once. Raises KernelError: what it answers; NOT_LEADER if
        it is not connected; UNAVAILABLE if its answer is none.
        """
        deadline_ms = self._clock.monotonic_ms() + QUESTION_TRY_MS
        answer = await self._try(self._channels.get(node), method, parts, deadline_ms)
        if isinstance(answer, KernelError):
            raise answer
        try:
            return decode(answer)
        except wire.WireError as error:
            raise KernelError(Code.UNAVAILABLE, f"a store's answer is none: {error}") from None

    async def _try(
        self, channel: Channel | None, method: int, parts: Sequence[bytes], deadline_ms: int
    ) -> bytes | KernelError:
        if channel is None:
            return KernelError(Code.NOT_LEADER, "nobody is known to lead")
        future: asyncio.Future[bytes | KernelError] = self._loop.create_future()

        def answered(answer: bytes | KernelError) -> None:
            if not future.done():
                future.set_result(answer)

        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        try:
            channel.call(method, parts, answered, min(left_ms, QUESTION_TRY_MS))
        except KernelError as error:
            return error
        return await future

    # --- channel.Handler --------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached. It tells at once who leads what."""
        self._channels[peer.node] = channel
        self._sections.opened(channel, peer)
        for group in self.table.groups:
            if self.table.of(group) == peer.node:
                self._leader_changed(group)

    def closed(self, channel: Channel, reason: str) -> None:
        """It cannot be reached any more: what it leads, others may soon lead."""
        self._asking -= {(channel, calls.WHO_LEADS), (channel, calls.ADDRESSES)}
        for node, known in list(self._channels.items()):
            if known is channel:
                del self._channels[node]
                self._sections.closed(channel)
                self.table.doubted(node)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A store tells who leads what, or something of a section."""
        section = self._sections.of(method)
        if section is not None:
            section.told(channel, method, payload)
            return
        if method != calls.STANDINGS:
            raise RpcError(f"method {method} is not told to gateways")
        try:
            standings = wire.decode_standings(payload)
        except wire.WireError as error:
            raise RpcError(str(error)) from None
        for each in standings:
            self.table.told(each.group, each.term, each.node)
        if not {each.node for each in standings} <= {0, *self._channels}:
            self._ask_store(channel, calls.ADDRESSES, self._heard_addresses)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A store asks something of a section."""
        section = self._sections.of(method)
        if section is None:
            reply(KernelError(Code.INVALID_ARGUMENT, f"a gateway has no method {method}"))
        else:
            section.called(channel, method, payload, reply)
