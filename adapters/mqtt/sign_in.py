"""Who may connect, by the users of the store: user name and password of CONNECT."""

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


class StoreSignIn:
    """`MqttSignIn` by the users of the store."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def sign_in(self, login: Login) -> Rights:
        """Check user name and password. Raises AuthError BAD_CREDENTIALS without a user name."""
        if login.username is None:
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"no user name from {login.address}")
        return await self._users.sign_in(
            login.username, login.password or b"", login.address, login.client_id
        )
