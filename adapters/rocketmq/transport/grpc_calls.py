"""Between gRPC and the actions: the objects that grpc.aio asks for handlers, and handlers.

They have the attributes of grpc.GenericRpcHandler and grpc.RpcMethodHandler and stand for grpc's
usual table of handlers, because gRPC has converted the headers of a call when it asks for its
handler; asking the context for them later would convert them again, for each call. Without
(de)serialisers it passes messages as bytes. One object a call is its handler and what the action
sees of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kernel.quotas.account import Account

    from ..clients.callers import Caller
    from ..environment import Call
    from ..services.messaging_service import Streaming, Unary

    Metadata = Iterable[tuple[str, str | bytes]]
    Telemetry = Callable[[Call], Awaitable[None]]


class _CallDetails(Protocol):
    """What we read of grpc.HandlerCallDetails, which has no types."""

    method: str
    invocation_metadata: Metadata


_TLS: Final = b"ssl"
"""gRPC's word for it."""


class _Context(Protocol):
    """What is used of grpc.aio.ServicerContext."""

    def time_remaining(self) -> float | None:
        """Seconds until the deadline."""

    def peer(self) -> str:
        """Where the client is: `ipv4:` or `ipv6:`, address and port, percent-encoded."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS has found out about the client."""

    async def write(self, message: bytes, /) -> None:
        """Send a message of a stream."""

    async def read(self) -> object:
        """The next message of the client's stream as bytes, or grpc.aio.EOF."""


class _Calls:
    """grpc.GenericRpcHandler: makes the object of each call."""

    def __init__(
        self,
        makers: Mapping[str, Callable[[Metadata], _GrpcCall]],
        telemetry: Mapping[str, Callable[[Metadata], _GrpcCall]],
        refusal_of: Callable[[Call], bytes | None],
    ) -> None:
        self._makers = makers
        self._telemetry = telemetry
        self._refusal_of = refusal_of

    def service(self, details: _CallDetails, /) -> object:
        """The handler of a call; None: there is no such method.

        Nothing of the request has been read: what its headers refuse is never read at all.
        """
        make = self._makers.get(details.method)
        if make is None:
            tell = self._telemetry.get(details.method)
            return tell(details.invocation_metadata) if tell is not None else None
        call = make(details.invocation_metadata)
        refusal = self._refusal_of(call)
        return call if refusal is None else _RefusedCall(refusal, details.invocation_metadata)


class _GrpcCall:
    """`environment.Call`, and grpc.RpcMethodHandler of one call."""

    request_streaming = False
    response_streaming = False
    request_deserializer = None
    response_serializer = None

    __slots__ = ("_context", "account", "bytes_out", "caller", "metadata")

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.caller: Caller | None = None
        self.account: Account | None = None
        self.bytes_out = 0
        self._context: _Context | None = None

    def time_remaining(self) -> float | None:
        """See `environment.Call`."""
        return self._context.time_remaining() if self._context is not None else None

    @property
    def peer(self) -> str:
        """See `environment.Call`."""
        return _address(self._context.peer()) if self._context is not None else ""

    @property
    def is_encrypted(self) -> bool:
        """See `environment.Call`."""
        context = self._context
        return context is not None and _TLS in context.auth_context().get(
            "transport_security_type", ()
        )

    async def write(self, message: bytes) -> None:
        """See `environment.Call`."""
        assert self._context is not None
        self.bytes_out += len(message)
        await self._context.write(message)

    async def read(self) -> bytes | None:
        """See `environment.Call`."""
        assert self._context is not None
        data = await self._context.read()
        return data if isinstance(data, bytes) else None

    @property
    def certified(self) -> str | None:
        """See `environment.Call`."""
        return None


class _UnaryCall(_GrpcCall):
    """A call with one answer."""

    __slots__ = ("_action",)

    def __init__(self, action: Unary, metadata: Metadata) -> None:
        # One call, not two: this is made for every SendMessage and AckMessage.
        self.metadata = metadata
        self.caller = None
        self.account = None
        self.bytes_out = 0
        self._context = None
        self._action = action

    async def unary_unary(self, data: bytes, context: _Context, /) -> bytes:
        """Called by gRPC."""
        self._context = context
        return await self._action(data, self)


class _StreamingCall(_GrpcCall):
    """A call whose answer is a stream."""

    response_streaming = True

    __slots__ = ("_action",)

    def __init__(self, action: Streaming, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._action = action

    async def unary_stream(self, data: bytes, context: _Context, /) -> None:
        """Called by gRPC."""
        self._context = context
        await self._action(data, self)


class _TelemetryCall(_GrpcCall):
    """A call with streams both ways."""

    request_streaming = True
    response_streaming = True

    __slots__ = ("_serve",)

    def __init__(self, serve: Telemetry, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._serve = serve

    async def stream_stream(self, _requests: object, context: _Context, /) -> None:
        """Called by gRPC."""
        self._context = context
        await self._serve(self)


class _Certified(_GrpcCall):
    """A call over a connection whose client has shown a certificate, which TLS has verified."""

    __slots__ = ()

    @property
    def certified(self) -> str | None:
        """See `environment.Call`."""
        assert self._context is not None
        names = list(self._context.auth_context().get("x509_common_name", ()))
        return names[0].decode("utf-8", "replace") if len(names) == 1 and names[0] else None


class _CertifiedUnaryCall(_Certified, _UnaryCall):
    __slots__ = ()


class _CertifiedStreamingCall(_Certified, _StreamingCall):
    __slots__ = ()


class _CertifiedTelemetryCall(_Certified, _TelemetryCall):
    __slots__ = ()


class _RefusedCall(_GrpcCall):
    """A call whose headers refuse it: for gRPC a stream, which it is left to us to read."""

    request_streaming = True
    response_streaming = True

    __slots__ = ("_answer",)

    def __init__(self, answer: bytes, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._answer = answer

    async def stream_stream(self, _requests: object, context: _Context, /) -> None:
        """Called by gRPC."""
        await context.write(self._answer)


def grpc_calls(
    service: str,
    unary: Mapping[str, Unary],
    streaming: Mapping[str, Streaming],
    telemetry: Mapping[str, Telemetry],
    refusal_of: Callable[[Call], bytes | None],
    *,
    is_certified: bool = False,
) -> object:
    """The grpc.GenericRpcHandler of a service: actions by the names of their calls. `refusal_of`:
    the answer to a call that its headers refuse; of clients that have shown a certificate
    (`is_certified`) they are not all that tells who they are.
    """
    one, many, both = (
        (_CertifiedUnaryCall, _CertifiedStreamingCall, _CertifiedTelemetryCall)
        if is_certified
        else (_UnaryCall, _StreamingCall, _TelemetryCall)
    )
    makers: dict[str, Callable[[Metadata], _GrpcCall]] = {}
    for name, action in unary.items():
        makers[f"/{service}/{name}"] = partial(one, action)
    for name, stream in streaming.items():
        makers[f"/{service}/{name}"] = partial(many, stream)
    told = {f"/{service}/{name}": partial(both, each) for name, each in telemetry.items()}
    return _Calls(makers, told, _nothing if is_certified else refusal_of)


def _address(peer: str) -> str:
    """Address and port, of gRPC's spelling; empty if it is neither of both kinds."""
    kind, _, rest = peer.partition(":")
    return unquote(rest) if kind in {"ipv4", "ipv6"} else ""


def _nothing(_call: Call) -> bytes | None:
    return None
