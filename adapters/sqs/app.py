"""The application: one HTTP request in, one response out. No framework on this path.

    wire.select -> Gate.admit -> decode -> actions.perform -> encode

Whatever fails is answered as the protocol of the request says. What is no designed error is a bug:
it is logged once with its traceback and answered as InternalFailure.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from kernel.errors import KernelError

from . import actions, calls, errors, kernel_errors, wire
from .environment import Context
from .errors import SqsError
from .receive_actions import ClientGone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.ports import Random

    from .environment import Environment, Peer
    from .gate import Gate
    from .http import HttpRequest, HttpResponse
    from .wire import WireProtocol

_TRACE_HEADER: Final = b"x-amzn-trace-id"
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_COUNTER_DIGITS: Final = 12

_log = structlog.get_logger("weir.sqs")


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

    async def respond(
        self, request: HttpRequest, peer: Peer, *, is_whole: bool
    ) -> HttpResponse | None:
        """The answer; None if the client has gone meanwhile. Raises nothing.

        `is_whole` False: the body was too long and is left out.
        """
        self._request_number += 1
        request_id = f"{self._request_id_prefix}{self._request_number:0{_COUNTER_DIGITS}x}"
        protocol = wire.select(request)
        try:
            if not is_whole:
                return self._failed(SqsError(errors.REQUEST_TOO_LARGE), protocol, request_id)
            return await self._perform(request, peer, protocol, request_id)
        except SqsError as error:
            return self._failed(error, protocol, request_id)
        except KernelError as error:
            return self._failed(kernel_errors.from_kernel(error), protocol, request_id)
        except ClientGone:
            return None
        except Exception:  # noqa: BLE001 - a bug: logged, and 500 instead of a mute disconnect
            _log.exception("request failed", request_id=request_id)
            return self._failed(SqsError(errors.INTERNAL_FAILURE), protocol, request_id)

    async def _perform(
        self, request: HttpRequest, peer: Peer, protocol: WireProtocol, request_id: str
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
            partial(self._base_url, peer, host),
            trace,
            peer,
        )
        try:
            result = await actions.perform(context, call)
        except (SqsError, KernelError) as error:
            calls.failed(context, error, len(request.body))
            raise
        response = protocol.encode_result(call.action, result, request_id)
        calls.answered(context, result, len(request.body), len(response.body))
        return response

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
