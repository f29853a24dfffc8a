"""Whether a process is well, over HTTP, and its figures.

/livez      200 while the process answers
/readyz     200 while it serves and takes messages, else 503 and why
/metrics    Prometheus' text form, or OpenMetrics; /metrics/detailed of all topics
/health     (of the API) every check
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import PlainTextResponse, Response

import gateway
from gateway.admin.http.callers import is_known
from gateway.admin.http.requests import answer
from gateway.admin.metrics.process_metrics import render
from gateway.admin.metrics.series_text import END, TextForm, form_of
from gateway.process.slices import Slice
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from prometheus_client.metrics_core import Metric
    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

    from adapters.memory import GatewayMemory
    from auth.private_files.sealed import KeyRing
    from gateway.admin.metrics.topic_metrics import TopicMetrics
    from gateway.reporting.node_metering import NodeMetering

STREAM_S_MAX = 60.0
"""For a client to read its metrics: six times as long as a scraper waits by itself."""

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


def keys_check(keys: KeyRing | None) -> Check:
    """Whether clients have come with access keys that cannot be opened here: an alarm, since others
    are served. None: nobody is served yet.
    """
    if keys is None or keys.lacks is None:
        return Check("keys", True, "")
    reason = (
        f"secrets of access keys are sealed by key {keys.lacks:08x}, which node.key_file here does "
        "not have, so that these clients are refused: copy the key file of the gateway that has "
        "it, and start again"
    )
    return Check("keys", True, reason)


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


class HealthFigures(Collector):
    """Figures of a process, with its checks before them. A reason is words, and stands in `weir
    health` and in events: here is only that there is one.
    """

    def __init__(self, checks: Callable[[], Sequence[Check]], below: Collector) -> None:
        """`checks()`: as `weir health` shows them, looked at now; `below`: all other figures."""
        self._checks = checks
        self._below = below

    def collect(self) -> Iterator[Metric]:
        """Every metric with its value now."""
        label = ["check"]
        passed = GaugeMetricFamily("weir_health_ok", "1: the check is passed.", labels=label)
        text = "1: it is passed, and somebody should look (`weir health` says why)."
        alarm = GaugeMetricFamily("weir_health_alarm", text, labels=label)
        for each in self._checks():
            passed.add_metric([each.name], each.ok)
            alarm.add_metric([each.name], each.ok and bool(each.reason))
        yield from (passed, alarm)
        yield from self._below.collect()


class HealthRoutes:
    """Handlers of health and metrics."""

    def __init__(
        self,
        checks: Callable[[], Sequence[Check]],
        collector: Collector,
        topics: TopicMetrics | None = None,
    ) -> None:
        """`checks()`: what there is to be checked, looked at now; `topics`: None: it serves nobody
        yet.
        """
        self._checks = checks
        self._topics = topics
        self._collector = HealthFigures(checks, collector)

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
        """Figures of the process, of tenants and of selected topics."""
        form = form_of(request.headers.get("accept", ""))
        topics = self._topics
        names = is_known(request)
        parts = topics.totals(form, names=names) if topics is not None else None
        return StreamedText(form, render(self._collector, form), parts)

    async def detailed(self, request: Request) -> Response:
        """Figures of all topics, a family at a time."""
        form = form_of(request.headers.get("accept", ""))
        query = request.query_params
        if self._topics is None:
            raise KernelError(Code.UNAVAILABLE, "this process serves nobody yet")
        asked = query.getlist("family"), query.get("tenant"), query.get("name")
        return StreamedText(form, (), self._topics.detailed(form, *asked))

    async def health(self, request: Request) -> Response:
        """The checks as JSON; 503 if one fails."""
        checks = self._checks()
        ok = all(check.ok for check in checks)
        body = Health("ok" if ok else "unhealthy", gateway.__version__, checks)
        return answer(body, 200 if ok else 503)


class StreamedText(Response):
    """Text that is made while it is sent. A client that has not read all of it after STREAM_S_MAX
    is cut off, so that nobody keeps others from scraping.
    """

    def __init__(
        self, form: TextForm, first: Iterable[bytes], parts: AsyncIterator[bytes] | None = None
    ) -> None:
        """`first`: pieces of text, each made when it is asked for."""
        super().__init__(None, media_type=form.value)
        del self.headers["content-length"]
        self._form = form
        self._first = first
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STREAM_S_MAX):
                head = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **head})
                async for part in _in_slices(self._first):
                    await send(_body(part, more=True))
                if self._parts is not None:
                    async for part in self._parts:
                        await send(_body(part, more=True))
                last = END if self._form is TextForm.OPEN_METRICS else b""
                await send(_body(last, more=False))


async def _in_slices(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """What is made within a slice, together; others have their turn after each."""
    piece = Slice()
    made: list[bytes] = []
    for each in pieces:
        made.append(each)
        if piece.is_over:
            yield b"".join(made)
            made.clear()
            await piece.pause()
    yield b"".join(made)


def _body(part: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": more}
