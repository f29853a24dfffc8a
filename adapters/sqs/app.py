"""The application: one HTTP request in, one response out. No framework on this path.

    wire.select -> Gate.admit -> decode -> actions.begin_send -> (stored) -> end -> encode
                                        -> actions.perform, in a task of its own -> encode

Whatever fails is answered as the protocol of the request says. What is no designed error is a bug:
it is logged once with its traceback and answered as InternalFailure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kernel.common.errors import KernelError

from . import error_codes as errors
from . import error_mapping as kernel_errors
from .actions import call_counting as calls
from .actions import table as actions
from .actions.receiving import ClientGone
from .charging import SETTLING, charge_request, count_connection
from .codec import request_protocol as wire
from .environment import Context
from .error_codes import SqsError
from .http import refusal
from .http.request_response import is_too_long

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kernel.common.ports import Random

    from .actions.sending import End, Sending
    from .codec.request_protocol import WireProtocol
    from .codec.shape_base import Shape
    from .codec.shapes import Call
    from .environment import Environment, Peer
    from .gate import Gate
    from .http.request_response import HttpRequest, HttpResponse

_TRACE_HEADER: Final = b"x-amzn-trace-id"
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_COUNTER_DIGITS: Final = 12

Answered = Callable[["HttpResponse | None"], None]
"""Takes the answer to a request; None: the client has gone meanwhile."""

_log = structlog.get_logger("weir.sqs")


class _Exchange(NamedTuple):
    """A request that was admitted, and who waits for its answer."""

    context: Context
    call: Call
    protocol: WireProtocol
    request_id: str
    request_bytes: int
    began_ms: int
    """When it came, by the listener's clock."""
    answered: Answered


class SqsApplication:
    """Answers requests."""

    def __init__(
        self,
        environment: Environment,
        gate: Gate,
        random: Random,
        advertised: Mapping[str, str],
    ) -> None:
        """`advertised`: base of queue URLs by listener, where it is not the request's Host."""
        self._environment = environment
        self._gate = gate
        self._advertised = advertised
        self._request_number = 0
        digits = f"{random.bits(80):020x}"
        self._request_id_prefix = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-"

    def serve(
        self, request: HttpRequest, peer: Peer, answered: Answered, *, is_whole: bool
    ) -> Coroutine[object, object, None] | None:
        """Begin to answer: `answered` is called once, with the answer, now or later. No errors.

        What has more to wait for than the storage of messages is returned, for the caller to run.
        `is_whole` False: the body is left out, because it is too long, or because the head alone
        says that the request is refused.
        """
        self._request_number += 1
        request_id = f"{self._request_id_prefix}{self._request_number:0{_COUNTER_DIGITS}x}"
        protocol = wire.select(request)
        if not is_whole:
            error = None if is_too_long(request) else self.refusal_of(request)
            error = error or SqsError(errors.REQUEST_TOO_LARGE)
            self._note(error, request, peer)
            answered(self._failed(error, protocol, request_id))
            return None
        exchange: _Exchange | None = None
        try:
            exchange = self._admit(request, peer, protocol, request_id, answered)
            if not peer.is_counted and exchange.context.action not in SETTLING:
                count_connection(exchange.context)
            if exchange.context.account.is_limited:
                charge_request(exchange.context)
            begun = actions.begin_send(exchange.context, exchange.call)
        except Exception as error:  # noqa: BLE001 - a bug is answered too: `_failure` logs it
            if exchange is None and isinstance(error, SqsError):
                self._note(error, request, peer)
            answered(self._failure(error, protocol, request_id, exchange))
            return None
        if begun is None:
            return self._carry_out(exchange)
        sending, end = begun
        stored = partial(self._stored, exchange, sending, end)
        if sending.added:
            self._environment.publisher.when_stored(sending.batch, stored)
        else:
            stored()
        return None

    def refusal_of(self, request: HttpRequest) -> SqsError | None:
        """Why a request is refused of which only the head has come; None: it may be served."""
        try:
            self._gate.check_head(request, self._environment.clock.wall_ms() // 1000)
        except SqsError as error:
            return error
        return None

    def _admit(
        self,
        request: HttpRequest,
        peer: Peer,
        protocol: WireProtocol,
        request_id: str,
        answered: Answered,
    ) -> _Exchange:
        environment = self._environment
        caller = self._gate.admit(request, environment.clock.wall_ms() // 1000)
        peer.belongs_to_tenant(caller.tenant)
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
            partial(self._base_url, peer, host),
            trace,
            peer,
            environment.limiter.account_of(caller, peer.listener),
        )
        return _Exchange(
            context, call, protocol, request_id, len(request.body), peer.figures.now_ms(), answered
        )

    async def _carry_out(self, exchange: _Exchange) -> None:
        response: HttpResponse | None = None
        try:
            result = await actions.perform(exchange.context, exchange.call)
            response = self._result(exchange, result)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - as in `serve`
            response = self._failure(error, exchange.protocol, exchange.request_id, exchange)
        exchange.answered(response)

    def _stored(self, exchange: _Exchange, sending: Sending, end: End) -> None:
        try:
            response = self._result(exchange, end(exchange.context, sending))
            exchange.context.peer.figures.stored(exchange.began_ms)
        except Exception as error:  # noqa: BLE001 - as in `serve`
            response = self._failure(error, exchange.protocol, exchange.request_id, exchange)
        exchange.answered(response)

    def _result(self, exchange: _Exchange, result: Shape | None) -> HttpResponse:
        context, call, protocol, request_id, request_bytes, _, _ = exchange
        response = protocol.encode_result(call.action, result, request_id)
        calls.answered(context, result, request_bytes, len(response.body))
        return response

    def _failure(
        self,
        error: Exception,
        protocol: WireProtocol,
        request_id: str,
        exchange: _Exchange | None,
    ) -> HttpResponse:
        """An error as an answer, counted if the request was admitted. To be called while it is
        handled: a bug is logged with its traceback, and is a 500 instead of a mute disconnect.
        """
        if not isinstance(error, SqsError | KernelError):
            _log.exception("request failed", request_id=request_id)
            return self._failed(SqsError(errors.INTERNAL_FAILURE), protocol, request_id)
        if exchange is not None:
            calls.failed(exchange.context, error, exchange.request_bytes)
        if isinstance(error, KernelError):
            error = kernel_errors.from_kernel(error)
        return self._failed(error, protocol, request_id)

    def _note(self, error: SqsError, request: HttpRequest, peer: Peer) -> None:
        """A request was not admitted."""
        reason = refusal.of_error(error)
        if reason is not None:
            self._environment.refused.note(
                peer.listener,
                reason,
                peer.peer,
                access_key=refusal.access_key(request),
                code=error.kind.code,
                message=error.message,
            )

    def _base_url(self, peer: Peer, host: bytes | None) -> str:
        """Scheme and host as this client reaches us, for queue URLs."""
        advertised = self._advertised.get(peer.listener)
        if advertised is not None:
            return advertised if "://" in advertised else f"{peer.scheme}://{advertised}"
        if host is not None and _HOST.fullmatch(host):
            return f"{peer.scheme}://{host.decode('ascii')}"
        return f"{peer.scheme}://{peer.local_address}"

    def _failed(self, error: SqsError, protocol: WireProtocol, request_id: str) -> HttpResponse:
        counters = self._environment.counters
        if error.kind.sender:
            counters.errors_client += 1
        else:
            counters.errors_server += 1
        return protocol.encode_error(error, request_id)
