"""What comes of several tenants is taken in turn, whole and in order; bounds are in
`tests/simulator/test_sharing.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

import pytest

from adapters.fair_scheduler import (
    ACTIVE_MS,
    LOOK_US,
    NOBODY,
    PART_BYTES,
    PART_BYTES_MAX,
    ROUND_BYTES_MAX,
    ROUND_MS_MAX,
    TENANTS_MAX,
    FairScheduler,
)
from adapters.memory import GatewayMemory
from adapters.small_reads import SmallReads
from adapters.transport import StreamProtocol
from kernel.common.fairness import WriteRounds

MUCH = 8 * PART_BYTES_MAX


class Clock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class Timer:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action

    def cancel(self) -> None:
        self.action = lambda: None


class Desk:
    """A scheduler whose turns and time are the test's."""

    def __init__(self) -> None:
        self.us = 0
        self.rounds = WriteRounds()
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Timer]] = []
        self.active: list[str] = []
        self.turns = FairScheduler(
            self.rounds, self.soon.append, self._later, lambda: self.us, self.active.append
        )
        self.memory = GatewayMemory(Clock())

    def _later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        timer = Timer(action)
        self.later.append((seconds, timer))
        return cast("asyncio.TimerHandle", timer)

    def turn(self) -> None:
        due, self.soon[:] = list(self.soon), []
        for action in due:
            action()

    def all_turns(self) -> None:
        while self.soon:
            self.turn()

    def connect(self, tenant: str = "", cost_us: int = 0) -> Connection:
        connection = Connection(self, cost_us)
        if tenant:
            connection.shares_as(tenant)
        return connection

    def shared(self) -> tuple[Connection, Connection]:
        """Connections of two active tenants, of which the first has had its part of this turn."""
        one, other = self.connect("one"), self.connect("other")
        one.data_received(b"-" * PART_BYTES_MAX)
        one.got.clear()
        return one, other


class Transport:
    def __init__(self) -> None:
        self.is_read = True
        self.protocol: asyncio.BaseProtocol | None = None
        self.is_over = False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.is_over

    def get_extra_info(self, name: str) -> object:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_over = True


class Connection(StreamProtocol):
    """Keeps what it is given."""

    def __init__(self, desk: Desk, cost_us: int) -> None:
        super().__init__(
            cast("asyncio.AbstractEventLoop", Loop(desk)),
            desk.memory.listener("test", "tcp"),
            desk.turns,
        )
        self.desk = desk
        self.cost_us = cost_us
        self.socket = Transport()
        self.got: list[bytes] = []
        self.publishes = 0
        """Bytes that each part it takes has submitted."""
        self.connection_made(cast("asyncio.BaseTransport", self.socket))

    def received(self, data: bytes) -> None:
        self.got.append(data)
        self.desk.us += self.cost_us
        if self.publishes:
            self.desk.rounds.submitted(self.publishes)

    @property
    def all(self) -> bytes:
        return b"".join(self.got)


class Loop:
    def __init__(self, desk: Desk) -> None:
        self.call_soon = lambda action, *_: desk.soon.append(action)
        self.time = lambda: desk.us / 1e6


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_nobody_waits_while_one_tenant_is_alone(desk: Desk) -> None:
    connections = [desk.connect("one") for _ in range(3)]
    for connection in connections:
        connection.data_received(b"x" * MUCH)
        assert connection.got == [b"x" * MUCH]
        assert connection.socket.is_read
    assert not desk.soon
    assert not desk.turns.is_shared


def test_what_is_much_of_two_tenants_is_taken_in_turn_and_not_read_meanwhile(desk: Desk) -> None:
    one, other = desk.shared()
    one.data_received(b"x" * MUCH)
    assert not one.got
    assert not one.socket.is_read
    assert one.is_waiting_for_turn
    assert one.has_input
    desk.turn()
    assert one.got[0] == b"x" * PART_BYTES
    desk.all_turns()
    assert one.all == b"x" * MUCH
    assert max(map(len, one.got)) <= PART_BYTES_MAX
    assert one.socket.is_read
    assert not one.is_waiting_for_turn
    assert not one.has_input
    assert other.socket.is_read


def test_who_sends_little_does_not_wait(desk: Desk) -> None:
    one, other = desk.shared()
    one.data_received(b"x" * MUCH)
    other.data_received(b"little")
    assert other.got == [b"little"]
    desk.all_turns()


