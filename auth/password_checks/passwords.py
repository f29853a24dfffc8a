"""Password checks: argon2id in a few threads, behind a memory of what was checked before.

    check_cached(...)  hot, synchronous: True, False, or None = "not known, ask check"
    check(...)         awaitable: makes the check, at most `PENDING_MAX` waiting at a time

Rules:
- Equal checks that run at one time are one check: a thousand devices that share a login and
  reconnect to a fresh process cost one argon2, not a thousand.
- A login that does not exist, is disabled or has no password is checked against a hash that no
  password fits, made with the same costs: neither time nor answer tells it from a wrong password.
- The queue is bounded, and turns go round (`fair_queue`). When it is full, whoever has most in it
  hears AuthError BUSY at once; nothing waits unseen, and signing in again later is the client's
  part. Adapters answer it in their own way (server busy), never as bad credentials.
- Who guesses waits (`guessing`), before anything is checked; a password that is remembered as right
  never does.

argon2 releases the interpreter lock, so that the event loop runs on beside it; but a thread at
work takes a core. Hence one thread less than there are cores.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import argon2

from ..errors import AuthCode, AuthError
from .digests import DIGEST_KEY_BYTES, DigestMemory
from .fair_queue import FairQueue
from .guessing import Guesses, source_of
from .salted_hashes import fits, is_salted, salted_fault

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_COST_KIB = 19_456
TIME_COST = 2
LANES = 1
"""The least that OWASP's password storage page asks of argon2id: 19 MiB, 2 passes, 1 lane. More
would lengthen the first minutes after a restart, when every device is checked anew."""

PENDING_MAX = 256
"""Checks that run or wait. At 36 ms each on one thread the last one waits 9 s, which is what
clients give a server to answer a connect (10 s is a common limit)."""

DELAYED_MAX = 1_024
"""Attempts that wait because others failed before them; each holds its client's connection."""

WORKERS_MAX = 4

PASSWORD_BYTES_MAX = 4_096
"""Longer ones are refused unread: no person or device has one, and hashing is not free."""

_HASHER = argon2.PasswordHasher(TIME_COST, MEMORY_COST_KIB, LANES)


def hash_password(password: bytes) -> str:
    """argon2id of a password in PHC form. Blocks for tens of ms: not for the event loop.

    Raises AuthError INVALID_ARGUMENT if it is empty or longer than PASSWORD_BYTES_MAX.
    """
    if not 0 < len(password) <= PASSWORD_BYTES_MAX:
        message = f"a password has 1 to {PASSWORD_BYTES_MAX} bytes"
        raise AuthError(AuthCode.INVALID_ARGUMENT, message)
    return _HASHER.hash(password)


def verify_password(stored: str, password: bytes) -> bool:
    """Whether a password fits a hash: argon2id, or one of RabbitMQ's. Blocks for tens of ms.

    Raises AuthError UNAVAILABLE if it could not be found out: no memory, or `stored` is no hash.
    """
    if is_salted(stored):
        fault = salted_fault(stored)
        if fault is not None:
            raise AuthError(AuthCode.UNAVAILABLE, f"a password was not checked: {fault}")
        # Takes as long as any other check: time does not tell whose hash is of which kind.
        _HASHER.hash(password)
        return fits(stored, password)
    try:
        return _HASHER.verify(stored, password)
    except argon2.exceptions.VerifyMismatchError:
        return False
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError) as error:
        raise AuthError(AuthCode.UNAVAILABLE, f"a password was not checked: {error}") from None


def worker_count() -> int:
    """Threads for checks on this machine: all cores but the event loop's, 1 to WORKERS_MAX."""
    return max(1, min(WORKERS_MAX, (os.cpu_count() or 1) - 1))


@dataclass(frozen=True, slots=True)
class CheckStatistics:
    """Counters since start; `pending` and `remembered` are of now."""

    recalled: int
    checked_right: int
    checked_wrong: int
    failed: int
    refused_busy: int
    pending: int
    remembered: int
    delayed: int
    """Attempts that had to wait because the ones before them failed."""
    turned_away: int
    """Those that would have had to wait for too long."""
    suspects: int
    """Pairs of an address and a user of which something failed of late."""


