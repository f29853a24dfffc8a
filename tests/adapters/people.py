"""Users with policies of their own, as the gateway's sign-in has them, for tests of rights."""

from __future__ import annotations

import msgspec

from auth.errors import AuthCode, AuthError
from auth.policies.policy_decisions import Access, PolicyBook
from auth.principal import split_login
from auth.users.records import Alter, Create
from tests.auth.makers import apply, directory_of, policy, user

PASSWORD = b"secret"
"""Everybody's."""


class People:
    """`adapters.base.SignIn` over a store of users, each with one policy of the same name."""

    def __init__(self, **rules: tuple[str, ...]) -> None:
        """Each user's rules, by login: `ann=("allow consume tree:a/#",)`."""
        self.store, self._directory = directory_of()
        self._book = PolicyBook(self._directory)
        for login, lines in rules.items():
            self.add(login, *lines)

    def add(self, login: str, *lines: str) -> None:
        """A new user."""
        tenant, name = split_login(login)
        apply(self.store, Create(policy(name, *lines, tenant=tenant)))
        apply(self.store, Create(user(name, name, tenant=tenant)))

    def may(self, login: str, *lines: str) -> None:
        """From now on a user has these rules and no others."""
        tenant, name = split_login(login)
        old = self.store.policy(tenant, name)
        assert old is not None
        new = msgspec.structs.replace(policy(name, *lines, tenant=tenant), version=old.version)
        apply(self.store, Alter(new))

    def access(self, login: str, client_id: str | None = None) -> Access:
        """The rights of somebody on one connection."""
        tenant, name = split_login(login)
        principal = self._directory.principal(tenant, name)
        if principal is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, "no such user")
        return self._book.access(principal, client_id)

    async def sign_in(
        self, login: str, password: bytes, address: str, client_id: str | None = None
    ) -> Access:
        """See `adapters.base.SignIn`."""
        if password != PASSWORD:
            raise AuthError(AuthCode.BAD_CREDENTIALS, "wrong password")
        return self.access(login, client_id)
