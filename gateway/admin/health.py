"""Whether a process is well, over HTTP, and its figures.

/livez      200 while the process answers
/readyz     200 while it serves and takes messages, else 503 and why
/metrics    Prometheus' text form
/health     (of the API) every check
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.responses import PlainTextResponse, Response

import gateway
from gateway.admin.http.requests import answer
from gateway.admin.metrics.process_metrics import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector
    from starlette.requests import Request

    from adapters.memory import GatewayMemory
    from gateway.reporting.node_metering import NodeMetering

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


MEMORY_ALARM_SHARE = 0.75
"""Of a budget: when it is used up, clients are dropped until seven eighths are used, so that a
flood is one alarm."""


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
    checks: Sequence[Check]


def serving_check(*, ready: bool) -> Check:
    """Whether every listener is bound and the process is not stopping."""
    return Check("serving", ready, "" if ready else "the node is starting or stopping")


def metering_check(metering: NodeMetering | None) -> Check:
    """Whether what is served is counted; `metering` None: that is switched off."""
    unmetered = metering.failure if metering is not None else ""
    return Check("metering", not unmetered, unmetered)


def memory_check(memory: GatewayMemory | None) -> Check:
    """Whether clients hold so much here that some may soon be dropped: an alarm. None: nobody is
    served yet.
    """
    if memory is None:
        return Check("memory", True, "")
    near = [
        f"{name} takes more than {MEMORY_ALARM_SHARE:.0%} of its {pool.bytes_max} bytes"
        for name, pool in (("unfinished input", memory.input), ("unread output", memory.output))
        if pool.bytes > MEMORY_ALARM_SHARE * pool.bytes_max
    ]
    return Check("memory", True, "; ".join(near))


class HealthRoutes:
    """Handlers of health and metrics."""

    def __init__(self, checks: Callable[[], Sequence[Check]], collector: Collector) -> None:
        """`checks()`: what there is to be checked, looked at now."""
        self._checks = checks
        self._collector = collector

    async def live(self, request: Request) -> Response:
        """The process answers."""
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        """The node serves."""
        # A node that cannot meter goes on serving: it is unhealthy, but not out of service.
        checks = [check for check in self._checks() if check.name != "metering"]
        wrong = [f"{check.reason}\n" for check in checks if not check.ok]
        if wrong:
            return PlainTextResponse("".join(wrong), status_code=503)
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        """Every figure."""
        return Response(render(self._collector), media_type=METRICS_TYPE)

    async def health(self, request: Request) -> Response:
        """The checks as JSON; 503 if one fails."""
        checks = self._checks()
        ok = all(check.ok for check in checks)
        body = Health("ok" if ok else "unhealthy", gateway.__version__, checks)
        return answer(body, 200 if ok else 503)
