"""What lives in the memory of other processes, as the client beside a store asks for it: a port.

`remote.mesh.remote_memory` is behind it where gateways are served; else there is nothing elsewhere.
"""

from __future__ import annotations

from typing import Protocol

from ..api.changes import Administration
from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..requests.leader import Leader


class Elsewhere(Protocol):
    """What lives in the memory of other processes: a port."""

    def leader(self, group: RaftGroup) -> Leader:
        """The leader of another process's group."""

    def lives_in(self, change: Administration) -> RaftGroup | None:
        """Group of the process in whose memory a change is to be made; None: in none of them."""

    def keeps(self, change: Administration) -> bool:
        """Whether what is to be changed lives in a process that has it to itself."""

    async def administer(self, group: RaftGroup, change: Administration) -> object:
        """Have a change made where it lives. Raises KernelError."""

    def each_second(self) -> None:
        """Give up processes that were not heard for too long."""

    def stop(self) -> None:
        """Nothing more is sent."""


class NothingElsewhere:
    """`Elsewhere` of a store that serves no gateway."""

    def leader(self, group: RaftGroup) -> Leader:
        """Nobody is there. Raises KernelError NOT_FOUND."""
        raise KernelError(Code.NOT_FOUND, "no other process is known")

    def lives_in(self, change: Administration) -> RaftGroup | None:
        """None: there is no other process."""
        return None

    def keeps(self, change: Administration) -> bool:
        """False: there is no other process."""
        return False

    async def administer(self, group: RaftGroup, change: Administration) -> object:
        """Nobody is there. Raises KernelError NOT_FOUND."""
        raise KernelError(Code.NOT_FOUND, "no other process is known")

    def each_second(self) -> None:
        """Nothing to give up."""

    def stop(self) -> None:
        """Nothing to stop."""
