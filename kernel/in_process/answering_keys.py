"""The keys that a sealed queue has unsettled, asked of the store that leads it (ADR 31)."""

from __future__ import annotations

import asyncio

from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..requests.peer_stores import KeysAnswer, KeysQuestion
from ..store.node import Store
from ..store.replicas.key_lists import Done

ANSWER_S = 5.0
"""An answer has come after some two seconds (`key_lists.WAIT_MS`)."""


def answer_keys(store: Store, group: RaftGroup, question: KeysQuestion, done: Done) -> None:
    """Call `done` with the answer, perhaps later; NOT_LEADER if another store leads the group, or
    may lead it by now: there a consumer group that was deleted and made again has settled nothing.
    """
    if group not in store.groups or store.serving(group) is None:
        leads = store.standing(group)[1] if group in store.groups else 0
        done(KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", leads))
        return
    replica = store.replica(group)
    if not replica.may_hand_out():
        done(KernelError(Code.NOT_LEADER, f"another node may lead group {group} by now"))
        return
    term, _ = store.standing(group)
    replica.key_lists.ask(question, term, done)


async def keys_here(store: Store, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
    """The answer of this store. Raises KernelError."""
    future: asyncio.Future[KeysAnswer] = asyncio.get_running_loop().create_future()

    def done(answer: KeysAnswer | KernelError) -> None:
        if future.done():
            return
        if isinstance(answer, KernelError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    answer_keys(store, group, question, done)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await future
    except TimeoutError:
        raise KernelError(Code.TIMEOUT, "no answer: the store has let go of the group") from None
