"""What one connection publishes, beside others that owe with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from adapters.limiting import Charging, Limiter
from kernel.api.message import HEADER_BYTES
from kernel.quotas.account import LimitOutcome
from kernel.quotas.accounts import Quotas
from kernel.quotas.limits import Entity, LimitSet, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.client import PublishBatch

ACME = Entity(Scope.TENANT, "acme", "")
LIMIT = "tenant.published_messages"


class Batch:
    """Some messages of ten bytes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.size_bytes = count * (HEADER_BYTES + 10)


class World:
    """Connections of one tenant, which may publish a hundred messages a second."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.quotas = Quotas({ACME: LimitSet(published_messages=100)})
        self._limiter = Limiter("mqtt", self.quotas, cast("Any", None), self)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def connection(self) -> Charging:
        return Charging(self._limiter, self._limiter.account("acme", "bob", "tcp"))

    def counted(self, outcome: LimitOutcome) -> int:
        return self.quotas.counts["acme", LIMIT, outcome]


@pytest.fixture
def world() -> World:
    return World()


def takes(connection: Charging, batch: Batch) -> bool:
    return connection.takes(cast("PublishBatch", batch))


def until_given(world: World, connection: Charging) -> tuple[object, int]:
    """What was kept and is to be submitted now, and after how many milliseconds."""
    began = world.now_ms
    while (batch := connection.next_kept()) is None:
        world.now_ms += 10
        assert world.now_ms < began + 60_000
    return batch, world.now_ms - began


def test_who_comes_while_more_than_a_second_is_owed_brings_nothing(world: World) -> None:
    assert takes(world.connection(), Batch(1_000)), "one read passes, and is paid for"
    late = [world.connection() for _ in range(50)]
    assert not any(takes(each, Batch(100)) for each in late)
    account = late[0].account
    assert account.delay_ms(world.now_ms) == 9_000, "nothing of theirs is owed"
    assert all(each.take_delay_ms() == 9_000 for each in late), "and they are not read from"
    _, waited_ms = until_given(world, late[0])
    assert 8_900 <= waited_ms <= 9_100
    assert late[1].next_kept() is None, "the first one has used what there was"


def test_who_owes_a_second_or_less_publishes_and_waits_then(world: World) -> None:
    assert takes(world.connection(), Batch(200))
    assert takes(world.connection(), Batch(1))


def test_what_is_kept_is_submitted_in_order_however_little_is_owed_later(world: World) -> None:
    assert takes(world.connection(), Batch(300))
    late, batches = world.connection(), [Batch(1), Batch(2), Batch(3)]
    assert not takes(late, batches[0])
    world.now_ms += 2_000
    assert not takes(late, batches[1]), "nothing is owed, but something waits before it"
    assert not takes(late, batches[2])
    assert late.kept_bytes == sum(each.size_bytes for each in batches)
    assert [until_given(world, late)[0] for _ in range(3)] == batches
    assert not late.keeps
    assert late.kept_bytes == 0


def test_what_is_kept_goes_with_its_connection_and_is_counted(world: World) -> None:
    assert takes(world.connection(), Batch(1_000))
    late = world.connection()
    assert not takes(late, Batch(7))
    late.drop_kept()
    assert not late.keeps
    assert world.counted(LimitOutcome.DROPPED) == 7


def test_of_a_client_that_has_left_nothing_is_taken_or_waited_for(world: World) -> None:
    assert takes(world.connection(), Batch(1_000))
    left = world.connection()
    assert not takes(left, Batch(7))
    left.leave()
    assert not takes(left, Batch(5))
    world.now_ms += 60_000
    assert not takes(left, Batch(3)), "however little is owed by then"
    assert (left.take_delay_ms(), left.owes_ms(), left.keeps) == (0, 0, False)
    assert world.counted(LimitOutcome.DROPPED) == 15


def test_a_limit_that_is_lifted_keeps_nothing_back(world: World) -> None:
    assert takes(world.connection(), Batch(1_000))
    late, batch = world.connection(), Batch(7)
    assert not takes(late, batch)
    world.quotas.change({}, world.now_ms)
    assert late.next_kept() is batch
    assert takes(late, Batch(100_000))


def test_messages_for_nobody_are_owed_for(world: World) -> None:
    connection = world.connection()
    for _ in range(150):
        connection.for_nobody(10)
    assert connection.take_delay_ms() == 500
    assert connection.take_delay_ms() == 0, "once"


@pytest.mark.parametrize("change", [lambda _: None, lambda each: each.leave()])
def test_where_nothing_is_limited_everything_is_taken(
    world: World, change: Callable[[Charging], None]
) -> None:
    world.quotas.change({}, world.now_ms)
    connection = world.connection()
    change(connection)
    assert takes(connection, Batch(10**6))
    assert connection.take_delay_ms() == 0
