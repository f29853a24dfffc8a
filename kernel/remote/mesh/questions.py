"""Questions to all other gateways of the cluster: about what each of them alone knows, such as who
is connected to it.

    ask -> QUESTION (kind, bytes) to each gateway that stores hear -> who serves that kind there
        -> answers, one at a time as they come                     -> who gave none, and why

Nothing of it is stored anywhere. Who may ask what is decided by the gateway that asks: all that
have proved themselves to be gateways of the cluster are believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from ...common.errors import KernelError
from ..leader_calls.answering import Answering, question_of
from . import mesh_wire as wire
from .remote_memory import RemoteMemory


class Silent(msgspec.Struct, frozen=True):
    """A gateway that has not answered."""

    gateway: str
    """Where other gateways reach it, HOST:PORT; the id of its process where that is not known."""
    reason: str


class Questions(Answering):
    """Asks the other gateways, and answers them. Belongs to the event loop."""

    def __init__(self, memory: RemoteMemory, met: Callable[[], Mapping[str, str]]) -> None:
        """`memory`: which gateways have told something here, by whose connections they are asked.
        `met()`: addresses of all other gateways that stores hear, by the id of the process.
        """
        super().__init__()
        self._memory = memory
        self._met = met

    async def ask(
        self, kind: str, asked: bytes, within_s: float, heard: Callable[[bytes], None]
    ) -> list[Silent]:
        """Ask every other gateway; `heard` is told each answer when it has come, and raises
        KernelError for one that is none. Returns after at most `within_s` who has not answered, in
        the order of their names. KernelError TOO_LARGE.
        """
        parts = question_of(kind, asked)

        async def one(process: str) -> str:
            """Why a gateway has not answered; empty: it has."""
            remote = self._memory.remote_process((0, process))
            if remote is None or remote.channel is None:
                return "it is not connected to this gateway now"
            if remote.channel.version < wire.QUESTIONS_SINCE:
                return "it is of an older version"
            try:
                heard(await remote.ask(wire.QUESTION, parts, int(within_s * 1_000)))
            except KernelError as error:
                return error.message
            return ""

        addresses = self._met()
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(one(each)): each for each in addresses}
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks, timeout=within_s)
        finally:
            late = {task for task in tasks if task.cancel()}
        reasons = {
            addresses[process] or process: (
                f"it has not answered within {within_s:g} s" if task in late else task.result()
            )
            for task, process in tasks.items()
        }
        return [Silent(each, reason) for each, reason in sorted(reasons.items()) if reason]
