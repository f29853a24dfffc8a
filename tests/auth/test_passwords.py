from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from auth.errors import AuthCode, AuthError
from auth.password_checks.passwords import (
    LANES,
    MEMORY_COST_KIB,
    PASSWORD_BYTES_MAX,
    TIME_COST,
    PasswordChecker,
    hash_password,
    verify_password,
    worker_count,
)
from auth.users.records import password_hash_fault

Verify = Callable[[str, bytes], bool]


class Counting:
    """Stands for argon2: instant, counts its calls, can be held up."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.running_max = 0
        self._running = 0
        self._lock = threading.Lock()

    def __call__(self, stored: str, password: bytes) -> bool:
        with self._lock:
            self._running += 1
            self.running_max = max(self.running_max, self._running)
            self.calls.append((stored, password))
        self.gate.wait(10)
        with self._lock:
            self._running -= 1
        return stored.encode() == b"hash of " + password


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def checker_of(
    verify: Verify,
    logins: dict[str, str],
    clock: Clock | None = None,
    *,
    workers: int = 1,
    pending_max: int = 100_000,
) -> AsyncIterator[PasswordChecker]:
    checker = PasswordChecker(
        lambda tenant, name: logins.get(name) if tenant == "default" else None,
        clock or Clock(),
        verify=verify,
        workers=workers,
        pending_max=pending_max,
    )
    try:
        yield checker
    finally:
        await checker.close()


def test_a_password_fits_its_own_hash_only() -> None:
    stored = hash_password(b"correct horse")
    assert stored.startswith(f"$argon2id$v=19$m={MEMORY_COST_KIB},t={TIME_COST},p={LANES}$")
    assert password_hash_fault(stored) is None
    assert verify_password(stored, b"correct horse")
    assert not verify_password(stored, b"correct horse ")
    assert hash_password(b"correct horse") != stored


@pytest.mark.parametrize("password", [b"", b"x" * (PASSWORD_BYTES_MAX + 1)])
def test_a_password_of_no_or_absurd_length_is_not_set(password: bytes) -> None:
    with pytest.raises(AuthError) as caught:
        hash_password(password)
    assert caught.value.code is AuthCode.INVALID_ARGUMENT


def test_a_damaged_hash_is_an_error_of_the_server_not_a_wrong_password() -> None:
    with pytest.raises(AuthError) as caught:
        verify_password("$argon2id$v=19$nonsense", b"x")
    assert caught.value.code is AuthCode.UNAVAILABLE


def test_hashing_leaves_a_core_to_the_event_loop() -> None:
    assert 1 <= worker_count() <= 4


async def test_the_first_login_is_checked_and_the_next_ones_are_recalled() -> None:
    verify = Counting()
    async with checker_of(verify, {"alice": "hash of pw"}) as checker:
        assert checker.check_cached("default", "alice", b"pw") is None
        assert await checker.check("default", "alice", b"pw")
        assert checker.check_cached("default", "alice", b"pw") is True
        assert await checker.check("default", "alice", b"pw")
        assert not await checker.check("default", "alice", b"wrong")
        assert checker.check_cached("default", "alice", b"wrong") is False
        assert len(verify.calls) == 2
        statistics = checker.statistics()
        assert (statistics.checked_right, statistics.checked_wrong) == (1, 1)
        assert (statistics.remembered, statistics.pending) == (2, 0)


async def test_argon2_itself_checks_in_the_pool() -> None:
    stored = hash_password(b"pw")
    async with checker_of(verify_password, {"alice": stored}) as checker:
        assert await checker.check("default", "alice", b"pw")
        assert not await checker.check("default", "alice", b"pw2")
        assert not await checker.check("default", "nobody", b"pw")


async def test_five_thousand_reconnects_need_no_second_check() -> None:
    verify = Counting()
    logins = {f"device-{n}": f"hash of pw-{n}" for n in range(5_000)}
    async with checker_of(verify, logins, workers=2) as checker:
        first = [checker.check("default", f"device-{n}", b"pw-%d" % n) for n in range(5_000)]
        assert all(await asyncio.gather(*first))
        assert len(verify.calls) == 5_000
        for n in range(5_000):
            assert checker.check_cached("default", f"device-{n}", b"pw-%d" % n) is True
        assert len(verify.calls) == 5_000


async def test_a_thousand_devices_with_one_login_cost_one_check() -> None:
    verify = Counting()
    verify.gate.clear()
    async with checker_of(verify, {"fleet": "hash of pw"}, pending_max=1) as checker:
        waiting = [
            asyncio.ensure_future(checker.check("default", "fleet", b"pw")) for _ in range(1_000)
        ]
        await asyncio.sleep(0)
        verify.gate.set()
        assert all(await asyncio.gather(*waiting))
        assert len(verify.calls) == 1


async def test_a_full_queue_refuses_by_name_at_once_and_recovers() -> None:
    verify = Counting()
    verify.gate.clear()
    logins = {f"u{n}": "hash of pw" for n in range(5)}
    async with checker_of(verify, logins, pending_max=3) as checker:
        waiting = [
            asyncio.ensure_future(checker.check("default", f"u{n}", b"pw")) for n in range(3)
        ]
        await asyncio.sleep(0)
        assert checker.statistics().pending == 3
        with pytest.raises(AuthError) as caught:
            await checker.check("default", "u3", b"pw")
        assert caught.value.code is AuthCode.BUSY
        assert caught.value.code.retryable
        verify.gate.set()
        assert all(await asyncio.gather(*waiting))
        assert await checker.check("default", "u3", b"pw")
        assert checker.statistics().refused_busy == 1


async def test_who_was_checked_before_gets_in_while_the_queue_is_full() -> None:
    verify = Counting()
    logins = {"known": "hash of pw", "new": "hash of pw", "newer": "hash of pw"}
    async with checker_of(verify, logins, pending_max=1) as checker:
        assert await checker.check("default", "known", b"pw")
        verify.gate.clear()
        blocked = asyncio.ensure_future(checker.check("default", "new", b"pw"))
        await asyncio.sleep(0)
        with pytest.raises(AuthError):
            await checker.check("default", "newer", b"pw")
        assert await checker.check("default", "known", b"pw")
        verify.gate.set()
        assert await blocked


async def test_no_more_checks_run_at_once_than_there_are_workers() -> None:
    verify = Counting()
    logins = {f"u{n}": "hash of pw" for n in range(50)}
    async with checker_of(verify, logins, workers=2) as checker:
        await asyncio.gather(*(checker.check("default", f"u{n}", b"pw") for n in range(50)))
    assert verify.running_max <= 2


@pytest.mark.parametrize("login", [("default", "nobody"), ("acme", "alice")])
async def test_an_unknown_login_is_checked_at_the_same_cost(login: tuple[str, str]) -> None:
    verify = Counting()
    async with checker_of(verify, {"alice": hash_password(b"x")}) as checker:
        assert not await checker.check("default", "alice", b"pw")
        assert not await checker.check(*login, b"pw")
    known, unknown = (stored for stored, _ in verify.calls)
    # The same algorithm and costs; only salt and digest differ.
    assert unknown.split("$")[:4] == known.split("$")[:4]


async def test_a_changed_password_is_effective_at_once() -> None:
    verify = Counting()
    logins = {"alice": "hash of old"}
    async with checker_of(verify, logins) as checker:
        assert await checker.check("default", "alice", b"old")
        assert not await checker.check("default", "alice", b"new")
        logins["alice"] = "hash of new"
        assert checker.check_cached("default", "alice", b"old") is None
        assert not await checker.check("default", "alice", b"old")
        assert await checker.check("default", "alice", b"new")
        del logins["alice"]
        assert not await checker.check("default", "alice", b"new")


async def test_a_login_is_checked_anew_after_its_time_to_live() -> None:
    verify, clock = Counting(), Clock()
    async with checker_of(verify, {"alice": "hash of pw"}, clock) as checker:
        assert await checker.check("default", "alice", b"pw")
        clock.now_ms = 3_600_000
        assert checker.check_cached("default", "alice", b"pw") is None
        assert await checker.check("default", "alice", b"pw")
        assert len(verify.calls) == 2


async def test_an_oversized_password_is_refused_unread() -> None:
    verify = Counting()
    async with checker_of(verify, {"alice": "hash of pw"}) as checker:
        assert not await checker.check("default", "alice", b"x" * (PASSWORD_BYTES_MAX + 1))
        assert verify.calls == []


async def test_a_waiter_that_leaves_does_not_stop_the_check_for_others() -> None:
    verify = Counting()
    verify.gate.clear()
    async with checker_of(verify, {"alice": "hash of pw"}) as checker:
        leaving, staying = (
            asyncio.ensure_future(checker.check("default", "alice", b"pw")) for _ in range(2)
        )
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        verify.gate.set()
        assert await staying
        assert checker.check_cached("default", "alice", b"pw") is True


async def test_a_failing_check_decides_nothing() -> None:
    def fail(stored: str, password: bytes) -> bool:
        raise AuthError(AuthCode.UNAVAILABLE, "no memory")

    async with checker_of(fail, {"alice": "hash of pw"}) as checker:
        with pytest.raises(AuthError) as caught:
            await checker.check("default", "alice", b"pw")
        assert caught.value.code is AuthCode.UNAVAILABLE
        assert checker.check_cached("default", "alice", b"pw") is None
        assert checker.statistics().failed == 1


async def test_closing_ends_waiters_with_the_named_error() -> None:
    verify = Counting()
    verify.gate.clear()
    logins = {f"u{n}": "hash of pw" for n in range(3)}
    async with checker_of(verify, logins) as checker:
        running, *queued = (
            asyncio.ensure_future(checker.check("default", f"u{n}", b"pw")) for n in range(3)
        )
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(checker.close())
        await asyncio.sleep(0)
        verify.gate.set()
        await closing
        assert await running
        for each in queued:
            with pytest.raises(AuthError) as caught:
                await each
            assert caught.value.code is AuthCode.UNAVAILABLE
        with pytest.raises(AuthError):
            await checker.check("default", "late", b"pw")