class _Asked(NamedTuple):
    """What is to be found out."""

    digest: bytes
    """Names the check."""
    stored: str
    password: bytes


class _Check(NamedTuple):
    """One that waits or runs."""

    asked: _Asked
    done: asyncio.Future[bool]


class PasswordChecker:
    """Checks passwords of logins. One a gateway; belongs to its event loop."""

    def __init__(
        self,
        stored_hash: Callable[[str, str], str | None],
        clock_ms: Callable[[], int],
        *,
        verify: Callable[[str, bytes], bool] = verify_password,
        random_bytes: Callable[[int], bytes] = os.urandom,
        workers: int | None = None,
        pending_max: int = PENDING_MAX,
        memory: DigestMemory | None = None,
    ) -> None:
        """`stored_hash(tenant, name)`: `Directory.password_hash`. `clock_ms`: monotonic."""
        self._stored_hash = stored_hash
        self._clock_ms = clock_ms
        self._verify = verify
        self._pending_max = pending_max
        self._memory = memory or DigestMemory(random_bytes(DIGEST_KEY_BYTES))
        # A hash of this process alone: what stands for logins that do not exist.
        self._nobody = hash_password(random_bytes(32))
        self._workers = workers or worker_count()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="password")
        self._queue: FairQueue[_Check] = FairQueue()
        self._free = self._workers
        self._pending: dict[bytes, asyncio.Future[bool]] = {}
        self._guesses = Guesses()
        self._attempts: dict[tuple[str, bytes], asyncio.Future[bool]] = {}
        """By source and digest: equal attempts from one source are one."""
        self._delayed: set[asyncio.Task[bool]] = set()
        self._is_closed = False
        self._recalled = 0
        self._right = 0
        self._wrong = 0
        self._failed = 0
        self._refused = 0

    def check_cached(self, tenant: str, name: str, password: bytes) -> bool | None:
        """Whether the login is right, if a check made before tells; else None: await `check`.

        Hot: some microseconds, no thread, no waiting.
        """
        if len(password) > PASSWORD_BYTES_MAX:
            return False
        _, digest = self._identify(tenant, name, password)
        known = self._memory.recall(digest, self._clock_ms())
        if known is not None:
            self._recalled += 1
        return known

    async def check(self, tenant: str, name: str, password: bytes, address: str = "") -> bool:
        """Whether the login is right, which was sent from `address`, `host:port` or `host`.

        Raises AuthError BUSY (the queue is full, or too much failed before) or UNAVAILABLE
        (closing, or the check failed). Cancelling it abandons the wait, not the check: its result
        is remembered.
        """
        known = self.check_cached(tenant, name, password)
        if known or len(password) > PASSWORD_BYTES_MAX:
            return bool(known)
        if self._is_closed:
            raise AuthError(AuthCode.UNAVAILABLE, "the server is shutting down")
        stored, digest = self._identify(tenant, name, password)
        source, user = source_of(address), f"{tenant}:{name}"
        attempt = self._attempts.get((source, digest))
        if attempt is None:
            attempt = self._begin(source, user, _Asked(digest, stored, password))
        # asyncio.wait, unlike await, leaves the check alone when the waiter is cancelled.
        await asyncio.wait((attempt,))
        if attempt.cancelled():
            raise AuthError(AuthCode.UNAVAILABLE, "the server is shutting down")
        if attempt.result() and self._identify(tenant, name, password)[1] != digest:
            # The password was changed meanwhile: what was right is so no more.
            return await self.check(tenant, name, password, address)
        return attempt.result()

    def _identify(self, tenant: str, name: str, password: bytes) -> tuple[str, bytes]:
        """The hash to check against, and the digest that names the check."""
        stored = self._stored_hash(tenant, name) or self._nobody
        return stored, self._memory.digest(tenant, name, stored, password)

    # --- Attempts: of one source, after what failed before ---------------------------------------

    def _begin(self, source: str, user: str, asked: _Asked) -> asyncio.Future[bool]:
        """One more attempt of a pair. Raises AuthError BUSY."""
        wait_ms = self._guesses.begin(source, user, self._clock_ms())
        if wait_ms is None or (wait_ms and len(self._delayed) >= DELAYED_MAX):
            if wait_ms is not None:
                self._guesses.end(source, user, self._clock_ms(), right=None)
            self._refused += 1
            message = "too many logins failed: sign in again later"
            raise AuthError(AuthCode.BUSY, message)
        attempt: asyncio.Future[bool]
        if wait_ms:
            task = asyncio.get_running_loop().create_task(self._later(wait_ms, source, user, asked))
            self._delayed.add(task)
            task.add_done_callback(self._delayed.discard)
            attempt = task
        else:
            attempt = self._look(source, user, asked)
        key = (source, asked.digest)
        self._attempts[key] = attempt
        attempt.add_done_callback(lambda done: self._end(key, user, done))
        return attempt

    async def _later(self, wait_ms: int, source: str, user: str, asked: _Asked) -> bool:
        await asyncio.sleep(wait_ms / 1000)
        looking = self._look(source, user, asked)
        # As in `check`: it may be others' too.
        await asyncio.wait((looking,))
        return looking.result()

    def _look(self, source: str, user: str, asked: _Asked) -> asyncio.Future[bool]:
        """What is known by now, or a check."""
        known = self._memory.recall(asked.digest, self._clock_ms())
        if known is None:
            running = self._pending.get(asked.digest)
            return running or self._start(source, user, asked)
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        found.set_result(known)
        return found

    def _end(self, key: tuple[str, bytes], user: str, done: asyncio.Future[bool]) -> None:
        del self._attempts[key]
        # Asked for, or it would be told as never retrieved if nobody waits any more.
        failed = done.cancelled() or done.exception() is not None
        right = None if failed else done.result()
        self._guesses.end(key[0], user, self._clock_ms(), right=right)

    # --- Checks: whoever asks --------------------------------------------------------------------

    def _start(self, source: str, user: str, asked: _Asked) -> asyncio.Future[bool]:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending[asked.digest] = done
        check = _Check(asked, done)
        self._queue.push(source, user, check, is_suspect=self._guesses.is_suspect(source))
        self._next()
        if len(self._pending) > self._pending_max:
            refused = self._queue.drop()
            self._refused += 1
            message = f"{self._pending_max} password checks are waiting: sign in again later"
            self._give_up(refused, AuthError(AuthCode.BUSY, message))
        return done

    def _next(self) -> None:
        """Run those whose turn it is, as far as there are threads."""
        loop = asyncio.get_running_loop()
        while self._free and len(self._queue):
            check = self._queue.pop()
            self._free -= 1
            running = loop.run_in_executor(
                self._pool, self._verify, check.asked.stored, check.asked.password
            )
            running.add_done_callback(partial(self._finish, check))

    def _finish(self, check: _Check, ran: asyncio.Future[bool]) -> None:
        self._free += 1
        error = ran.exception() if not ran.cancelled() else AuthError(AuthCode.UNAVAILABLE, "")
        if error is not None:
            self._failed += 1
            self._give_up(check, error)
        else:
            right = ran.result()
            del self._pending[check.asked.digest]
            self._memory.remember(check.asked.digest, self._clock_ms(), right=right)
            self._right += right
            self._wrong += not right
            check.done.set_result(right)
        if not self._is_closed:
            self._next()

    def _give_up(self, check: _Check, error: BaseException) -> None:
        del self._pending[check.asked.digest]
        check.done.set_exception(error)
        # The waiters get it; if there are none any more, nobody misses it.
        check.done.exception()

    def statistics(self) -> CheckStatistics:
        return CheckStatistics(
            self._recalled,
            self._right,
            self._wrong,
            self._failed,
            self._refused,
            len(self._pending),
            len(self._memory),
            self._guesses.delayed,
            self._guesses.turned_away,
            len(self._guesses),
        )

    async def close(self) -> None:
        """Starts no more checks; those that wait end as UNAVAILABLE, those that run are awaited.

        Takes at most the time of one check. May be called twice.
        """
        self._is_closed = True
        for task in self._delayed:
            task.cancel()
        while len(self._queue):
            stopped = AuthError(AuthCode.UNAVAILABLE, "the server is shutting down")
            self._give_up(self._queue.pop(), stopped)
        if self._pending:
            await asyncio.wait(list(self._pending.values()))
        self._pool.shutdown(wait=False)