def test_who_has_waited_is_read_in_small_pieces_until_one_is_alone_again(desk: Desk) -> None:
    one, other = desk.shared()
    one.data_received(b"x" * MUCH)
    small = one.socket.protocol
    assert isinstance(small, SmallReads)
    assert len(small.get_buffer(-1)) == PART_BYTES_MAX
    desk.all_turns()
    desk.us += (ACTIVE_MS + 1) * 1_000
    one.data_received(b"y")
    assert one.socket.protocol is one
    assert one.socket.is_read
    one.data_received(b"z" * MUCH)
    assert one.got[-1] == b"z" * MUCH
    assert not desk.turns.is_shared
    other.data_received(b"again")
    assert desk.turns.is_shared


def test_a_tenant_that_comes_back_after_a_calm_is_one_of_several_again(desk: Desk) -> None:
    one, other = desk.shared()
    desk.us += (ACTIVE_MS + 1) * 1_000
    other.data_received(b"x")
    assert desk.turns.alone is desk.turns.tenant("other")
    one.data_received(b"x")
    assert desk.turns.is_shared


def test_the_kernel_hears_which_tenant_is_alone(desk: Desk) -> None:
    """Its backlogs give way to nobody then."""
    one, other = desk.shared()
    assert desk.active == ["one", "*"]
    desk.us += (ACTIVE_MS + 1) * 1_000
    other.data_received(b"x")
    assert desk.active == ["one", "*", "", "other"]
    one.data_received(b"x")
    assert desk.active[4:] == ["*"]


def test_when_nobody_has_sent_for_long_the_next_one_is_alone(desk: Desk) -> None:
    one, _ = desk.shared()
    assert desk.turns.alone is not NOBODY
    desk.us += (ACTIVE_MS + 1) * 1_000
    one.data_received(b"x" * MUCH)
    assert desk.turns.alone is desk.turns.tenant("one")
    assert one.got == [b"x" * MUCH]


def test_of_very_many_tenants_those_who_are_not_active_are_forgotten(desk: Desk) -> None:
    one, other = desk.shared()
    for number in range(TENANTS_MAX + 1):
        desk.turns.tenant(f"made up {number}")
    desk.us += LOOK_US
    other.data_received(b"x")
    assert len(desk.turns._tenants) == 2
    assert desk.turns.tenant("other") is desk.turns.tenant("other")
    one.data_received(b"x")
    assert desk.turns.is_shared


def test_strangers_never_make_reading_shared_and_share_while_it_is(desk: Desk) -> None:
    one, stranger = desk.connect("one"), desk.connect()
    one.data_received(b"x")
    stranger.data_received(b"y" * MUCH)
    assert stranger.got == [b"y" * MUCH]
    assert desk.turns.alone is desk.turns.tenant("one")
    desk.connect("other").data_received(b"x")
    stranger.data_received(b"z" * MUCH)
    assert len(stranger.got) == 1
    desk.all_turns()
    assert stranger.all == b"y" * MUCH + b"z" * MUCH


def test_what_waits_goes_with_a_connection_that_changes_its_tenant(desk: Desk) -> None:
    one, _ = desk.shared()
    one.data_received(b"x" * MUCH)
    one.shares_as("third")
    assert desk.turns.waiting == 1
    desk.all_turns()
    assert one.all == b"x" * MUCH
    assert desk.turns.waiting == 0


def test_who_is_held_for_another_reason_has_no_turn_until_that_is_over(desk: Desk) -> None:
    one, _ = desk.shared()
    one.data_received(b"x" * MUCH)
    one.hold_reading("operation")
    desk.all_turns()
    assert not one.got
    one.release_reading("operation")
    desk.all_turns()
    assert one.all == b"x" * MUCH
    assert one.socket.is_read


def test_what_has_come_before_a_connection_is_lost_is_taken(desk: Desk) -> None:
    one, _ = desk.shared()
    one.data_received(b"x" * MUCH)
    one.connection_lost(None)
    assert one.all == b"x" * MUCH
    assert desk.turns.waiting == 0
    desk.all_turns()
    assert desk.memory.input.bytes == 0


