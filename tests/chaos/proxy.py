"""The network between the processes: one port in front of each store, and directions that are cut.

    python -m tests.chaos.proxy {"store1": [FRONT, BACK], ...}

Commands come a line of JSON each and are answered by a line:

    {"pids": {"store1": 4711, ...}}     who is who: a dialler is known by the process of its socket
    {"cut": [["store1", "store2"]]}     what the first says does not reach the second; all others do

Bytes that are cut off wait, as TCP would send them again; so does the end of a connection. New
connections are taken and hear nothing, as if every packet were lost. A dialler that nobody knows is
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

CHUNK_BYTES = 1 << 16

Direction = tuple[str, str]


class Network:
    """Which directions are cut."""

    def __init__(self) -> None:
        self._cut: set[Direction] = set()
        self._changed = asyncio.Event()

    def cut(self, directions: set[Direction]) -> None:
        """These, and no others."""
        self._cut = directions
        self._changed.set()
        self._changed = asyncio.Event()

    async def passable(self, direction: Direction) -> None:
        """Wait until bytes of a direction get through."""
        while direction in self._cut:
            await self._changed.wait()


class Front:
    """A port in front of a process."""

    def __init__(
        self, name: str, back: int, network: Network, name_of: Callable[[int], str | None]
    ) -> None:
        """`name_of`: whose socket has a local port, for sockets of this machine."""
        self._name = name
        self._back = back
        self._network = network
        self._name_of = name_of
        self.connections = 0

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection has come: carry it to its end."""
        self.connections += 1
        try:
            await self._carry(reader, writer)
        finally:
            self.connections -= 1

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialler = self._name_of(writer.get_extra_info("peername")[1])
        if dialler is None:
            writer.transport.abort()
            return
        network = self._network
        there, back = (dialler, self._name), (self._name, dialler)
        await network.passable(there)
        try:
            other = await asyncio.open_connection("127.0.0.1", self._back)
        except OSError:
            await network.passable(back)
            writer.transport.abort()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump(reader, other[1], network, there))
            tasks.create_task(pump(other[0], writer, network, back))


async def pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    network: Network,
    direction: Direction,
) -> None:
    """Carry bytes until either end is gone, and then its end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            await network.passable(direction)
            writer.write(data)
            await writer.drain()
    await network.passable(direction)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def inode_of(port: int, table: str) -> str | None:
    """The inode of the connected socket with a local port, in the text of /proc/net/tcp."""
    wanted = f"{port:04X}"
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[1].rpartition(":")[2] == wanted and words[3] == "01":
            return words[9]
    return None


def owner(port: int, pids: dict[str, int]) -> str | None:
    """Which of the processes has the socket with a local port."""
    inode = inode_of(port, Path("/proc/net/tcp").read_text())
    for name, pid in pids.items():
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{descriptor}") == f"socket:[{inode}]":
                        return name
    return None


async def main(fronts: dict[str, tuple[int, int]]) -> None:
    network, pids = Network(), dict[str, int]()
    servers = []
    for name, (port, back) in fronts.items():
        front = Front(name, back, network, lambda port: owner(port, pids))
        servers.append(await asyncio.start_server(front.accepted, "127.0.0.1", port))
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)  # noqa: T201 - who started it waits for this
    while line := await commands.readline():
        command = json.loads(line)
        pids.update(command.get("pids", {}))
        if "cut" in command:
            network.cut({(source, target) for source, target in command["cut"]})
        print("done", flush=True)  # noqa: T201 - as above
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
