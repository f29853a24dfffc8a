"""The ASGI application: one HTTP request in, one response out. No framework on this path.

    read body -> wire.select -> Gate.admit -> decode -> actions.perform -> encode -> send

Whatever fails is answered as the protocol of the request says. What is no designed error is a bug:
it is logged once with its traceback and answered as InternalFailure.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from kernel.errors import KernelError

from . import actions, calls, errors, http, kernel_errors, wire
from .environment import LISTENER_KEY, PEER_KEY, Context
from .errors import SqsError
from .http import HttpRequest, HttpResponse
from .query_codec import QUERY_XML
from .receive_actions import ClientGone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kernel.ports import Random

    from .environment import Environment
    from .gate import Gate
    from .wire import WireProtocol

Scope = dict[str, Any]
Event = dict[str, Any]
"""ASGI's open dictionaries (asgi.readthedocs.io, HTTP 2.3)."""

_TRACE_HEADER: Final = b"x-amzn-trace-id"
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_CLOSE: Final = (b"connection", b"close")
_COUNTER_DIGITS: Final = 12

_log = structlog.get_logger("weir.sqs")


class SqsApplication:
    """`application(scope, receive, send)` as ASGI has it, for scopes of type `http`."""

    def __init__(
        self,
        environment: Environment,
        gate: Gate,
        random: Random,
        advertised: Mapping[str, str],
    ) -> None:
        self._environment = environment
        self._gate = gate
        self._advertised = advertised
        self._request_number = 0
        digits = f"{random.bits(80):020x}"
        self._request_id_prefix = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-"

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Event]],
        send: Callable[[Event], Awaitable[None]],
    ) -> None:
        """Serve one request."""
        try:
            response = await self._respond(scope, receive)
        except ClientGone:
            return
        await send(
            {
                "type": "http.response.start",
                "status": response.status,
                "headers": response.headers,
            }
        )
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, scope: Scope, receive: Callable[[], Awaitable[Event]]) -> HttpResponse:
        self._request_number += 1
        request_id = f"{self._request_id_prefix}{self._request_number:0{_COUNTER_DIGITS}x}"
        protocol: WireProtocol = QUERY_XML
        try:
            body = await _read_body(receive)
            request = HttpRequest(
                scope["method"],
                scope["raw_path"],
                scope["query_string"],
                scope["headers"],
                body or b"",
            )
            protocol = wire.select(request)
            if body is None:
                return self._failed(SqsError(errors.REQUEST_TOO_LARGE), protocol, request_id)
            return await self._perform(scope, request, protocol, request_id)
        except SqsError as error:
            return self._failed(error, protocol, request_id)
        except KernelError as error:
            return self._failed(kernel_errors.from_kernel(error), protocol, request_id)
        except ClientGone:
            raise
        except Exception:  # noqa: BLE001 - a bug: logged, and 500 instead of a mute disconnect
            _log.exception("request failed", request_id=request_id)
            return self._failed(SqsError(errors.INTERNAL_FAILURE), protocol, request_id)

    async def _perform(
        self,
        scope: Scope,
        request: HttpRequest,
        protocol: WireProtocol,
        request_id: str,
    ) -> HttpResponse:
        environment = self._environment
        caller = self._gate.admit(request, environment.clock.wall_ms() // 1000)
        call = protocol.decode(request)
        if protocol.name == "json":
            environment.counters.requests_json += 1
        else:
            environment.counters.requests_query += 1

        host = trace = None
        for name, value in request.headers:
            if name == b"host":
                host = value
            elif name == _TRACE_HEADER:
                trace = value
        context = Context(
            environment,
            caller,
            call.action.name,
            partial(self._base_url, scope, host),
            trace,
            scope["state"][PEER_KEY],
        )
        try:
            result = await actions.perform(context, call)
        except (SqsError, KernelError) as error:
            calls.failed(context, error, len(request.body))
            raise
        response = protocol.encode_result(call.action, result, request_id)
        calls.answered(context, result, len(request.body), len(response.body))
        return response

    def _base_url(self, scope: Scope, host: bytes | None) -> str:
        """Scheme and host as this client reaches us, for queue URLs."""
        advertised = self._advertised.get(scope["state"].get(LISTENER_KEY, ""))
        if advertised is not None:
            return advertised if "://" in advertised else f"{scope['scheme']}://{advertised}"
        if host is not None and _HOST.fullmatch(host):
            return f"{scope['scheme']}://{host.decode('ascii')}"
        server_host, server_port = scope["server"]
        return f"{scope['scheme']}://{server_host}:{server_port}"

    def _failed(self, error: SqsError, protocol: WireProtocol, request_id: str) -> HttpResponse:
        counters = self._environment.counters
        if error.kind.sender:
            counters.errors_client += 1
        else:
            counters.errors_server += 1
        response = protocol.encode_error(error, request_id)
        if error.kind is errors.REQUEST_TOO_LARGE:
            # The rest of the body is not read: what follows it could not be found.
            response.headers.append(_CLOSE)
        return response


async def _read_body(receive: Callable[[], Awaitable[Event]]) -> bytes | None:
    """The body; None if it is longer than any valid one. Raises ClientGone."""
    event = await receive()
    if event["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = event["body"]
    if not event["more_body"]:
        return body if len(body) <= http.REQUEST_BYTES_MAX else None
    parts = [body]
    size = len(body)
    while event["more_body"]:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        parts.append(event["body"])
        size += len(event["body"])
        if size > http.REQUEST_BYTES_MAX:
            return None
    return b"".join(parts)
