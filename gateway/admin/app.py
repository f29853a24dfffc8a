"""The admin side as one application: health and metrics at the top, the API below /api/v1.

/livez      200 while the process answers
/readyz     200 while it serves every protocol and takes messages, else 503 and why
/metrics    Prometheus' text form
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

import gateway
from auth.errors import AuthError
from gateway.admin.errors import http_error, internal_error, kernel_or_auth_error
from gateway.admin.guard import METRICS_PATH, Guard
from gateway.admin.messages import MessageRoutes
from gateway.admin.metering import MeteringRoutes
from gateway.admin.metrics import render
from gateway.admin.requests import answer
from gateway.admin.routers import RouterRoutes
from gateway.admin.topics import TopicRoutes
from gateway.admin.users import PrincipalRoutes
from kernel.errors import KernelError
from kernel.store.disk_watch import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from auth.tokens import AdminToken
    from gateway.admin.metrics import NodeCollector
    from gateway.admin.principals import Principals
    from gateway.admin.store_view import StoreView
    from gateway.config_schema import Listener
    from gateway.identity import Identity
    from gateway.node_metering import NodeMetering
    from kernel.client import Client
    from kernel.ports import Clock

API_PATH = "/api/v1"

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin side is made of."""

    client: Client
    view: StoreView
    principals: Principals
    identity: Identity
    token: AdminToken
    collector: NodeCollector
    is_ready: Callable[[], bool]
    """Whether every listener is bound and the node is not stopping."""
    clock: Clock
    metering: NodeMetering | None = None
    """None: switched off."""


class Check(Struct, frozen=True):
    """One question about the node; `reason` is empty if all is well. An alarm is `ok`, with a
    reason.
    """

    name: str
    ok: bool
    reason: str


class Health(Struct, frozen=True):
    status: str
    """`ok` or `unhealthy`."""
    version: str
    checks: list[Check]


class HealthRoutes:
    """Handlers of health and metrics."""

    def __init__(self, parts: AdminParts) -> None:
        self._parts = parts

    def checks(self) -> list[Check]:
        """Every check, made now."""
        ready, accepting = self._parts.is_ready(), self._parts.client.accepting
        low = self._parts.view.disk_space().level is not DiskLevel.OK
        alarm = "free disk is below twice the mark for new messages" if low else ""
        metering = self._parts.metering
        unmetered = metering.failure if metering is not None else ""
        return [
            Check("serving", ready, "" if ready else "the node is starting or stopping"),
            Check(
                "disk",
                accepting,
                alarm if accepting else "free disk is below the mark: new messages are refused",
            ),
            Check("metering", not unmetered, unmetered),
        ]

    async def live(self, request: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """The node serves."""
        # A node that cannot meter goes on serving: it is unhealthy, but not out of service.
        checks = [check for check in self.checks() if check.name != "metering"]
        wrong = [f"{check.reason}\n" for check in checks if not check.ok]
        if wrong:
            return PlainTextResponse("".join(wrong), status_code=503)
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """Every figure."""
        return Response(render(self._parts.collector), media_type=METRICS_TYPE)

    async def health(self, request: Request) -> Response:
        """The checks as JSON; 503 if one fails."""
        checks = self.checks()
        ok = all(check.ok for check in checks)
        body = Health("ok" if ok else "unhealthy", gateway.__version__, checks)
        return answer(body, 200 if ok else 503)


def build_app(listener: Listener, parts: AdminParts) -> ASGIApp:
    """The application of one listener, behind its guard."""
    health = HealthRoutes(parts)
    api = [
        Route("/health", health.health, methods=["GET"]),
        *TopicRoutes(parts.client, parts.view, parts.clock).routes(),
        *RouterRoutes(parts.client, parts.view).routes(),
        *MessageRoutes(parts.client, parts.view, parts.clock).routes(),
        *PrincipalRoutes(parts.principals).routes(),
        *MeteringRoutes(parts.metering).routes(),
    ]
    app = Starlette(
        routes=[
            Route("/livez", health.live, methods=["GET"]),
            Route("/readyz", health.ready, methods=["GET"]),
            Route(METRICS_PATH, health.metrics, methods=["GET"]),
            Mount(API_PATH, routes=api),
        ],
        exception_handlers={
            KernelError: kernel_or_auth_error,
            AuthError: kernel_or_auth_error,
            HTTPException: http_error,
            Exception: internal_error,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, listener, parts.token, parts.identity)
