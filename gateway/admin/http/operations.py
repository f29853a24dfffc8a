"""Operations of the API: what each takes, answers and asks of its caller; routes made of them.

An operation names the handler, a method of the class that has the resource; the routes of a process
are those of the resources that it has. `gateway.admin.operations` is the table of all of them, and
`gateway.admin.openapi` tells of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from gateway.admin.http.callers import Right, caller_of, check_right, tenant_asked
from gateway.reporting.events import EVENTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.reporting.audit import AuditTrail

    Handler = Callable[[Any, Request], Awaitable[Response]]
    Endpoint = Callable[[Request], Awaitable[Response]]


_LOOKS = frozenset({"GET", "HEAD"})
"""Requests that change nothing."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    meaning: str
    kind: Any = str
    """As msgspec reads types."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What may be done with a resource."""

    method: str
    path: str
    """Below /api/v1, with names of parameters in braces."""
    right: Right
    handler: Handler
    """A method of a resource, not bound to one."""
    answers: Any = None
    """The type of what comes back, as msgspec reads types; None: nothing does."""
    takes: Any = None
    """The type of the body; None: there is none."""
    query: Sequence[Parameter] = ()
    status: Sequence[int] = ()
    is_audited: bool = True
    """Whether the audit has it, if it changes something: not what clients do all day."""
    """Of the answers that hold `answers`; none: 200, or 204 where nothing comes back."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def statuses(self) -> Sequence[int]:
        """Of every answer that is no error."""
        return self.status or ((200,) if self.answers is not None else (204,))

    @property
    def says(self) -> str:
        """What it does, in the words of its handler."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def asked_tenant(self) -> bool:
        """Whether ?tenant=NAME is understood."""
        return self.right is Right.TENANT


def bound(
    operations: Iterable[Operation], resources: Sequence[object]
) -> list[tuple[Operation, object]]:
    """Those of the operations whose handler one of the resources has, each with that resource."""
    return [
        (operation, resource)
        for operation in operations
        for resource in resources
        if getattr(type(resource), operation.handler.__name__, None) is operation.handler
    ]


def route(operation: Operation, resource: object) -> Route:
    """The route of an operation; it asks for its right first."""
    handler = partial(operation.handler, resource)
    return Route(
        operation.path,
        _checked(operation.right, handler, audited=operation.is_audited),
        methods=[operation.method],
    )


def for_operators(path: str, methods: Sequence[str], refuse: Endpoint) -> Route:
    """A route of all paths that have none, of which only who administers the node hears why."""
    return Route(path, _checked(Right.NODE, refuse), methods=methods)


def _checked(right: Right, handler: Endpoint, *, audited: bool = False) -> Endpoint:
    async def handle(request: Request) -> Response:
        check_right(right, request)
        if request.method in _LOOKS:
            return await handler(request)
        change = {
            "method": request.method,
            "path": request.scope["path"],
            "tenant": tenant_asked(request),
            "by": str(caller_of(request)),
        }
        # A store of a cluster, which serves no client, has none.
        audit: AuditTrail | None = getattr(request.app.state, "audit", None) if audited else None
        try:
            response = await handler(request)
        except Exception as error:
            EVENTS.add("warning", "not administered", reason=str(error), **change)
            if audit is not None:
                await audit.note(status=0, reason=str(error), **change)
            raise
        EVENTS.add("info", "administered", status=response.status_code, **change)
        if audit is not None:
            await audit.note(status=response.status_code, **change)
        return response

    return handle
