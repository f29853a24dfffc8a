"""What lives in the memory of one gateway, usable from all others (ADR 12).

    here:  LocalDefinitions, TreeRoutes -> Announcer -> stores and other gateways
    there: their announcements          -> RemoteMemory -> look-ups here
    publish to what lives there         -> RemoteMemory -> Link ~~> Inboxes there
    consume what lives there            -> Streams (told by RemoteMemory) ~~> StreamService there

Gateways learn of each other from the stores (MEET): each tells at which address it can be reached,
and dials all the others. One that no store hears any more is gone, unless it still speaks to this
one.

Durability: none of it is on any disk.
"""

from __future__ import annotations

import asyncio

from ...api.changes import Administration
from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...common.placement import home_group
from ...common.ports import Clock, Random
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...rpc.link import Dialer
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from ..leader_calls.leaders import RemoteLeaders
from ..streams.gateways import MEMORY_STREAMS_MAX
from ..streams.led_groups import MemoryGroup
from ..streams.stream_service import StreamService
from ..streams.streams import Streams
from . import mesh_wire as wire
from .announcing import Announcer
from .claimed_names import Names
from .inbox import Inboxes, InboxProcess
from .meeting import MeetingPoint, address_of
from .questions import Questions
from .remote_memory import GONE_MS, RemoteMemory
from .remote_process import Key

GATEWAY_NODE = 0
"""Number of the node in the hello of every gateway."""


