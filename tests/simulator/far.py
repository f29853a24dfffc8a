"""A world seen through a hostile client."""

from __future__ import annotations

from kernel.common.ports import Clock
from tests.simulator.hostile import HostileClient
from tests.simulator.peer import Peer
from tests.simulator.world import World


class Far:
    """What a gateway far from the store has of it."""

    def __init__(self, world: World, seed: int) -> None:
        self.client = HostileClient(world.client, world.clock, seed)
        self.clock: Clock = world.clock
        self.own = self.peer("far")

    def peer(self, name: str = "peer") -> Peer:
        """A new connection to the store."""
        return Peer(self.client, self.clock, name)
