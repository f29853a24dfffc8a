"""What happens, over HTTP.

GET /events?after=&limit=&wait=    the events after a number; `wait`: so many seconds for the first
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from gateway.admin.http.requests import PAGE_DEFAULT, PAGE_MAX, answer, number
from gateway.reporting.events import EVENTS, Event

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

WAIT_S_MAX: Final = 20
"""Longer is asked for again: proxies cut silent requests off after 30 s."""

LOOK_S: Final = 0.25
"""How often somebody who waits is looked after: lines come from threads, which wake nobody."""


class EventPage(Struct, frozen=True):
    events: list[Event]
    next: int
    """What `after` is for those that follow."""
    lost: int
    """Events between `after` and the first of these that are kept no more."""


class EventRoutes:
    """Handlers of events."""

    async def list_events(self, request: Request) -> Response:
        """Events in the order in which they came."""
        after = min(number(request, "after", 0), EVENTS.last)
        most = number(request, "limit", PAGE_DEFAULT, least=1, most=PAGE_MAX)
        wait_s = number(request, "wait", 0, most=WAIT_S_MAX)
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        while EVENTS.last <= after and loop.time() < ends:  # noqa: ASYNC110 - LOOK_S says why
            await asyncio.sleep(LOOK_S)
        found, lost = EVENTS.after(after, most)
        following = found[-1].number if found else after
        return answer(EventPage(found, following, lost))
