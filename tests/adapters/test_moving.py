"""Which clients are asked to go, and what becomes of those that come straight back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from adapters import moving
from adapters.moving import PAUSE_MS_MAX, RETURN_MS, STAYING_MAX, Moving

if TYPE_CHECKING:
    from adapters.moving import ConsumersByKey


@dataclass(eq=False)
class Link:
    """A connection of a client."""

    client: str


class Gateway:
    """Connections, of which some are asked to go."""

    def __init__(self, *clients: str) -> None:
        self.open = [Link(each) for each in clients]
        self.moving: Moving[Link] = Moving(lambda each: each.client, lambda each: each.client)

    def move(self, amount: int, now_ms: int, recorders: ConsumersByKey | None = None) -> list[str]:
        """Who is asked; its connection closes."""
        found = list(
            self.moving.chosen(self.open, amount, recorders, lambda each: each.client, now_ms)
        )
        self.open = [each for each in self.open if each not in found]
        return [each.client for each in found]

    def come(self, client: str) -> None:
        self.open.append(Link(client))


def test_so_many_are_asked_and_none_twice() -> None:
    gateway = Gateway("a", "b", "c")
    assert gateway.move(2, 0) == ["a", "b"]
    assert gateway.move(2, 0) == ["c"]
    assert gateway.move(2, 0) == []


def test_those_with_the_consumers_asked_for_go_as_far_as_they_fit() -> None:
    gateway = Gateway("many", "none", "one", "two")
    recorders = {"many": 5, "one": 1, "two": 2}
    assert gateway.move(3, 0, recorders) == ["one", "two"]


def test_a_client_that_comes_straight_back_is_asked_less_and_less_often() -> None:
    gateway = Gateway("stubborn")
    asked_ms = []
    for now_ms in range(0, 400_000, 500):
        if gateway.move(9, now_ms):
            asked_ms.append(now_ms)
            gateway.come("stubborn")
    pauses = [later - earlier for earlier, later in pairwise(asked_ms)]
    assert pauses[:6] == [2_000, 4_000, 8_000, 16_000, 32_000, PAUSE_MS_MAX]
    assert set(pauses[6:]) == {PAUSE_MS_MAX}


def test_others_go_before_one_that_came_back() -> None:
    gateway = Gateway("a")
    assert gateway.move(1, 0) == ["a"]
    gateway.come("a")
    gateway.come("b")
    assert gateway.move(1, 60_000) == ["b"]
    assert gateway.move(1, 60_000) == ["a"]


def test_of_many_connections_of_one_client_each_is_asked_at_once() -> None:
    gateway = Gateway(*["pool"] * 50)
    assert len(gateway.move(100, 0)) == 50
    gateway.come("pool")
    assert gateway.move(100, 1_000) == [], "this one has come back"


def test_a_client_that_was_away_is_no_client_that_came_straight_back() -> None:
    gateway = Gateway("a")
    assert gateway.move(1, 0) == ["a"]
    gateway.come("a")
    assert gateway.move(1, RETURN_MS) == ["a"]
    assert gateway.moving.staying() == {}


def test_who_keeps_coming_back_is_named_the_most_stubborn_first() -> None:
    gateway = Gateway("a", "b", *(f"c{number}" for number in range(STAYING_MAX)))
    now_ms = 0
    for count in (20, 20, 1):
        for each in gateway.move(count, now_ms):
            gateway.come(each)
        now_ms += PAUSE_MS_MAX
    gateway.move(0, now_ms)
    staying = gateway.moving.staying()
    assert staying["a"] == 3
    assert len(staying) == STAYING_MAX
    assert list(staying.values()) == sorted(staying.values(), reverse=True)


def test_only_so_many_that_may_come_back_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "ASKED_MAX", 2)
    gateway = Gateway("a", "b", "c")
    assert gateway.move(3, 0) == ["a", "b", "c"]
    for each in ("a", "b", "c"):
        gateway.come(each)
    assert gateway.move(3, 1_000) == ["a"], "the oldest was forgotten, and counts as new"
