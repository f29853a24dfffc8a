"""Password checks: argon2id in a few threads, behind a memory of what was checked before.

    check_cached(...)  hot, synchronous: True, False, or None = "not known, ask check"
    check(...)         awaitable: makes the check, at most `PENDING_MAX` waiting at a time

Rules:
- Equal checks that run at one time are one check: a thousand devices that share a login and
  reconnect to a fresh process cost one argon2, not a thousand.
- A login that does not exist, is disabled or has no password is checked against a hash that no
  password fits, made with the same costs: neither time nor answer tells it from a wrong password.
- The queue is bounded. When it is full, `check` raises AuthError BUSY at once; nothing waits
  unseen, and signing in again later is the client's part. Adapters answer it in their own way
  (server busy), never as bad credentials.

argon2 releases the interpreter lock, so that the event loop runs on beside it; but a thread at
work takes a core. Hence one thread less than there are cores.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import argon2

from .digests import DIGEST_KEY_BYTES, DigestMemory
from .errors import AuthCode, AuthError

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
    """Whether a password fits an argon2id hash. Blocks for tens of ms.

    Raises AuthError UNAVAILABLE if it could not be found out: no memory, or `stored` is no hash.
    """
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
        self._pool = ThreadPoolExecutor(workers or worker_count(), thread_name_prefix="password")
        self._pending: dict[bytes, asyncio.Future[bool]] = {}
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

    async def check(self, tenant: str, name: str, password: bytes) -> bool:
        """Whether the login is right.

        Raises AuthError BUSY (the queue is full) or UNAVAILABLE (closing, or the check failed).
        Cancelling it abandons the wait, not the check: its result is remembered.
        """
        known = self.check_cached(tenant, name, password)
        if known is not None:
            return known
        if self._is_closed:
            raise AuthError(AuthCode.UNAVAILABLE, "the server is shutting down")
        stored, digest = self._identify(tenant, name, password)
        running = self._pending.get(digest)
        if running is None:
            running = self._start(digest, stored, password)
        # asyncio.wait, unlike await, leaves the check alone when the waiter is cancelled.
        await asyncio.wait((running,))
        if running.cancelled():
            raise AuthError(AuthCode.UNAVAILABLE, "the server is shutting down")
        return running.result()

    def _identify(self, tenant: str, name: str, password: bytes) -> tuple[str, bytes]:
        """The hash to check against, and the digest that names the check."""
        stored = self._stored_hash(tenant, name) or self._nobody
        return stored, self._memory.digest(tenant, name, stored, password)

    def _start(self, digest: bytes, stored: str, password: bytes) -> asyncio.Future[bool]:
        if len(self._pending) >= self._pending_max:
            self._refused += 1
            message = f"{self._pending_max} password checks are waiting: sign in again later"
            raise AuthError(AuthCode.BUSY, message)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, self._verify, stored, password)
        self._pending[digest] = running
        running.add_done_callback(lambda done: self._finish(digest, done))
        return running

    def _finish(self, digest: bytes, done: asyncio.Future[bool]) -> None:
        del self._pending[digest]
        if done.cancelled():
            return
        if done.exception() is not None:
            self._failed += 1  # and the waiters get the error itself
            return
        right = done.result()
        self._memory.remember(digest, self._clock_ms(), right=right)
        self._right += right
        self._wrong += not right

    def statistics(self) -> CheckStatistics:
        return CheckStatistics(
            self._recalled,
            self._right,
            self._wrong,
            self._failed,
            self._refused,
            len(self._pending),
            len(self._memory),
        )

    async def close(self) -> None:
        """Starts no more checks; those that wait end as UNAVAILABLE, those that run are awaited.

        Takes at most the time of one check. May be called twice.
        """
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._pending:
            await asyncio.wait(list(self._pending.values()))
