"""The other stores of the cluster over RPC: `peers.Peers` with one connection for each pair.

The node of the lower number dials. What a turn of the loop has to say to a node goes out as one
message of each lane: heartbeats, votes and answers ahead of entries and snapshots. What does not
fit, or has no connection, is as good as lost, and Raft is told so that it probes before it sends
more. The listener is also for processes of other roles (`serve`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Protocol

from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...common.ports import Clock
from ...raft import message_wire as wire
from ...raft.messages import APPEND, SNAPSHOT, RaftMessage
from ...rpc.channel import Channel, Handler, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import NONCE_BYTES, Admit, Hello
from ...rpc.link import Acceptor, Dialer, TurnedAway
from ...rpc.roles import STORE, Roles

RAFT = 1
"""Method: messages of Raft groups (`raft.wire`)."""

ASK = 2
"""Method: a question about a snapshot (`transfer`)."""

ASK_MS = 10_000
CONNECTIONS_MAX = 256
"""Processes of a cluster that have proved that they are some."""

_BULK = frozenset((APPEND, SNAPSHOT))

Address = tuple[str, int]


class Receiving(Protocol):
    """Where messages go: `consensus.Consensus`."""

    def receive(self, group: RaftGroup, message: RaftMessage) -> None:
        """A message of another member."""

    def unreachable(self, node: int) -> None:
        """Messages to a node were lost."""

    def fetches(self, node: int) -> None:
        """A node is fetching a snapshot."""


class Answering(Protocol):
    """Who answers questions: `transfer.SnapshotSource`."""

    async def answer(self, question: bytes) -> bytes:
        """Raises KernelError."""


class PeerLinks:
    """See the module's head. Also `rpc.channel.Handler` of all its channels."""

    def __init__(
        self,
        own: Callable[[], Hello],
        secret: bytes,
        addresses: Mapping[int, Address],
        clock: Clock,
        *,
        given: Mapping[int, Address] | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        admit: Admit | None = None,
        turned_away: TurnedAway | None = None,
    ) -> None:
        """`own`: who this node is, with a new nonce each time. `addresses`: of every store, by
        number, this one included. `given`: by the operator, where those are tried too that do not
        answer elsewhere; None: the same. `admit`: why a node may not connect; default: it must be
        of the same cluster and one of these. `turned_away` hears of every process that was not let
        in.
        """
        self._own = own
        self._secret = secret
        self.node = own().node
        self._cluster = own().cluster
        self._addresses = dict(addresses)
        self._given = dict(addresses if given is None else given)
        self._clock = clock
        self._client_tls = client_tls
        self._admit = admit or self._known
        self._roles = Roles()
        self.serve(STORE, self, self._admit)
        self.acceptor = Acceptor(self._accepted, clock, server_tls, CONNECTIONS_MAX, turned_away)
        self._dialers: dict[int, Dialer] = {}
        self._channels: dict[int, Channel] = {}
        self._open: list[Channel] = []
        self._outbox: dict[int, tuple[list[bytes], list[bytes]]] = {}
        """By node: parts for the control lane, and for the other."""
        self._receiving: Receiving | None = None
        self._answering: Answering | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self.messages_lost = 0

    # --- Life -------------------------------------------------------------------------------

    def serve(self, role: str, handler: Handler, admit: Admit) -> None:
        """Have processes of another role served at this store's address; before `start`."""
        self._roles.serve(role, handler, admit)

    async def start(
        self, receiving: Receiving, answering: Answering, listen: Address | None = None
    ) -> Address:
        """Listen and dial; the address. `listen`: where, if not at this store's own address. Raises
        OSError.
        """
        self._receiving = receiving
        self._answering = answering
        address = await self.acceptor.start(*(listen or self._addresses[self.node]))
        self._started = True
        for node in self._addresses:
            self._dial(node)
        return address

    def _dial(self, node: int) -> None:
        if node <= self.node or node in self._dialers:
            return
        host, port = self._addresses[node]
        make = partial(self._dialed, node)
        dialer = Dialer(host, port, make, self._clock, self._client_tls)
        dialer.also = self._given.get(node)
        self._dialers[node] = dialer
        dialer.start()

    def update(self, addresses: Mapping[int, Address]) -> None:
        """Stores are elsewhere now, have come, or are gone; and who was let in may not be any more
        (`admit` is asked anew).
        """
        for channel in list(self._channels.values()):
            reason = self._admit(channel.peer)
            if reason is not None:
                channel.close(reason)
        if addresses == self._addresses:
            return
        self._addresses = dict(addresses)
        for node, dialer in list(self._dialers.items()):
            address = addresses.get(node)
            if address is not None and address in (dialer.address, dialer.tried):
                dialer.address = address
            else:
                del self._dialers[node]
                self._in_background(dialer.stop())
        if self._started:
            for node in addresses:
                self._dial(node)

    def errors(self) -> dict[int, str]:
        """Why stores that this one dials are not connected, by number."""
        return {node: each.last_error for node, each in self._dialers.items() if each.last_error}

    @property
    def refused(self) -> str:
        """Why another store has not let this one in lately; empty: all have."""
        return self._roles.refused

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Close everything."""
        for dialer in self._dialers.values():
            await dialer.stop()
        await self.acceptor.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, wake: Callable[[], None]) -> Channel:
        own, now_ms = self._own(), self._clock.monotonic_ms()
        roles = self._roles
        return Channel(own, self._secret, roles.admit, roles, wake, now_ms, is_dialer=False)

    def _dialed(self, node: int, wake: Callable[[], None]) -> Channel:
        own, now_ms = self._own(), self._clock.monotonic_ms()

        def admit(peer: Hello) -> str | None:
            if peer.node != node:
                return f"store {peer.node} is there, not store {node}"
            return self._admit(peer)

        return Channel(own, self._secret, admit, self, wake, now_ms, is_dialer=True)

    def _known(self, peer: Hello) -> str | None:
        if peer.cluster != self._cluster:
            return f"node {peer.node} belongs to another cluster"
        if peer.node not in self._addresses or peer.node == self.node:
            return f"node {peer.node} is no member of this cluster"
        return None

    @property
    def connected(self) -> list[int]:
        """Nodes that can be reached now."""
        return sorted(self._channels)

    @property
    def understood(self) -> dict[int, int]:
        """By node that is connected: the level up to which it understands the log's features."""
        return {node: each.peer.understands for node, each in self._channels.items()}

    # --- Peers ------------------------------------------------------------------------------

    def send(self, group: int, message: RaftMessage) -> None:
        """Send a message when this turn is over (hot)."""
        outbox = self._outbox.get(message.to)
        if outbox is None:
            outbox = self._outbox[message.to] = ([], [])
        outbox[message.kind in _BULK].extend(wire.encode(group, message))

    def flush(self) -> None:
        """Send what this turn had to say."""
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, {}
        for node, (control, bulk) in outbox.items():
            channel = self._channels.get(node)
            sent = channel is not None
            if channel is not None and control:
                sent = channel.cast(RAFT, control, control=True)
            if channel is not None and bulk:
                sent = channel.cast(RAFT, bulk) and sent
            if not sent:
                self.messages_lost += 1
                if self._receiving is not None:
                    self._receiving.unreachable(node)

    async def ask(self, node: int, question: bytes) -> bytes:
        """Put a question to another store."""
        channel = self._channels.get(node)
        if channel is None:
            raise KernelError(Code.NOT_LEADER, f"node {node} is not connected")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(result: bytes | KernelError) -> None:
            if future.done():
                return
            if isinstance(result, KernelError):
                future.set_exception(result)
            else:
                future.set_result(result)

        channel.call(ASK, [question], answered, ASK_MS)
        return await future

    # --- channel.Handler --------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A connection is there. A second one of the same node takes the place of the first, which
        the other end has given up.
        """
        self._channels[peer.node] = channel
        self._open.append(channel)
        self._roles.refused = ""

    def closed(self, channel: Channel, reason: str) -> None:
        """A connection is gone; of who has another one that is older, that counts again: the other
        end may have taken this store for another, and have gone at once.
        """
        if channel in self._open:
            self._open.remove(channel)
        for node, known in list(self._channels.items()):
            if known is channel:
                del self._channels[node]
                for each in self._open:
                    if each.peer.node == node:
                        self._channels[node] = each
                if self._receiving is not None:
                    self._receiving.unreachable(node)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Messages have come."""
        if method != RAFT or self._receiving is None:
            raise RpcError(f"method {method} is not told")
        try:
            messages = list(wire.decode(payload))
        except wire.WireError as error:
            raise RpcError(str(error)) from None
        sender = channel.peer.node
        for group, message in messages:
            if message.sender != sender:
                raise RpcError(f"a message of node {message.sender} from node {sender}")
            self._receiving.receive(RaftGroup(group), message)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A question has come."""
        if method != ASK or self._answering is None or self._receiving is None:
            raise RpcError(f"no method {method}")
        self._receiving.fetches(channel.peer.node)
        self._in_background(_answer(self._answering, payload, reply))


async def _answer(answering: Answering, question: bytes, reply: Reply) -> None:
    try:
        reply([await answering.answer(question)])
    except KernelError as error:
        reply(error)


def new_nonce(bits: Callable[[int], int]) -> bytes:
    """A nonce of a hello."""
    return bits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "little")
