from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from auth.errors import AuthCode, AuthError
from auth.password_checks.fair_queue import SUSPECT_TURNS, FairQueue
from auth.password_checks.guessing import (
    DELAY_MS_FIRST,
    DELAY_MS_MAX,
    FREE,
    QUIET_MS,
    SOURCES_MAX,
    USERS_PER_SOURCE_MAX,
    WAIT_MS_MAX,
    Guesses,
    source_of,
)
from tests.auth.test_passwords import Clock, Counting, checker_of

if TYPE_CHECKING:
    from auth.password_checks.passwords import PasswordChecker

THERE = "192.0.2.7:1234"


def guess(guesses: Guesses, user: str, now_ms: int, source: str = "a") -> int:
    """A wrong guess; when the next one was let begin."""
    wait_ms = guesses.begin(source, user, now_ms)
    assert wait_ms is not None
    guesses.end(source, user, now_ms + wait_ms, right=False)
    return now_ms + wait_ms


# --- Delays -------------------------------------------------------------------------------------


def test_failures_of_a_pair_are_delayed_more_and_more_up_to_a_limit() -> None:
    guesses, now_ms, waited = Guesses(), 0, []
    for _ in range(FREE + 8):
        began_ms = guess(guesses, "u", now_ms)
        waited.append(began_ms - now_ms)
        now_ms = began_ms
    assert waited[: FREE + 3] == [0, 0, 0, DELAY_MS_FIRST, 2 * DELAY_MS_FIRST, 4 * DELAY_MS_FIRST]
    assert waited[-2:] == [DELAY_MS_MAX, DELAY_MS_MAX]
    assert guesses.delayed == 8


def test_another_user_and_another_address_wait_for_nobody() -> None:
    guesses = Guesses()
    for _ in range(FREE + 3):
        guesses.begin("a", "u", 0)
    assert guesses.begin("a", "v", 0) == 0
    assert guesses.begin("b", "u", 0) == 0


def test_attempts_that_come_together_stand_in_line_and_the_rest_are_turned_away() -> None:
    guesses = Guesses()
    waits = [guesses.begin("a", "u", 0) for _ in range(1_000)]
    let_in = [each for each in waits if each is not None]
    assert let_in == sorted(let_in)
    assert len(let_in) < 12
    assert let_in[-1] <= WAIT_MS_MAX
    assert guesses.turned_away == 1_000 - len(let_in)


def test_a_right_login_and_a_quiet_quarter_of_an_hour_end_it() -> None:
    guesses = Guesses()
    for _ in range(FREE):
        guess(guesses, "u", 0)
    wait_ms = guesses.begin("a", "u", 0)
    assert wait_ms == DELAY_MS_FIRST
    guesses.end("a", "u", wait_ms, right=True)
    assert len(guesses) == 0
    now_ms = 0
    for _ in range(FREE + 3):
        now_ms = guess(guesses, "u", now_ms)
    assert guess(guesses, "u", now_ms + QUIET_MS + 1) == now_ms + QUIET_MS + 1


def test_memory_is_bounded_and_many_names_wash_away_nobody() -> None:
    guesses, now_ms = Guesses(), 0
    for _ in range(FREE):
        guess(guesses, "victim", now_ms)
    for number in range(1_000):
        guess(guesses, f"name-{number}", now_ms)
    assert len(guesses) == USERS_PER_SOURCE_MAX
    assert guesses.begin("a", "victim", now_ms) == DELAY_MS_FIRST
    for number in range(SOURCES_MAX + 10):
        guess(guesses, "u", now_ms, f"source-{number}")
    assert len(guesses) <= SOURCES_MAX + USERS_PER_SOURCE_MAX


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7:1234", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:db8:1:2:3::4]:99", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.7]:5", "192.0.2.7"),
        ("[fe80::1%eth0]:5", "fe80::/64"),
        ("", ""),
        ("?", "?"),
    ],
)
def test_an_address_counts_without_its_port_and_of_ipv6_its_network(
    address: str, source: str
) -> None:
    assert source_of(address) == source


# --- Turns --------------------------------------------------------------------------------------


