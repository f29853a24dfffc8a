"""The order in which connections are listed, and pages of it that several gateways fill. Pure.

    each gateway: its first `limit + 1` behind the cursor -> merged -> the first `limit` of all

What a page leaves out is larger than all that it has, at every gateway: so pages that follow each
other by their cursors have each connection once, if none comes or goes meanwhile.
"""

from __future__ import annotations

import base64
import heapq
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from kernel.common.errors import UNDECODABLE, Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = str | float | bool
"""Of a column. All of one column are of one kind."""

Place = tuple[Value, int, str]
"""Where a connection stands: the value of the column, the number of the connection at its gateway,
and the gateway's name. No two have the same."""

PRUNED_AT: Final = 1_024
"""So many rows above a page's are kept before they are sorted out."""

_Row = TypeVar("_Row")

_places: msgspec.json.Decoder[Place] = msgspec.json.Decoder(Place)


class Key:
    """A place in the order that was asked for: where the column is the same, the oldest connection
    of its gateway is first.
    """

    __slots__ = ("is_down", "place")

    def __init__(self, place: Place, *, is_down: bool) -> None:
        """`is_down`: the largest value is first."""
        self.place = place
        self.is_down = is_down

    def __lt__(self, other: Key) -> bool:
        value, than = self.place[0], other.place[0]
        if value != than:
            return bool(value > than if self.is_down else value < than)  # type: ignore[operator]  # values of one column
        return self.place[1:] < other.place[1:]


class FirstRows(Generic[_Row]):
    """The first `limit + 1` rows of any number, behind a cursor: the memory of two pages."""

    def __init__(self, limit: int, begin: Place | None, *, is_down: bool) -> None:
        """`limit`: rows of a page; `begin`: only what is behind it."""
        self._limit = limit
        self._is_down = is_down
        self._begin = None if begin is None else Key(begin, is_down=is_down)
        self._found: list[tuple[Key, _Row]] = []

    def add(self, place: Place, row: _Row) -> None:
        """One more row. Raises KernelError INVALID_ARGUMENT: the cursor is of another column."""
        key = Key(place, is_down=self._is_down)
        try:
            if self._begin is not None and not self._begin < key:
                return
        except TypeError:
            raise not_a_cursor() from None
        self._found.append((key, row))
        if len(self._found) > self._limit + 1 + PRUNED_AT:
            self._found = self._first()

    def add_all(self, rows: Iterable[tuple[Place, _Row]]) -> None:
        """Those that another gateway has found."""
        for place, row in rows:
            self.add(place, row)

    def _first(self) -> list[tuple[Key, _Row]]:
        return heapq.nsmallest(self._limit + 1, self._found, key=lambda each: each[0])

    def first(self) -> list[tuple[Place, _Row]]:
        """`limit + 1` at most, in order: the last of so many only says that there are more."""
        return [(key.place, row) for key, row in self._first()]

    def page(self) -> tuple[list[_Row], str | None]:
        """The rows of a page, and the cursor of the next; None at the end."""
        found = self.first()
        following = token_of(found[self._limit - 1][0]) if len(found) > self._limit else None
        return [row for _, row in found[: self._limit]], following


def token_of(place: Place) -> str:
    """A place as the cursor that clients give back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def place_of(token: str) -> Place:
    """What `token_of` was made from. Raises KernelError INVALID_ARGUMENT."""
    try:
        return _places.decode(base64.urlsafe_b64decode(token))
    except (*UNDECODABLE, ValueError):
        raise not_a_cursor() from None


def not_a_cursor() -> KernelError:
    """The refusal of a cursor that is none."""
    return KernelError(Code.INVALID_ARGUMENT, "after is not the `next` of a page")
