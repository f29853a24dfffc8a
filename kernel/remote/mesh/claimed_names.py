"""The names that this gateway takes: of transient topics and routers, and of its clients.

The leader of a name's home group says whose it is (`name_registry`). A transient topic or router is
the first one's: its name is reserved before it is made, and until every store knows of it. A
client's name is the newest connection's: whoever had it is told before the new one is answered, and
a leader that is new is told of all clients again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...common.ports import Clock
from ...rpc.channel import Reply
from ...subscribers.subscribing import home_of_client
from ..leader_calls.call_wire import WireError, decode
from ..leader_calls.claiming import Claiming
from ..leader_calls.leaders import RemoteLeaders
from . import mesh_wire as wire

RESERVE_MS = 3_000
"""A name that another has is asked for again until so much later: the other may just be gone, or
may be making a thing that this process has not heard of yet."""

AGAIN_SECONDS = 0.05


class Names:
    """The names that this gateway has taken, or asks for."""

    def __init__(
        self,
        leaders: RemoteLeaders,
        groups: Sequence[RaftGroup],
        clock: Clock,
        home: Callable[[str, str], RaftGroup],
        is_known: Callable[[str, str, str], bool],
        lose: Callable[[str, str], None],
    ) -> None:
        """`groups`: those that names have their home in. `home(tenant, name)` of a topic or router.
        `is_known(kind, tenant, name)`: whether look-ups show it. `lose(tenant, name)`: a client is
        another's now.
        """
        self._leaders = leaders
        self._groups = list(groups)
        self._clock = clock
        self._home = home
        self._is_known = is_known
        self._lose = lose
        self._conflicts: set[tuple[str, str, str]] = set()
        """Of the names that are being taken, those that another has, too."""
        self._taking: set[tuple[str, str, str]] = set()
        self._held: dict[RaftGroup, dict[tuple[str, str], tuple[int, str]]] = {}
        """(epoch, user) of the clients that end with their connection, by home, tenant and name."""
        self._opening: dict[tuple[str, str], int] = {}
        """Clients that are being told of, and the highest epoch that another has had since."""
        self._claiming = Claiming(self._claim_all)
        leaders.watch(self._leader_changed)

    async def stop(self) -> None:
        """Ask nothing more."""
        await self._claiming.stop()

    # --- Topics and routers -----------------------------------------------------------------

    @asynccontextmanager
    async def reserve(self, tenant: str, kind: str, name: str) -> AsyncIterator[None]:
        """Have the name of a "topic" or "router" for this process alone while the block runs.
        Raises KernelError: ALREADY_EXISTS; LIMIT_EXCEEDED; LOCKED, another has it, too;
        UNAVAILABLE.
        """
        group = self._home(tenant, name)
        asked = wire.encode(wire.Named(group, kind, tenant, name))
        await self._reserve(group, asked, (kind, tenant, name))
        key = kind, tenant, name
        self._taking.add(key)
        try:
            yield
            if key in self._conflicts:
                raise KernelError(Code.LOCKED, f"another gateway has the {kind} {name}")
        finally:
            self._taking.discard(key)
            self._conflicts.discard(key)
            channel = self._leaders.channel_to(group)
            if channel is not None:
                channel.cast(wire.RELEASE, asked, control=True)

    async def _reserve(
        self, group: RaftGroup, asked: Sequence[bytes], key: tuple[str, str, str]
    ) -> None:
        deadline_ms = self._clock.monotonic_ms() + RESERVE_MS
        while True:
            try:
                await self._leaders.ask(group, wire.RESERVE, asked, _nothing)
                return
            except KernelError as error:
                late = self._clock.monotonic_ms() >= deadline_ms
                if error.code is not Code.ALREADY_EXISTS or late or self._is_known(*key):
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    def conflict(self, kind: str, tenant: str, name: str) -> None:
        """A leader has told that another has a name, too."""
        key = kind, tenant, name
        if key in self._taking:
            self._conflicts.add(key)

    # --- Clients ----------------------------------------------------------------------------

    async def open(self, tenant: str, name: str, user: str, *, holds: bool) -> None:
        """A client has connected here: return once its connection elsewhere has been told, if it
        has one that ends with its connection. `holds`: this one does. Raises KernelError:
        SESSION_FENCED, it has connected elsewhere meanwhile; NOT_ALLOWED, it is another user's;
        UNAVAILABLE.
        """
        key = tenant, name
        group = home_of_client(self._groups, tenant, name)
        asked = wire.encode(wire.ProcessClients(group, holds, [(tenant, name, 0)], [user]))
        self._opening[key] = 0
        try:
            (epoch,) = await self._leaders.ask(group, wire.NAME, asked, partial(_epochs, 1))
            newer = self._opening[key]
        finally:
            del self._opening[key]
        if newer > epoch:
            raise KernelError(Code.SESSION_FENCED, "the client has connected elsewhere meanwhile")
        held = self._held.setdefault(group, {})
        held.pop(key, None)
        if holds:
            held[key] = epoch, user

    async def drop(self, tenant: str, name: str) -> bool:
        """Have the gateway told that holds a client, whosever it is; whether one does."""
        group = home_of_client(self._groups, tenant, name)
        asked = wire.encode(wire.ProcessClients(group, False, [(tenant, name, 0)], drops=True))
        (held,) = await self._leaders.ask(group, wire.NAME, asked, partial(_epochs, 1))
        return bool(held)

    def holds(self, tenant: str, name: str) -> bool:
        """Whether a client that was held still is: it has not connected elsewhere since."""
        group = home_of_client(self._groups, tenant, name)
        return (tenant, name) in self._held.get(group, {})

    def close(self, tenant: str, name: str) -> None:
        """A client that was held has gone, or need not be held. Idempotent."""
        group = home_of_client(self._groups, tenant, name)
        epoch, _ = self._held.get(group, {}).pop((tenant, name), (0, ""))
        channel = self._leaders.channel_to(group)
        if epoch and channel is not None:
            left = wire.Client(group, tenant, name, epoch)
            channel.cast(wire.LEFT, wire.encode(left), control=True)

    def taken(self, payload: bytes, reply: Reply) -> None:
        """TAKEN: a client has connected elsewhere. Raises WireError."""
        client = decode(wire.clients, payload)
        self._taken(RaftGroup(client.group), client.tenant, client.name, client.epoch)
        reply([])

    def _taken(self, group: RaftGroup, tenant: str, name: str, epoch: int) -> None:
        key = tenant, name
        if key in self._opening:
            self._opening[key] = max(self._opening[key], epoch)
        held = self._held.get(group, {})
        if key in held and held[key][0] < epoch:
            del held[key]
            self._lose(tenant, name)

    # --- Changes of leaders -----------------------------------------------------------------

    def _leader_changed(self, group: RaftGroup) -> None:
        if self._held.get(group) and self._leaders.channel_to(group) is not None:
            self._claiming.begin(group)

    async def _claim_all(self, group: RaftGroup) -> None:
        """Tell a leader of all clients that are held."""
        all_held = list(self._held[group].items())
        for start in range(0, len(all_held), wire.NAMES_MAX):
            page = all_held[start : start + wire.NAMES_MAX]
            some = [(tenant, name, epoch) for (tenant, name), (epoch, _) in page]
            users = [user for _, (_, user) in page]
            asked = wire.encode(wire.ProcessClients(group, True, some, users))
            decode = partial(_epochs, len(some))
            epochs = await self._leaders.ask(group, wire.NAME, asked, decode)
            for (tenant, name, epoch), known in zip(some, epochs, strict=True):
                if not known:
                    self._taken(group, tenant, name, epoch + 1)


def _nothing(_answer: bytes) -> None:
    """What a reservation is answered with."""


def _epochs(count: int, payload: bytes) -> list[int]:
    epochs = decode(wire.epochs, payload)
    if len(epochs) != count:
        raise WireError(f"{len(epochs)} epochs of {count} clients")
    return epochs
