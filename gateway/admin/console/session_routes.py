"""Signing in and out with a browser, over HTTP.

POST   /console/session     with the credentials of any request: opens a session
GET    /console/session     who it is, and what they administer
DELETE /console/session     signs out
POST   /console/codes       a code that signs in once as who asks for it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

import gateway
from gateway.admin.console.browser_sessions import session_of
from gateway.admin.http.callers import caller_of
from gateway.admin.http.guard import cookie_name
from gateway.admin.http.requests import answer, nothing
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.console.browser_sessions import BrowserSessions
    from gateway.admin.resources.tenants import KnownTenants

COOKIE_PATH = "/api/v1"


class SignedIn(Struct, frozen=True, kw_only=True):
    """Whoever asks. `key`: what the header `x-weir-key` holds from now on; of a session just opened
    only.
    """

    user: str
    tenant: str
    administers_node: bool
    tenants: list[str]
    """Those that they administer."""
    node: str
    version: str
    in_cluster: bool
    key: str | None = None


class SignInCode(Struct, frozen=True):
    code: str


class SessionRoutesOfConsole:
    """Handlers of browser sessions."""

    def __init__(
        self, sessions: BrowserSessions, tenants: KnownTenants, node: str, *, in_cluster: bool
    ) -> None:
        """`node`: what this process is called."""
        self._sessions = sessions
        self._tenants = tenants
        self._node = node
        self._in_cluster = in_cluster

    async def sign_in(self, request: Request) -> Response:
        """Open a browser session as whoever asks; the cookie that comes back is half of it."""
        if session_of(request) is not None:
            raise KernelError(Code.INVALID_ARGUMENT, "this takes credentials, not a session")
        found = self._who(request)
        cookie, session = self._sessions.begin(caller_of(request))
        response = answer(replace(found, key=session.key), 201)
        response.set_cookie(
            cookie_name(request),
            cookie,
            path=COOKIE_PATH,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def show_sign_in(self, request: Request) -> Response:
        """Who asks, and which tenants they administer."""
        return answer(self._who(request))

    async def sign_out(self, request: Request) -> Response:
        """End the browser session that asks."""
        self._tenants.administered(request)
        session = session_of(request)
        if session is None:
            raise KernelError(Code.INVALID_ARGUMENT, "this is no browser session")
        self._sessions.end(session)
        response = nothing()
        response.delete_cookie(
            cookie_name(request), path=COOKIE_PATH, httponly=True, samesite="strict"
        )
        return response

    async def make_code(self, request: Request) -> Response:
        """A code that signs a browser in once, within the hour, as whoever asks."""
        self._tenants.administered(request)
        return answer(SignInCode(self._sessions.code(caller_of(request))), 201)

    def _who(self, request: Request) -> SignedIn:
        """Raises KernelError NOT_ALLOWED if they administer nothing."""
        tenants = self._tenants.administered(request)
        caller = caller_of(request)
        return SignedIn(
            user=caller.name,
            tenant=caller.tenant,
            administers_node=caller.administers_node,
            tenants=tenants,
            node=self._node,
            version=gateway.__version__,
            in_cluster=self._in_cluster,
        )
