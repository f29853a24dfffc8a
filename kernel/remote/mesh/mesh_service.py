"""The store's side of the mesh: gateways tell what lives in their memory, take names for it, and
learn of each other.

What they tell is of use here too: wills and dead letters of a store reach transient topics and live
routes of gateways (`remote_memory.RemoteMemory`).
"""

from __future__ import annotations

from ...common.errors import KernelError
from ...in_process.local_client import LocalClient
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.node import Store
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from . import mesh_wire as wire
from .name_registry import NameRegistry
from .remote_memory import RemoteMemory

_KINDS = frozenset({"topic", "router"})


class MeshService:
    """Serves names and memory of gateways at a store (`sections.Section`)."""

    methods = calls.MESH

    def __init__(self, store: Store, client: LocalClient) -> None:
        appeared = client.dead_letters.topic_appeared
        self.remote_memory = RemoteMemory(client.topology, client.clock, client.random, appeared)
        client.remote_memory = self.remote_memory
        self.names = NameRegistry(store, self.remote_memory, client.administrator)
        client.administrator.is_reserved = self.names.is_reserved
        self._remote_processes: dict[Channel, Hello] = {}
        self._told: set[Channel] = set()
        """Those of them that want to know of each other."""

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come."""
        self._remote_processes[channel] = peer
        self.names.opened(channel)
        self.remote_memory.opened(channel, peer)

    def closed(self, channel: Channel) -> None:
        """It has gone: the others hear that at once."""
        peer = self._remote_processes.pop(channel)
        self._told.discard(channel)
        self.names.closed(channel)
        self.remote_memory.closed(channel)
        if peer.address:
            self._meet()

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """RELEASE, LEFT, and what `RemoteMemory` is told."""
        try:
            if method == wire.RELEASE:
                self.names.release(channel, decode(wire.names, payload))
            elif method == wire.LEFT:
                self.names.left(channel, decode(wire.clients, payload))
            else:
                self.remote_memory.told(channel, method, payload)
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """RESERVE, NAME, and what `RemoteMemory` is told."""
        try:
            if method == wire.RESERVE:
                self._reserve(channel, decode(wire.names, payload), reply)
            elif method == wire.NAME:
                self.names.name(channel, decode(wire.several, payload), reply)
            else:
                self.remote_memory.called(channel, method, payload, reply)
                self._tell(channel)
        except WireError as error:
            raise RpcError(str(error)) from None
        except KernelError as error:
            reply(error)

    def _reserve(self, channel: Channel, asked: wire.Named, reply: Reply) -> None:
        if asked.kind not in _KINDS:
            raise RpcError(f"no kind of name: {asked.kind[:80]!r}")
        self.names.reserve(channel, asked)
        reply([])

    # --- Gateways that know of each other ---------------------------------------------------

    def _tell(self, channel: Channel) -> None:
        if channel not in self._told:
            self._told.add(channel)
            self._meet()

    def _meet(self) -> None:
        known = {
            peer.store: peer.address for peer in self._remote_processes.values() if peer.address
        }
        meeting = wire.encode(known)
        for channel in self._told:
            channel.cast(wire.MEET, meeting, control=True)
