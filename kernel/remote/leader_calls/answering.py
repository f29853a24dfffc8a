"""Questions that are kinds of bytes: whoever serves a kind reads and answers them. The form of one
is known to its kind alone, so that a process may be asked what the kernel knows nothing of.

Bounds: ASKED_BYTES_MAX and ANSWER_BYTES_MAX of one question, ANSWERS_MAX that are being answered at
once; whoever asks says how long it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from ...common.errors import Code, KernelError
from ...rpc.channel import Reply
from ...rpc.frame import RpcError
from .call_numbers import Name
from .call_wire import WireError, decode

ASKED_BYTES_MAX = 64 * 1024
"""Of what is asked: some names, and the place in an order."""

ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Of one answer: a thousand rows of long names, and some 10 ms of each end's loop."""

ANSWERS_MAX = 32
"""Questions of others that are being answered at once; one more is refused with BUSY."""

Answerer = Callable[[bytes], Awaitable[bytes]]
"""Answers a question of its kind. Raises KernelError."""


class Question(msgspec.Struct, frozen=True, array_like=True):
    """What is asked, in a form that only the kind of it says."""

    kind: Name
    asked: bytes


_questions = msgspec.msgpack.Decoder(Question)
_encode = msgspec.msgpack.Encoder().encode


def question_of(kind: str, asked: bytes) -> list[bytes]:
    """A question as it is sent. Raises KernelError TOO_LARGE."""
    if len(asked) > ASKED_BYTES_MAX:
        raise KernelError(Code.TOO_LARGE, f"{ASKED_BYTES_MAX} bytes are the most of a question")
    return [_encode(Question(kind, asked))]


class Answering:
    """What one process answers. Belongs to the event loop."""

    def __init__(self) -> None:
        self._answerers: dict[str, Answerer] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Questions refused at ANSWERS_MAX since this process began."""

    def serve(self, kind: str, answerer: Answerer) -> None:
        """Answer questions of a kind from now on."""
        self._answerers[kind] = answerer

    async def stop(self) -> None:
        """Answer nothing more."""
        self._answerers.clear()
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def question(self, payload: bytes, reply: Reply) -> None:
        """Another process asks. Raises RpcError."""
        try:
            asked = decode(_questions, payload)
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
