"""Questions to all other gateways of the cluster: about what each of them alone knows, such as who
is connected to it.

    ask -> QUESTION (kind, bytes) to each gateway that stores hear -> who serves that kind there
        -> answers, one at a time as they come                     -> who gave none, and why

Nothing of it is stored anywhere. Who may ask what is decided by the gateway that asks: all that
have proved themselves to be gateways of the cluster are believed.

Bounds: ASKED_BYTES_MAX and ANSWER_BYTES_MAX of one question, ANSWERS_MAX that are being answered at
once; whoever asks says how long it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ...common.errors import Code, KernelError
from ...rpc.channel import Reply
from ...rpc.frame import RpcError
from ..leader_calls.call_wire import WireError, decode
from . import mesh_wire as wire
from .remote_memory import RemoteMemory

ASKED_BYTES_MAX = 64 * 1024
"""Of what is asked: some names, and the place in an order."""

ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Of one answer: a thousand rows of long names, and some 10 ms of each end's loop."""

ANSWERS_MAX = 32
"""Questions of others that are being answered at once; one more is refused with BUSY."""

Answerer = Callable[[bytes], Awaitable[bytes]]
"""Answers a question of its kind. Raises KernelError."""


class Silent(msgspec.Struct, frozen=True):
    """A gateway that has not answered."""

    gateway: str
    """Where other gateways reach it, HOST:PORT; the id of its process where that is not known."""
    reason: str


class Questions:
    """Asks the other gateways, and answers them. Belongs to the event loop."""

    def __init__(self, memory: RemoteMemory, met: Callable[[], Mapping[str, str]]) -> None:
        """`memory`: which gateways have told something here, by whose connections they are asked.
        `met()`: addresses of all other gateways that stores hear, by the id of the process.
        """
        self._memory = memory
        self._met = met
        self._answerers: dict[str, Answerer] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Questions refused at ANSWERS_MAX since this process began."""

    async def stop(self) -> None:
        """Answer nothing more."""
        self._answerers.clear()
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def serve(self, kind: str, answerer: Answerer) -> None:
        """Answer questions of a kind from now on."""
        self._answerers[kind] = answerer

    # --- Asking -----------------------------------------------------------------------------

    async def ask(
        self, kind: str, asked: bytes, within_s: float, heard: Callable[[bytes], None]
    ) -> list[Silent]:
        """Ask every other gateway; `heard` is told each answer when it has come, and raises
        KernelError for one that is none. Returns after at most `within_s` who has not answered, in
        the order of their names. KernelError TOO_LARGE.
        """
        if len(asked) > ASKED_BYTES_MAX:
            raise KernelError(Code.TOO_LARGE, f"{ASKED_BYTES_MAX} bytes are the most of a question")
        parts = wire.encode(wire.Question(kind, asked))

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

    # --- Answering --------------------------------------------------------------------------

    def question(self, payload: bytes, reply: Reply) -> None:
        """Another gateway asks. Raises RpcError."""
        try:
            asked = decode(wire.questions, payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        if len(self._answering) >= ANSWERS_MAX:
            self.refused += 1
            reply(KernelError(Code.BUSY, f"it is answering {ANSWERS_MAX} questions"))
            return
        answerer = self._answerers.get(asked.kind)
        if answerer is None:
            reply(KernelError(Code.UNAVAILABLE, "it does not answer such questions, or not yet"))
            return
        task = asyncio.get_running_loop().create_task(_answer(answerer, asked.asked, reply))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


async def _answer(answerer: Answerer, asked: bytes, reply: Reply) -> None:
    try:
        answer = await answerer(asked)
    except KernelError as error:
        reply(error)
        return
    if len(answer) > ANSWER_BYTES_MAX:
        message = f"its answer has over {ANSWER_BYTES_MAX} bytes: ask for fewer rows"
        reply(KernelError(Code.TOO_LARGE, message))
        return
    reply([answer])