class Mesh:
    """`sections.Section` of the connections to stores, and `local_definitions.Heard`."""

    methods = calls.MESH

    def __init__(
        self,
        process: InboxProcess,
        leaders: RemoteLeaders,
        streams: Streams,
        clock: Clock,
        random: Random,
        meeting: MeetingPoint | None,
    ) -> None:
        """`streams`: consumers of this process; `meeting`: None: other gateways hear of this one
        only what stores hear.
        """
        self._process = process
        self._loop = asyncio.get_running_loop()
        self.meeting = meeting
        dead_letters = process.local.dead_letters
        self.remote_memory = RemoteMemory(
            process.topology, clock, random, dead_letters.topic_appeared
        )
        state, tree = process.transient.replica.state, process.topology.tree
        self.announcer = Announcer(state, tree, self.remote_memory.routers)
        self.announcer.conflict = self._conflict
        self.inboxes = Inboxes(process, clock, GONE_MS)
        self.remote_memory.consumers = streams
        self._led = MemoryGroup(process.transient, process.local.used)
        self.stream_service = StreamService(self._led, streams_max=MEMORY_STREAMS_MAX)
        self.names = Names(
            leaders,
            process.home_groups,
            clock,
            self._home,
            self._is_known,
            process.tree.lost_name,
        )
        self._met: dict[Channel, dict[str, str]] = {}
        """Gateways that each store hears, with their addresses."""
        self.questions = Questions(self.remote_memory, self._others)
        self._dialers: dict[str, Dialer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._peers = _Peers(self)
        self._stopped = False
        process.local.heard = self
        process.local.reserve = self.names.reserve
        process.tree.join_mesh(self, self.names)
        leaders.add(self)
        if meeting is not None:
            meeting.serve(self.remote_memory)

    async def stop(self) -> None:
        """Tell nothing more, and be asked for nothing more."""
        self._stopped = True
        self._led.is_draining = True
        for dialer in self._dialers.values():
            await dialer.stop()
        await asyncio.gather(*self._closing)
        if self.meeting is not None:
            await self.meeting.stop()
        await self.questions.stop()
        await self.inboxes.stop()
        await self.names.stop()
        self.remote_memory.stop()

    def each_second(self) -> None:
        """Give up who is gone."""
        self.remote_memory.each_second()
        self.inboxes.each_second()
        self._meet()

    @property
    def process(self) -> str:
        """Id of this process, as others know it."""
        return self.meeting.own if self.meeting is not None else ""

    @property
    def peers(self) -> list[str]:
        """Gateways that this one has told what it has."""
        return [process for process, each in self._dialers.items() if each.channel is not None]

    # --- sections.Section, and what gateways that were dialled say --------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached."""
        self.announcer.opened(channel)

    def closed(self, channel: Channel) -> None:
        """A store or gateway cannot be reached any more."""
        self.announcer.closed(channel)
        self.inboxes.closed(channel)
        self._met.pop(channel, None)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """FRAME, or MEET."""
        if method == wire.FRAME:
            self.inboxes.frame(channel, payload)
        elif method == wire.MEET:
            try:
                self._met[channel] = decode(wire.meetings, payload)
            except WireError as error:
                raise RpcError(str(error)) from None
            self._meet()
        else:
            raise RpcError(f"method {method} is not told to gateways")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """What is asked of what lives here; TAKEN, of stores."""
        if method == wire.TAKEN:
            try:
                self.names.taken(payload, reply)
            except WireError as error:
                raise RpcError(str(error)) from None
        else:
            self.inboxes.question(method, payload, reply)

    # --- Other gateways ---------------------------------------------------------------------

    def _others(self) -> dict[str, str]:
        """Addresses of the other gateways that stores hear, by the id of the process; also of one
        that none hears any more, but this one does.
        """
        known = {
            process: ""
            for number, process in self.remote_memory.processes
            if number == GATEWAY_NODE
        }
        for some in self._met.values():
            known.update(some)
        known.pop(self.process, None)
        return known

    def _meet(self) -> None:
        """Dial the gateways that stores hear, and give up those that none does."""
        if not self._met or self._stopped:
            return
        addresses = {key: each for some in self._met.values() for key, each in some.items()}
        for number, process in self.remote_memory.processes:
            if number == GATEWAY_NODE and process not in addresses:
                self.remote_memory.is_gone((number, process))
        reached = self.peers
        for process in self.stream_service.away:
            if process not in addresses and process not in reached:
                self.stream_service.give_up(process)
        for process, dialer in list(self._dialers.items()):
            if process not in addresses and process not in reached:
                del self._dialers[process]
                task = self._loop.create_task(dialer.stop())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        meeting = self.meeting
        if meeting is None:
            return
        for process, text in addresses.items():
            address = address_of(text)
            if address is None or process == meeting.own or process in self._dialers:
                continue
            dialer = self._dialers[process] = meeting.dialer(process, address, self._peers)
            dialer.start()

    # --- Names ------------------------------------------------------------------------------

    def _home(self, tenant: str, name: str) -> RaftGroup:
        return home_group(self._process.home_groups, tenant, name)

    def _is_known(self, kind: str, tenant: str, name: str) -> bool:
        topology = self._process.topology
        if kind == "topic":
            return (tenant, name) in topology.topics
        return topology.router_options(tenant, name) is not None

    def _conflict(self, kind: str, tenant: str, name: str) -> None:
        """A leader says that another has a name: nobody has been told here that it is made, or
        whoever was loses it.
        """
        self.names.conflict(kind, tenant, name)
        self._process.local.give_up(kind, tenant, name)

    # --- local_definitions.Heard ------------------------------------------------------------

    def changed(self, *keys: Key) -> None:
        """Things that live here have come, changed or gone."""
        self.announcer.changed(*keys)
        for key in keys:
            if len(key) == 3 and key[0] != "watch" and not self._is_known(*key):
                self.remote_memory.show_others(*key)

    def route_count_changed(self, by: int) -> None:
        """So many more routes live here."""
        self.announcer.route_count_changed(by)

    def check_room(self) -> None:
        """Raises KernelError LIMIT_EXCEEDED if one more cannot be told of."""
        self.announcer.check_room()

    def has_router(self, tenant: str, name: str) -> bool:
        """Whether a router lives in the memory of another process, which has told of it."""
        return (tenant, name) in self.remote_memory.routers

    async def taken(self) -> None:
        """Return once the others have taken what has changed until now."""
        await self.announcer.taken()

    # --- Changes ----------------------------------------------------------------------------

    async def administer(self, change: Administration) -> object:
        """Make a change of something that lives in the memory of a gateway: there."""
        group = self.remote_memory.lives_in(change)
        if group is not None:
            return await self.remote_memory.administer(group, change)
        try:
            return await self._process.local.administer(change)
        except KernelError as error:
            group = self.remote_memory.lives_in(change)
            if error.code is not Code.ALREADY_EXISTS or group is None:
                raise
        return await self.remote_memory.administer(group, change)  # another was quicker


class _Peers:
    """`rpc.channel.Handler` of the gateways that were dialled."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def opened(self, channel: Channel, peer: Hello) -> None:
        """One can be reached."""
        self._mesh.opened(channel, peer)

    def closed(self, channel: Channel, reason: str) -> None:
        """It cannot any more."""
        self._mesh.closed(channel)
        if channel.was_open:
            self._mesh.stream_service.closed(channel)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """It sends messages, or consumes."""
        if method == wire.FRAME:
            self._mesh.inboxes.frame(channel, payload)
        elif channel.version >= wire.STREAMS_SINCE:
            self._mesh.stream_service.told(channel, method, payload)
        elif method not in wire.CONSUMERS_OF_1:
            raise RpcError(f"method {method} is not told by a gateway of an older version")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """It asks something."""
        if method in wire.CONSUMERS_OF_1 and channel.version < wire.STREAMS_SINCE:
            message = "the gateway of the topic is newer than this one: consume from it there"
            reply(KernelError(Code.UNAVAILABLE, message))
        elif method == wire.QUESTION and channel.version >= wire.QUESTIONS_SINCE:
            self._mesh.questions.question(payload, reply)
        else:
            self._mesh.inboxes.question(method, payload, reply)