def drained(queue: FairQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_turns_go_round_the_sources_and_then_their_users() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("flood/u/1", "flood/u/2", "flood/u/3", "flood/v/1", "office/w/1"):
        queue.push(*item.split("/")[:2], item)
    assert drained(queue) == ["flood/u/1", "office/w/1", "flood/v/1", "flood/u/2", "flood/u/3"]


def test_who_has_most_waiting_makes_room() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.push("flood", f"user-{number}", f"flood {number}")
    queue.push("office", "w", "office")
    assert queue.drop() == "flood 2"
    assert queue.drop() == "flood 1"
    queue.push("third", "x", "third")
    assert queue.drop() == "third", "of equals the last"


def test_suspects_wait_behind_the_others_but_not_for_ever() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(2 * SUSPECT_TURNS):
        queue.push("good", "u", number)
    queue.push("bad", "u", -1, is_suspect=True)
    queue.push("bad", "u", -2, is_suspect=True)
    found = [queue.pop() for _ in range(2 * SUSPECT_TURNS)]
    assert [found.index(-1), found.index(-2)] == [SUSPECT_TURNS - 1, 2 * SUSPECT_TURNS - 1]


# --- Together -----------------------------------------------------------------------------------


async def wrong(checker: PasswordChecker, number: int, user: str = "alice") -> AuthCode | bool:
    try:
        return await checker.check("default", user, b"wrong %d" % number, THERE)
    except AuthError as error:
        return error.code


async def test_a_thousand_guesses_at_once_come_to_a_few_checks() -> None:
    verify = Counting()
    async with checker_of(verify, {"alice": "hash of pw"}) as checker:
        tasks = [asyncio.ensure_future(wrong(checker, number)) for number in range(1_000)]
        async with asyncio.timeout(10):
            while sum(task.done() for task in tasks) < 990:
                await asyncio.sleep(0.01)
        assert len(verify.calls) <= FREE + 2
        statistics = checker.statistics()
        assert statistics.refused_busy == statistics.turned_away > 980
        assert statistics.suspects == 1
        for task in tasks:
            task.cancel()


async def test_a_remembered_right_password_never_waits() -> None:
    async with checker_of(Counting(), {"alice": "hash of pw"}) as checker:
        assert await checker.check("default", "alice", b"pw", THERE)
        tasks = [asyncio.ensure_future(wrong(checker, number)) for number in range(100)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.2):
            for _ in range(1_000):
                assert await checker.check("default", "alice", b"pw", THERE)
        for task in tasks:
            task.cancel()


async def test_a_fleet_with_one_right_password_is_no_guesser() -> None:
    verify = Counting()
    async with checker_of(verify, {"fleet": "hash of pw"}) as checker:
        async with asyncio.timeout(5):
            found = await asyncio.gather(
                *(checker.check("default", "fleet", b"pw", THERE) for _ in range(1_000))
            )
        assert all(found)
        assert (len(verify.calls), checker.statistics().delayed) == (1, 0)


async def test_a_flood_from_one_address_is_checked_between_others_and_makes_room_for_them() -> None:
    verify = Counting()
    verify.gate.clear()
    logins = {"new": "hash of pw"}
    async with checker_of(verify, logins, pending_max=50) as checker:
        flood = [
            asyncio.ensure_future(wrong(checker, number, f"user-{number}")) for number in range(200)
        ]
        await asyncio.sleep(0.05)
        login = asyncio.ensure_future(checker.check("default", "new", b"pw", "198.51.100.1:9"))
        await asyncio.sleep(0.05)
        verify.gate.set()
        assert await login
        assert [password for _, password in verify.calls].index(b"pw") <= 2
        assert [await each for each in flood].count(AuthCode.BUSY) == 151


async def test_a_password_that_is_changed_while_its_check_waits_is_checked_anew() -> None:
    verify = Counting()
    verify.gate.clear()
    logins = {"alice": "hash of old"}
    async with checker_of(verify, logins) as checker:
        login = asyncio.ensure_future(checker.check("default", "alice", b"old", THERE))
        await asyncio.sleep(0.05)
        logins["alice"] = "hash of new"
        verify.gate.set()
        assert not await login


async def test_closing_ends_those_who_wait_for_their_time() -> None:
    async with checker_of(Counting(), {}, Clock()) as checker:
        for number in range(FREE):
            assert await wrong(checker, number) is False
        delayed = asyncio.ensure_future(wrong(checker, FREE))
        await asyncio.sleep(0.01)
        await checker.close()
        assert await delayed is AuthCode.UNAVAILABLE
