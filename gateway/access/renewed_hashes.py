"""Hashes of passwords that were brought from another broker, replaced by ones of our own: once a
password has fitted such a hash, the record gets argon2id of the same password.

    sign-in is right -> asked for here (PENDING_MAX) -> argon2id in a thread, one at a time
                     -> the user's record, if it still has the version that was read

No answer waits for it, and nothing depends on it: whoever is turned away here, or was altered by
somebody else meanwhile, is renewed at the next sign-in. Two gateways that do it at once do it once.
Who is connected stays so: rights have not changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from auth.errors import AuthError
from auth.password_checks.passwords import hash_password
from auth.password_checks.salted_hashes import is_salted
from kernel.api.client import PutRecord
from kernel.common.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from auth.users.records import User
    from auth.users.store import AuthStore
    from kernel.api.client import Client

PENDING_MAX: Final = 256
"""Passwords held for it at a time, of 4 KiB at most: ten seconds of one thread. One more waits for
its user's next sign-in."""

_log = structlog.get_logger("weir.identity")


class RenewedHashes:
    """Of one gateway. Belongs to its event loop."""

    def __init__(
        self, store: AuthStore, key_of: Callable[[User], str], encode: Callable[[User], bytes]
    ) -> None:
        """`key_of`, `encode`: of a user's metadata record (`gateway.access.identity`)."""
        self._store = store
        self._key_of = key_of
        self._encode = encode
        self._waiting: dict[tuple[str, str], bytes] = {}
        """Passwords that have fitted, by tenant and user; the first is being hashed."""
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None

    def follow(self, client: Client) -> None:
        """Write there from now on."""
        self._client = client

    def signed_in(self, tenant: str, name: str, password: bytes) -> None:
        """A password has fitted a user's hash just now."""
        user = self._store.user(tenant, name)
        if user is None or not is_salted(user.password_hash) or self._client is None:
            return
        if (tenant, name) in self._waiting or len(self._waiting) >= PENDING_MAX:
            return
        self._waiting[tenant, name] = password
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._client))

    async def _run(self, client: Client) -> None:
        while self._waiting:
            (tenant, name), password = next(iter(self._waiting.items()))
            try:
                await self._renew(client, tenant, name, password)
            except (KernelError, AuthError) as error:
                reason = error.message
                _log.info("password hash not renewed yet", tenant=tenant, user=name, reason=reason)
            finally:
                del self._waiting[tenant, name]
        self._task = None

    async def _renew(self, client: Client, tenant: str, name: str, password: bytes) -> None:
        """Raises KernelError: among others ALREADY_EXISTS, the record has been altered."""
        user = self._store.user(tenant, name)
        if user is None or not is_salted(user.password_hash):
            return
        hashed = await asyncio.to_thread(hash_password, password)
        renewed = msgspec.structs.replace(user, password_hash=hashed)
        change = PutRecord(self._key_of(user), self._encode(renewed), user.version)
        await client.administer(change)

    async def close(self) -> None:
        """Renew nothing more."""
        self._client = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._waiting.clear()
