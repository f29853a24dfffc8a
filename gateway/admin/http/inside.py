"""The admin API asked from inside the process (`adapters.base.Administration`): the same handlers,
rights, bounds and audit as over HTTP, without a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from auth.policies.policy_decisions import Access
from gateway.admin.http.callers import OPERATOR, Caller, set_caller
from gateway.admin.openapi import API_PATH
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Scope

    from adapters.base import Rights

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer, which is held whole: the definitions of some 100,000 topics."""


class Inside:
    """The admin side of this process, once there is one."""

    def __init__(self) -> None:
        self.application: ASGIApp | None = None
        """Behind its guard: who asks has signed in elsewhere."""

    async def ask(
        self,
        rights: Rights | None,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """As `adapters.base.Administration.ask`. Raises KernelError UNAVAILABLE, TOO_LARGE."""
        if self.application is None:
            raise KernelError(Code.UNAVAILABLE, "this process does not serve its API yet")
        caller = OPERATOR
        if rights is not None:
            assert isinstance(rights, Access), "only a listener without users gives other rights"
            caller = Caller(rights)
        whole = f"{API_PATH}{path}"
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": whole,
            "raw_path": whole.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [],
        }
        set_caller(scope, caller)
        status, size, parts = 0, 0, []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                return
            part = message.get("body", b"")
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise KernelError(Code.TOO_LARGE, f"an answer has {ANSWER_BYTES_MAX} bytes at most")
            parts.append(part)

        await self.application(scope, receive, send)
        return status, b"".join(parts)
