"""Answers that are made while they are sent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from gateway.admin.http.errors import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

STREAM_S_MAX: Final = 60.0
"""For a client to read it: as long as `weir` waits for any answer."""


class StreamedJson(Response):
    """JSON in pieces. A client that has not read all of it after STREAM_S_MAX is cut off. What
    fails before the first piece is answered as any failure; later, the answer is cut off.
    """

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__(None, media_type=JSON_TYPE)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it."""
        part = await anext(self._parts)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STREAM_S_MAX):
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
                while part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    part = await anext(self._parts, b"")
                await send({"type": "http.response.body", "body": b"", "more_body": False})
