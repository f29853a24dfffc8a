"""Cuts all stores of a cluster at one moment, for a backup: whoever asks for it does that (ADR 34).

    PREPARE -> HOLD -> TAKE -> RELEASE -> KEEP     each of all stores, before the next one
          any store that cannot, or has not held until RELEASE: DROP, of all stores

Publishers wait from the first HOLD to the last RELEASE: two round trips to the slowest store. A
store lets go by itself after `HOLD_MS`, so that nobody waits longer if who asks is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from ..common.errors import Code, KernelError
from .messages import Cut, CutMembers, CutStep, CutTold

Ask = Callable[[int, Cut], Awaitable[CutTold]]
"""Puts a question to a store by its number. Raises KernelError."""


async def cut_stores(ask: Ask, stores: Collection[int], without: Collection[int], cut: int) -> None:
    """Have all `stores` pin what they have at one moment, under the number `cut`; `without`: stores
    of the cluster that are left out, since they are down. When this returns every one of them has
    its files linked.

    Raises KernelError: UNAVAILABLE (a store does not answer, cannot, or has not held: nothing is
    pinned then, and it may be tried again); NOT_ALLOWED (who belongs to the cluster is changing, or
    those who are left have no majority of a group); IN_USE, BUSY of one of them.
    """

    async def step(kind: CutStep, asked: Iterable[int] = ()) -> dict[int, CutTold]:
        word = Cut(cut, kind, list(asked))
        found = await asyncio.gather(*(ask(each, word) for each in stores), return_exceptions=True)
        told: dict[int, CutTold] = {}
        for number, answer in zip(stores, found, strict=True):
            if isinstance(answer, KernelError):
                raise KernelError(answer.code, f"store {number}: {answer.message}")
            if isinstance(answer, BaseException):
                raise answer
            told[number] = answer
        return told

    try:
        await step(CutStep.PREPARE)
        held = await step(CutStep.HOLD, stores)
        check_members(held, stores, without)
        await step(CutStep.TAKE)
        _check_held(await step(CutStep.RELEASE))
        await step(CutStep.KEEP)
    except BaseException:
        await _drop(ask, stores, cut)
        raise


async def _drop(ask: Ask, stores: Collection[int], cut: int) -> None:
    """Who does not hear it lets go by itself: of the hold, and of the files."""
    word = Cut(cut, CutStep.DROP)
    await asyncio.gather(*(ask(each, word) for each in stores), return_exceptions=True)


def _check_held(told: Mapping[int, CutTold]) -> None:
    late = sorted(number for number, each in told.items() if not each.held)
    if late:
        text = f"stores {late} went on before all were cut: nothing is kept, try again"
        raise KernelError(Code.UNAVAILABLE, text)


def check_members(
    told: Mapping[int, CutTold], stores: Collection[int], without: Collection[int]
) -> None:
    """Whether nobody else can decide anything while these stores hold. If all stores of the cluster
    do, nobody can. Else they have to be a majority of the voters of each group, as each of them
    knows these; while members change that is not looked into. Raises KernelError NOT_ALLOWED.
    """
    for number, each in told.items():
        if set(each.register) != {*stores, *without}:
            text = f"store {number}: who belongs to the cluster is changing: try again"
            raise KernelError(Code.NOT_ALLOWED, text)
        for group in each.groups if without else ():
            if not _is_majority(stores, group):
                text = (
                    f"without stores {sorted(without)} nobody can tell what group {group.group} has"
                    " decided: too few of its voters are left, or they are changing"
                )
                raise KernelError(Code.NOT_ALLOWED, text)


def _is_majority(stores: Collection[int], group: CutMembers) -> bool:
    known = set(stores) & set(group.voters)
    return not group.outgoing and 2 * len(known) > len(group.voters)


def cut_of(records: Sequence[int], without: Collection[int]) -> list[int]:
    """Stores to be cut. Raises KernelError: NOT_FOUND (one that is to be left out is none);
    NOT_ALLOWED (there are none: this store has not been let in, or all are to be left out).
    """
    unknown = sorted(set(without) - set(records))
    if unknown:
        raise KernelError(Code.NOT_FOUND, f"there are no stores {unknown} in the cluster")
    stores = sorted(set(records) - set(without))
    if not stores:
        raise KernelError(Code.NOT_ALLOWED, "there is no store of a cluster here that could be cut")
    return stores
