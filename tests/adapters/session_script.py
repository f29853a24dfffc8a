"""What the transcripts of the protocols share: an adapter over a store on a simulated disk, whose
clients' bytes (of RocketMQ: calls) are handed over without sockets, in virtual time.

    a -> ...       what client `a` sends, in the words of the protocol's script.py; a client without
                   a name is `->`
    wait T         time passes
    a drop         the connection breaks (of a protocol whose connections are ours)
    restart        the server ends in order and starts again; connections break
    crash          the power of the server fails, and it starts again on what its disk has

Behind each command all comes to rest; then everything that clients were sent is printed.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from adapters.base import ListenerAddress
from adapters.transport import StreamProtocol
from tests.simulator.world import World
from tests.transcripts import milliseconds, play

REST_S = 0.05
"""Virtual time behind each command: settlements that nobody waits for are written after 5 ms, and a
message waits for 20 ms at most for a consumer who has room."""

LISTENER = ListenerAddress("tcp", "127.0.0.1", 0)

_SENDING = re.compile(r"(?:(\w+) )?-> (.*)")


class Pipe(asyncio.Transport):
    """The server's end of a connection: keeps what is written."""

    def __init__(self, protocol: StreamProtocol) -> None:
        super().__init__({"peername": ("192.0.2.1", 5000)})
        self._protocol = protocol
        self._written = bytearray()
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As much as anybody writes."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._protocol.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """How much is read at once makes no difference: bytes are handed over here as they come."""

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        raise OSError("it closes at once instead of lingering")

    def taken(self) -> bytes:
        """What was written since the last call."""
        data = bytes(self._written)
        self._written.clear()
        return data


class Served(Protocol):
    """The adapter, as far as it is served here."""

    async def start(self) -> None:
        """Begin to keep time."""

    async def stop(self) -> None:
        """End, and every connection with it."""


AdapterT = TypeVar("AdapterT", bound=Served)
ClientT = TypeVar("ClientT")


@dataclass
class Connected(Generic[ClientT]):
    """A client's connection."""

    client: ClientT
    protocol: StreamProtocol
    pipe: Pipe
    is_told: bool = False
    """That the server has closed it."""


class AdapterScript(ABC, Generic[AdapterT]):
    """The commands of one transcript, however its clients' calls reach the adapter."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.adapter: AdapterT | None = None

    # --- Of each protocol -------------------------------------------------------------------

    @abstractmethod
    def serving(self) -> AdapterT:
        """An adapter over the store that runs."""

    @abstractmethod
    async def send(self, name: str, text: str) -> None:
        """A client says something; the first time it connects."""

    @abstractmethod
    def heard(self) -> Iterable[str]:
        """What clients were sent since the last call, a line each."""

    @abstractmethod
    def disconnected(self) -> None:
        """The server has ended: so have all connections."""

    # --- Commands ---------------------------------------------------------------------------

    async def run(self, command: str) -> list[str]:
        """Carry out a command; what clients were sent once all has come to rest."""
        sending = _SENDING.fullmatch(command)
        if sending is not None:
            await self.send(sending[1] or "", sending[2])
        else:
            await self.act(command.split())
        await self.rest()
        return list(self.heard())

    async def ended(self, playing: Coroutine[object, object, str]) -> str:
        """What is played, and then the end of the adapter."""
        try:
            return await playing
        finally:
            await self._stop()

    async def act(self, words: list[str]) -> None:
        """A command that no client says."""
        match words:
            case ["wait", time]:
                await asyncio.sleep(milliseconds(time) / 1_000)
            case ["restart"]:
                await self._stop()
                await self.world.restart()
            case ["crash"]:
                self.world.power_off()
                await self._stop()
                await self.world.start()
            case _:
                raise ValueError(f"no such command: {' '.join(words)}")

    async def rest(self) -> None:
        """Return when nothing is left to do."""
        await asyncio.sleep(REST_S)
        await self.world.settle_down()

    async def served(self) -> AdapterT:
        """The adapter, which starts when it is first asked for."""
        if self.adapter is None:
            self.adapter = self.serving()
            await self.adapter.start()
        return self.adapter

    async def _stop(self) -> None:
        self.disconnected()
        if self.adapter is not None:
            await self.adapter.stop()
            self.adapter = None


class SessionScript(AdapterScript[AdapterT], Generic[AdapterT, ClientT]):
    """The commands over connections that are ours. A protocol says how it is served (with LISTENER
    as its one listener), spelled and read.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.connected: dict[str, Connected[ClientT]] = {}

    # --- Of each protocol -------------------------------------------------------------------

    @abstractmethod
    def accepted(self, adapter: AdapterT) -> StreamProtocol:
        """A connection that has come by LISTENER."""

    @abstractmethod
    def client(self) -> ClientT:
        """What a client has to keep."""

    @abstractmethod
    def sent(self, client: ClientT, text: str) -> bytes:
        """What a client sends."""

    @abstractmethod
    def read(self, client: ClientT, data: bytes) -> Iterable[str]:
        """What it reads, a line each."""

    # --- Commands ---------------------------------------------------------------------------

    async def act(self, words: list[str]) -> None:
        """A command that no client says."""
        match words:
            case [name, "drop"]:
                self._end(self.connected.pop(name))
            case _:
                await super().act(words)

    async def send(self, name: str, text: str) -> None:
        found = self.connected.get(name)
        if found is None or found.pipe.is_closed:
            found = await self.connect(name)
        found.protocol.data_received(self.sent(found.client, text))

    def heard(self) -> Iterable[str]:
        for name, each in self.connected.items():
            start = f"{name} <- " if name else "<- "
            for line in self.read(each.client, each.pipe.taken()):
                yield start + line
            if each.pipe.is_closed and not each.is_told:
                each.is_told = True
                yield start + "(closed)"

    def disconnected(self) -> None:
        self.connected.clear()

    async def connect(self, name: str) -> Connected[ClientT]:
        """A client's new connection."""
        protocol = self.accepted(await self.served())
        pipe = Pipe(protocol)
        protocol.connection_made(pipe)
        found = self.connected[name] = Connected(self.client(), protocol, pipe)
        return found

    def _end(self, connected: Connected[ClientT]) -> None:
        if not connected.pipe.is_closed:
            connected.pipe.is_closed = True
            connected.protocol.connection_lost(None)


def play_sessions(path: Path, script: type[AdapterScript[Any]]) -> None:
    """Play a transcript in a world of its own (`tests.transcripts.play`)."""
    with World() as world:
        sessions = script(world)
        play(path, sessions.run, lambda playing: world.run(sessions.ended(playing)))


def shown(**fields: object) -> str:
    """`name=value` for each field that has one; flags as 0 and 1."""
    return " ".join(
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in fields.items()
        if value is not None
    )


def quoted(body: bytes) -> str:
    """A body as text, in quotes."""
    return f'"{body.decode("utf-8", "backslashreplace")}"'
