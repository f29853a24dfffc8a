"""Questions of gateways to the stores: about what each store alone knows, such as what it has
counted (`leader_calls.answering`). Nothing of it is stored anywhere. Who may ask what is decided by
the gateway that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..common.errors import KernelError
from ..rpc.channel import Channel, Reply
from ..rpc.frame import RpcError
from ..rpc.handshake import Hello
from .leader_calls.answering import Answering, question_of
from .leader_calls.call_numbers import STORE_QUESTIONS
from .leader_calls.leaders import RemoteLeaders

QUESTION = STORE_QUESTIONS[0]


class StoreQuestions(Answering):
    """A store's end. `sections.Section`."""

    methods = STORE_QUESTIONS

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come."""

    def closed(self, channel: Channel) -> None:
        """It is gone: an answer to it goes nowhere."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Nothing is told."""
        raise RpcError(f"method {method} is not told to stores")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """QUESTION. Raises RpcError."""
        if method != QUESTION:
            raise RpcError(f"method {method} is not called")
        self.question(payload, reply)


async def ask_stores(
    leaders: RemoteLeaders,
    kind: str,
    asked: bytes,
    within_s: float,
    heard: Callable[[int, bytes], None],
) -> dict[int, str]:
    """Ask every store that is dialled; `heard(number, answer)` is told each answer when it has
    come, and raises KernelError for one that is none. Returns after at most `within_s` which have
    not answered, with the reason of each. Raises KernelError TOO_LARGE.
    """
    parts = question_of(kind, asked)

    async def one(number: int) -> str:
        """Why a store has not answered; empty: it has."""
        try:
            async with asyncio.timeout(within_s):
                heard(number, await leaders.ask_node(number, QUESTION, parts, bytes))
        except KernelError as error:
            return leaders.last_error(number) or error.message
        except TimeoutError:
            return f"it has not answered within {within_s:g} s"
        return ""

    numbers = leaders.nodes
    reasons = await asyncio.gather(*map(one, numbers))
    return {number: reason for number, reason in zip(numbers, reasons, strict=True) if reason}
