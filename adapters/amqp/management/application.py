"""The management API as an ASGI application: below /api, HTTP's basic sign-in, JSON.

Whoever may not do anything with queues or exchanges signs in all the same and sees nothing; what a
request may do is what its user may do through AMQP.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from adapters.amqp.caller import Caller
from adapters.amqp.errors import AmqpError
from adapters.amqp.management.administering import administered
from adapters.amqp.management.documents import apply_definitions
from adapters.amqp.management.messages import publish
from adapters.amqp.management.rates import Rates
from adapters.amqp.management.requests import (
    Answer,
    Asked,
    Broker,
    Refused,
    UnderWay,
    bad_request,
    refusal_of,
)
from adapters.amqp.management.routes import find
from adapters.amqp.messages.stamps import Stamps
from adapters.amqp.origin import ORIGIN_BYTE
from adapters.amqp.topology.declaring import Declarations
from adapters.definitions import DOCUMENT_BYTES_MAX
from adapters.limiting import Limiter
from auth.errors import AuthCode, AuthError
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from adapters.amqp.handshake import AmqpSettings
    from adapters.base import Adapter, Administration, Rights, Services
    from kernel.api.client import Session

    Scope = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

PREFIX: Final = "/api"
LISTENER: Final = "management"
"""What limits call it."""

BODY_BYTES_MAX: Final = 64 * 1024
"""Declarations and their arguments are smaller."""

PUBLISH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a request that has a message in it."""

_BYTES_MAX: Final[dict[object, int]] = {
    publish: PUBLISH_BYTES_MAX,
    apply_definitions: DOCUMENT_BYTES_MAX,
}

SILENT_HEADER: Final = b"x-weir-silent"
"""Of a list that lacks what some gateways have: which, and why."""

REASON_HEADER: Final = b"x-reason"
"""Why a connection is closed, which its client is told."""

_REALM: Final = b'Basic realm="RabbitMQ Management"'

_CODES: Final = {
    Code.NOT_FOUND: 404,
    Code.NOT_ALLOWED: 401,
    Code.TOO_LARGE: 413,
    Code.LIMIT_EXCEEDED: 429,
}
_AUTH_CODES: Final = {AuthCode.BAD_CREDENTIALS: 401}


class Management:
    """Serves requests."""

    def __init__(
        self,
        services: Services,
        adapter: Adapter,
        settings: AmqpSettings,
        administration: Administration,
    ) -> None:
        """`adapter`: that of AMQP in this process; `administration`: what else this server has."""
        clock = services.clock
        self._services = services
        self._session: Session | None = None
        self._broker = Broker(
            client=services.client,
            declarations=Declarations(services.client, services.random),
            settings=settings,
            clock=clock,
            adapter=adapter,
            administration=administration,
            changing=asyncio.Lock(),
            rates=Rates(),
            version=services.version,
            started_ms=clock.monotonic_ms(),
            stamps=Stamps(),
            under_way=UnderWay(),
            limiter=Limiter("amqp", services.quotas, services.client, clock),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except Refused as refused:
            answer = _refusal(refused)
        except AmqpError as error:
            answer = _refusal(refusal_of(error))
        except KernelError as error:
            status = _CODES.get(error.code, 503 if error.code.retryable else 400)
            answer = Answer(status, {"error": error.code.wire, "reason": error.message})
        await _send(answer, send, with_body=scope["method"] != "HEAD")

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        if not path.startswith(PREFIX + "/"):
            raise Refused(404, "Object Not Found", "the management API is below /api/")
        rights = await self._sign_in(scope)
        handler, names = find(scope["method"], path.removeprefix(PREFIX))
        query = dict(parse_qsl(scope["query_string"].decode("ascii", "replace"), True))
        asked = Asked(
            broker=self._broker,
            own=rights,
            caller_in=self._caller,
            names=names,
            query=query,
            body=b"",
            address=":".join(map(str, scope.get("client") or ())),
            reason=dict(scope["headers"]).get(REASON_HEADER, b"").decode("utf-8", "replace"),
        )
        if handler is apply_definitions:
            # Before so much is read.
            administered(asked)
        most = _BYTES_MAX.get(handler, BODY_BYTES_MAX)
        return await handler(replace(asked, body=await _body(receive, most)))

    async def _sign_in(self, scope: Scope) -> Rights:
        """Raises Refused 401."""
        header = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, shown = header.partition(b" ")
        if scheme.lower() != b"basic":
            raise Refused(401, "not_authorized", "Login failed")
        try:
            user, _, password = base64.b64decode(shown.strip(), validate=True).partition(b":")
            login = user.decode()
            first, colon, rest = password.partition(b":")
            if colon and login in self._services.tenant_names:
                # TENANT:USER:PASSWORD, for HTTP knows no colon in a user's name.
                login, password = f"{login}:{first.decode()}", rest
            client = scope.get("client")
            address = client[0] if client else "?"
            return await self._services.users.sign_in(login, password, address)
        except (ValueError, binascii.Error):
            raise Refused(401, "not_authorized", "Login failed") from None
        except AuthError as error:
            status = _AUTH_CODES.get(error.code, 503)
            reason = "Login failed" if status == 401 else error.message
            raise Refused(status, "not_authorized", reason) from None

    def _caller(self, tenant: str, rights: Rights) -> Caller:
        if self._session is None:
            client = self._services.client
            self._session = client.open_session("AMQP management", ORIGIN_BYTE)
        principal = rights.principal
        user = principal.name if principal.tenant == tenant else ""
        return Caller(
            tenant=tenant,
            virtual_host=self._broker.settings.virtual_host_of(tenant),
            rights=rights,
            session=self._session,
            account=self._broker.limiter.account(tenant, user, LISTENER),
        )


def _refusal(refused: Refused) -> Answer:
    return Answer(refused.status, {"error": refused.error, "reason": refused.reason})


async def _body(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Refused(413, "too_large", f"the body has more than {most} bytes")
        parts.append(part)
        more = message.get("more_body", False)
        if message["type"] != "http.request":
            raise bad_request("the request was broken off")
    return b"".join(parts)


async def _send(answer: Answer, send: Send, *, with_body: bool) -> None:
    body = b"" if answer.body is None else msgspec.json.encode(answer.body, enc_hook=str)
    headers = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-cache")]
    if answer.body is not None:
        headers.append((b"content-type", b"application/json"))
    if answer.status == 401:
        headers.append((b"www-authenticate", _REALM))
    if answer.location is not None:
        headers.append((b"location", answer.location.encode()))
    if answer.silent:
        headers.append((SILENT_HEADER, answer.silent.encode("ascii", "replace")))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body if with_body else b""})
