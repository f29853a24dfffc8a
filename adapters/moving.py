"""Which connections go when clients are asked to use another gateway (`Adapter.move`): common to
all adapters, which differ only in how a client is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    Takers = Mapping[Hashable, int]
    """Consumers of one group, by the taker whose they are (`kernel.client.ReceiveSpec.taker`)."""

_Connection = TypeVar("_Connection")


def chosen(
    movable: Iterable[_Connection],
    amount: int,
    takers: Takers | None,
    taker_of: Callable[[_Connection], Hashable],
) -> Iterator[_Connection]:
    """So many of those that can be moved, one by one. `takers` given: those that have such
    consumers, together `amount` of them at most; a connection with more than are still wanted
    stays, or the same ones would go to and fro.
    """
    for each in movable:
        if amount <= 0:
            return
        has = 1 if takers is None else takers.get(taker_of(each), 0)
        if 0 < has <= amount:
            amount -= has
            yield each
