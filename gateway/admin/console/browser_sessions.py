"""Who has signed in with a browser, and until when. In memory: a process that ends signs all out.

A session is opened by the credentials that the API takes anyway, or by a code that whoever has them
was given for once (`weir console`, and on loopback the line of `weir serve`). From then on the
browser shows two things, both random, and neither is enough:

    cookie       HttpOnly, SameSite=Strict: no script reads it, no page of another site sends it
    key          header `x-weir-key`: known to the console's pages alone, which keep it by origin

Cookies do not know ports: whatever else is served at 127.0.0.1 gets ours, and may set one of its
own. So reading asks for the key as well as changing does. It is the token against forged requests
too: no form and no foreign page can send that header.

A session ends when it is signed out of, IDLE_S after its last request, WHOLE_S after its first,
when its user is removed, disabled or signed out, or may administer nothing any more, and when there
are too many (`shared_room`).
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from gateway.admin.shared_room import SharedRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import Scope

    from gateway.admin.http.callers import Caller
    from kernel.common.ports import Clock, Random

SESSIONS_MAX: Final = 1_000
"""People at one gateway; a session takes 1 KiB."""

OF_ONE_MAX: Final = 32
"""Of one user, or of the token: browsers and windows of one person."""

CODES_MAX: Final = 64

IDLE_S: Final = 3_600
"""A page that is open asks every few seconds: this long nobody has had one open."""

WHOLE_S: Final = 12 * 3_600
"""A working day."""

CODE_S: Final = 3_600
"""From the line that shows it to the click."""

SECRET_BITS: Final = 256

_SCOPE_KEY: Final = "weir.browser_session"


class BrowserSession:
    """One that is open."""

    __slots__ = ("begun_ms", "caller", "key", "name", "rules", "used_ms")

    def __init__(self, caller: Caller, name: bytes, key: str, now_ms: int) -> None:
        """`name`: the digest of what its cookie holds."""
        self.caller = caller
        self.name = name
        self.key = key
        self.begun_ms = self.used_ms = now_ms
        self.rules = caller.rules
        """By which it was last seen that the caller administers something."""


class BrowserSessions:
    """Those of one process."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._open: SharedRoom[bytes, BrowserSession] = SharedRoom(SESSIONS_MAX, OF_ONE_MAX)
        self._codes: SharedRoom[bytes, tuple[Caller, int]] = SharedRoom(CODES_MAX, OF_ONE_MAX)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, caller: Caller) -> tuple[str, BrowserSession]:
        """Open one: (what its cookie holds, the session). Never one that a browser came with."""
        cookie = self._secret()
        session = BrowserSession(
            caller, _digest(cookie), self._secret(), self._clock.monotonic_ms()
        )
        self._open.put(str(caller), session.name, session)
        return cookie, session

    def find(
        self, cookie: str, key: str, administers: Callable[[Caller], bool]
    ) -> BrowserSession | None:
        """The open session of a cookie and a key; `administers`: whether a caller may administer
        anything.
        """
        name = _digest(cookie)
        session = self._open.use(name)
        if session is None or not compare_digest(session.key.encode(), key.encode()):
            return None
        now_ms = self._clock.monotonic_ms()
        if (
            now_ms - session.used_ms >= IDLE_S * 1_000
            or now_ms - session.begun_ms >= WHOLE_S * 1_000
            or not self._may_stay(session, administers)
        ):
            self._open.remove(name)
            return None
        session.used_ms = now_ms
        return session

    def _may_stay(self, session: BrowserSession, administers: Callable[[Caller], bool]) -> bool:
        if not session.caller.is_alive:
            return False
        rules = session.caller.rules
        if rules is session.rules:
            return True
        session.rules = rules
        return administers(session.caller)

    def end(self, session: BrowserSession) -> None:
        """Sign out."""
        self._open.remove(session.name)

    # --- Codes ------------------------------------------------------------------------------

    def code(self, caller: Caller) -> str:
        """What signs somebody in as a caller, once, within CODE_S."""
        code = self._secret()
        until_ms = self._clock.monotonic_ms() + CODE_S * 1_000
        self._codes.put(str(caller), _digest(code), (caller, until_ms))
        return code

    def redeem(self, code: str) -> Caller | None:
        """Who a code signs in; it does so no more."""
        found = self._codes.remove(_digest(code))
        if found is None:
            return None
        caller, until_ms = found
        is_good = self._clock.monotonic_ms() < until_ms and caller.is_alive
        return caller if is_good else None

    def _secret(self) -> str:
        return f"{self._random.bits(SECRET_BITS):064x}"


def _digest(secret: str) -> bytes:
    """What is looked up: how long that takes tells nothing of the secret."""
    return sha256(secret.encode()).digest()


def set_session(scope: Scope, session: BrowserSession) -> None:
    """Say by which browser session a request was let in."""
    scope[_SCOPE_KEY] = session


def session_of(request: Request) -> BrowserSession | None:
    """The browser session that a request came by; None: it showed credentials itself."""
    found: BrowserSession | None = request.scope.get(_SCOPE_KEY)
    return found