def test_nothing_is_taken_of_a_connection_that_was_closed(desk: Desk) -> None:
    one, _ = desk.shared()
    one.data_received(b"x" * MUCH)
    one.abort()
    desk.all_turns()
    one.connection_lost(None)
    assert not one.got
    assert desk.turns.waiting == 0


def test_where_memory_is_tight_nothing_is_kept(desk: Desk) -> None:
    one, other = desk.shared()
    other.hold_input(desk.memory.input.bytes_max * 3 // 4)
    one.data_received(b"x" * MUCH)
    assert one.got == [b"x" * MUCH]


def test_a_part_becomes_smaller_where_it_takes_long_and_larger_where_it_does_not(
    desk: Desk,
) -> None:
    one, _ = desk.shared()
    slow = desk.connect("one", cost_us=5_000)
    for connection in (one, slow):
        connection.data_received(b"x" * MUCH)
    desk.all_turns()
    assert len(one.got[-2]) == PART_BYTES_MAX
    assert len(slow.got[-2]) < PART_BYTES


def test_a_turn_ends_when_its_time_is_over(desk: Desk) -> None:
    desk.shared()
    slow = desk.connect("one", cost_us=1_000)
    slow.data_received(b"x" * MUCH)
    desk.turn()
    assert len(slow.got) == 2


def test_who_has_had_its_bytes_of_a_commit_waits_for_the_next(desk: Desk) -> None:
    one, other = desk.shared()
    desk.rounds.submitted(1)
    desk.rounds.look()
    one.publishes = ROUND_BYTES_MAX
    one.data_received(b"x" * MUCH)
    desk.turn()
    assert len(one.got) == 1
    assert not desk.soon
    other.data_received(b"little")
    assert other.got == [b"little"]
    desk.all_turns()
    assert len(one.got) == 1
    desk.rounds.answered(1)
    desk.turn()
    assert len(one.got) == 2
    assert desk.turns.counts.forced == 0


def test_a_commit_that_does_not_end_is_not_waited_for_for_ever(desk: Desk) -> None:
    one, _ = desk.shared()
    desk.rounds.submitted(1)
    desk.rounds.look()
    one.publishes = ROUND_BYTES_MAX
    one.data_received(b"x" * MUCH)
    desk.turn()
    assert not desk.soon
    seconds, timer = desk.later[-1]
    assert seconds == ROUND_MS_MAX / 1_000
    timer.action()
    desk.turn()
    assert len(one.got) == 2
    assert desk.turns.counts.forced == 1


def test_a_commit_of_large_messages_has_its_time(desk: Desk) -> None:
    one, _ = desk.shared()
    desk.rounds.submitted(1)
    desk.rounds.look()
    one.publishes = 8 * 1024 * 1024
    one.data_received(b"x" * MUCH)
    desk.turn()
    assert desk.later[-1][0] > 0.4


def test_a_bug_in_one_connection_stops_no_other(desk: Desk) -> None:
    one, _ = desk.shared()
    broken = desk.connect("one")
    broken.received = lambda data: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    broken.data_received(b"x")
    one.data_received(b"x" * MUCH)
    with pytest.raises(ZeroDivisionError):
        desk.all_turns()
    desk.all_turns()
    assert one.all == b"x" * MUCH


@pytest.mark.parametrize("seed", range(20))
def test_every_connection_gets_its_own_bytes_whole_and_in_order(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    connections = [desk.connect(chance.choice("abc"), chance.choice((0, 300))) for _ in range(8)]
    sent = dict.fromkeys(connections, b"")
    for _ in range(300):
        connection = chance.choice(connections)
        what = chance.random()
        if what < 0.5:
            if connection.socket.is_read or what < 0.02:  # TLS may hand over more than was asked
                data = chance.randbytes(chance.choice((1, 100, PART_BYTES_MAX, MUCH)))
                sent[connection] += data
                connection.data_received(data)
        elif what < 0.55:
            connection.hold_reading("operation")
        elif what < 0.65:
            connection.release_reading("operation")
        elif what < 0.7:
            connection.shares_as(chance.choice("abc"))
        elif what < 0.72:
            desk.us += chance.choice((1_000, 2 * ACTIVE_MS * 1_000))
        else:
            desk.turn()
    for connection in connections:
        connection.release_reading("operation")
    desk.all_turns()
    assert [each.all for each in connections] == [sent[each] for each in connections]
    assert all(each.socket.is_read for each in connections)
    assert desk.turns.waiting == 0
