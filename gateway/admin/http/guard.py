"""Who may reach the admin side: the name it is called by, and the token or login it is shown.

- The Host header must be an address, `localhost` or a name of this listener. A page in somebody's
  browser can point a name of its own at this machine, but never an address or `localhost`.
- The console's own files are open: they hold no data. /livez and /readyz are open; /metrics is open
  on loopback, without the names of topics, unless another address is advertised: then a proxy lets
  others in. All else asks for `Authorization: Bearer TOKEN` (DATA/admin.token) or the Basic login
  of a user; or for the cookie and the key of a session that a browser was given for these
  (`gateway.admin.console.browser_sessions`), or for `Authorization: Code CODE`, which is good for
  once. What the caller may do is decided by route (`callers`).

Paths are matched as they were sent, percent-encoded, so that a name may hold a slash.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from auth.errors import AuthCode, AuthError
from auth.loopback import is_loopback
from gateway.admin.console.browser_sessions import set_session
from gateway.admin.http.callers import (
    ANYBODY,
    OPERATOR,
    Caller,
    set_caller,
)
from gateway.admin.http.errors import answer_to, error_answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from auth.private_files.tokens import AdminToken
    from gateway.access.identity import Identity
    from gateway.admin.console.browser_sessions import BrowserSessions
    from gateway.config.schema import Listener

OPEN_PATHS = frozenset({"/livez", "/readyz", "/"})
STATIC_PATH = "/static/"
METRICS_PATH = "/metrics"

KEY_HEADER = "x-weir-key"


def _none(_name: str) -> bool:
    return False


def cookie_name(request: Request) -> str:
    """Of a browser session's: with the port, for cookies are shared by all ports of a host."""
    server = request.scope.get("server") or ("", 0)
    return f"weir_{server[1]}"


class CalledHere:
    """ASGI middleware of a listener on loopback, where everybody knows a login: a page in
    somebody's browser cannot ask by a name that it has pointed here.
    """

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app = app
        self._names = _names_of(listener)
        self._is_asked = is_loopback(listener.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, hand on the rest."""
        host = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
        if self._is_asked and scope["type"] == "http" and not _is_ours(self._names, host):
            answer = error_answer(400, "wrong_host", f"this server is not called {host!r}")
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Guard:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        token: AdminToken,
        identity: Identity | None,
        is_tenant: Callable[[str], bool] = _none,
        sessions: BrowserSessions | None = None,
        administers: Callable[[Caller], bool] = bool,
    ) -> None:
        """`identity`: None where there are no logins, as in a store; `is_tenant`: whether there is
        a tenant of a name; `sessions`: None where there is no console; `administers`: whether a
        caller may administer anything.
        """
        self.application = app
        """What is guarded."""
        self._names = _names_of(listener)
        is_here = is_loopback(listener.host) and listener.advertised is None
        self._open = OPEN_PATHS | ({METRICS_PATH} if is_here else set())
        self._token = token
        self._identity = identity
        self._is_tenant = is_tenant
        self._sessions = sessions
        self._administers = administers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, hand on the rest."""
        if scope["type"] != "http":
            return
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        request = Request(scope)
        host = request.headers.get("host", "")
        if not _is_ours(self._names, host):
            answer = error_answer(400, "wrong_host", f"this server is not called {host!r}")
            await answer(scope, receive, send)
            return
        try:
            # What is open is open to everybody as it is to the operator; /metrics says more to
            # whoever signs in.
            path = scope["path"]
            shown = path == METRICS_PATH and request.headers.get("authorization", "")
            is_open = path.startswith(STATIC_PATH) or (path in self._open and not shown)
            set_caller(scope, ANYBODY if is_open else await self._caller(request))
        except AuthError as error:
            await answer_to(error)(scope, receive, send)
            return
        try:
            await self.application(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the process cuts a request short.
            stopping = error_answer(503, "stopping", "the server is stopping", retryable=True)
            await stopping(scope, receive, send)

    async def _caller(self, request: Request) -> Caller:
        """Who it is. Raises AuthError."""
        by_browser = self._by_browser(request)
        if by_browser is not None:
            return by_browser
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._token.matches(shown.strip().encode()):
            return OPERATOR
        if scheme.lower() == "basic" and self._identity is not None:
            login, password = self._login(shown)
            client = request.client
            return Caller(
                await self._identity.sign_in(login, password, client.host if client else "?")
            )
        or_login = ", or an administrator's login" if self._identity is not None else ""
        message = f"the admin API asks for the token in DATA/admin.token{or_login}"
        raise AuthError(AuthCode.BAD_CREDENTIALS, message)

    def _by_browser(self, request: Request) -> Caller | None:
        """Who has signed in with a browser, or does so by a code; None: whoever it is shows
        something else. Raises AuthError BAD_CREDENTIALS.
        """
        if self._sessions is None:
            return None
        shown = request.headers.get("authorization")
        if shown is None:
            cookie, key = request.cookies.get(cookie_name(request)), request.headers.get(KEY_HEADER)
            if cookie is None or key is None:
                return None
            session = self._sessions.find(cookie, key, self._administers)
            if session is None:
                raise AuthError(AuthCode.BAD_CREDENTIALS, "you are signed out: sign in again")
            set_session(request.scope, session)
            return session.caller
        scheme, _, code = shown.partition(" ")
        if scheme.lower() != "code":
            return None
        caller = self._sessions.redeem(code.strip())
        if caller is None:
            message = "this address has signed somebody in already, or is too old"
            raise AuthError(AuthCode.BAD_CREDENTIALS, message)
        return caller

    def _login(self, shown: str) -> tuple[str, bytes]:
        """Login and password of Basic credentials. Raises AuthError BAD_CREDENTIALS.

        A colon parts them (RFC 7617), and so it does a tenant from its user: what begins with the
        name of a tenant has one. Of a user of `default` who is called like a tenant, and whose
        password holds a colon, that is said in full: `default:USER:PASSWORD`.
        """
        name, password = _basic(shown)
        user, colon, rest = password.partition(b":")
        if colon and self._is_tenant(name):
            try:
                return f"{name}:{user.decode()}", rest
            except UnicodeDecodeError:
                # No user is called so; the password may have such bytes.
                pass
        return name, password


def _names_of(listener: Listener) -> frozenset[str]:
    """What a listener is called."""
    names = {"localhost", listener.host.lower()}
    if listener.advertised is not None:
        names.add(_host_of(listener.advertised.lower()))
    return frozenset(names)


def _is_ours(names: frozenset[str], host: str) -> bool:
    name = _host_of(host.lower())
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_of(header: str) -> str:
    """The host of a Host header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _basic(shown: str) -> tuple[str, bytes]:
    """What stands before and after the first colon of Basic credentials (RFC 7617). Raises
    AuthError BAD_CREDENTIALS.
    """
    try:
        login, colon, password = base64.b64decode(shown, validate=True).partition(b":")
        if colon:
            return login.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise AuthError(AuthCode.BAD_CREDENTIALS, "the Basic credentials cannot be read")
