"""Who may sign in: users, keys and policies of the kernel's metadata records, joined with `auth`.

A record's key is `auth/KIND/...`; its value is what `auth.records` encodes. The store of `auth` is
this process's copy, changed only by what the kernel has committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from auth.directory import Directory
from auth.errors import AuthCode, AuthError
from auth.passwords import PasswordChecker
from auth.policy import Access, PolicyBook
from auth.principal import split_login
from auth.store import AuthStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from auth.development import Development
    from kernel.ports import Clock


class Identity:
    """`adapters.base.SignIn` for every adapter of this process."""

    def __init__(
        self,
        store: AuthStore,
        unseal: Callable[[bytes, bytes], bytes],
        development: Development | None,
        clock: Clock,
    ) -> None:
        self.store = store
        self.directory = Directory(store, unseal, development)
        self.policies = PolicyBook(self.directory)
        self._passwords = PasswordChecker(self.directory.password_hash, clock.monotonic_ms)

    async def sign_in(self, login: str, password: bytes, address: str) -> Access:
        """Check a password (see `adapters.base.SignIn`). `address` is for the operator's log."""
        tenant, name = split_login(login)
        if not await self._passwords.check(tenant, name, password):
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {address}")
        principal = self.directory.principal(tenant, name)
        if principal is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {address}")
        return self.policies.access(principal)

    async def close(self) -> None:
        """End the password checks."""
        await self._passwords.close()
