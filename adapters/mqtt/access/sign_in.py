"""Who may connect, by the users of the store: user name and password of CONNECT, or a certificate
that names the user, to which CONNECT adds no password and no other name.

A client that gives neither comes in only if a user is named for such: it has that user's policies,
and nobody asks for a password. So what strangers may do is written down where everybody's rights
are, changes with them at once, and ends when that user is removed or disabled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from auth.errors import AuthCode, AuthError

if TYPE_CHECKING:
    from adapters.base import Rights
    from adapters.mqtt.environment import Login


class Users(Protocol):
    """The gateway's sign-in (`adapters.base.SignIn`), for connections that have a client id."""

    async def sign_in(
        self, login: str, password: bytes, address: str, client_id: str | None = None
    ) -> Rights:
        """As `SignIn.sign_in`; `client_id` is what `${clientid}` stands for in policies."""

    def without_password(self, login: str, address: str, client_id: str | None = None) -> Rights:
        """The rights of a user, for whoever is taken for it. Raises AuthError BAD_CREDENTIALS:
        there is none of that name, or it is disabled.
        """


class StoreSignIn:
    """`MqttSignIn` by the users of the store."""

    def __init__(self, users: Users, anonymous_user: str = "") -> None:
        """`anonymous_user`: `[TENANT:]NAME` of whom clients without user name and password are;
        empty: they are refused.
        """
        self._users = users
        self._anonymous_user = anonymous_user

    async def sign_in(self, login: Login) -> Rights:
        """Check user name and password. Raises AuthError BAD_CREDENTIALS."""
        if login.password is None and login.username in {None, login.certified}:
            found = login.certified or self._anonymous_user
            if found:
                return self._users.without_password(found, login.address, login.client_id)
        if login.username is not None:
            return await self._users.sign_in(
                login.username, login.password or b"", login.address, login.client_id
            )
        raise AuthError(AuthCode.BAD_CREDENTIALS, f"no user name from {login.address}")
