"""The API as OpenAPI 3.1 tells it: operations, and the structs that read requests and are answered.

    GET /openapi.json       of this process: a store of a cluster has less of it

Paths are below `servers[0]`, /api/v1. Every other answer than those that are listed is an error
(`ErrorBody`). https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

import gateway
from gateway.admin.http.callers import TAKES_NODE, Right
from gateway.admin.http.errors import JSON_TYPE, ErrorBody
from gateway.admin.http.requests import answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.admin.http.operations import Operation

    Schema = dict[str, Any]

OPENAPI: Final = "3.1.0"
API_PATH: Final = "/api/v1"

TAKES: Final = {
    Right.OPEN: "Whoever signs in.",
    Right.NODE: f"Takes {TAKES_NODE}.",
    Right.TENANT: "Takes a policy that allows `administer tenant:NAME`, or the node's.",
    Right.SOME: "Shows what belongs to the tenants that the caller administers.",
}

TENANT: Final = {
    "name": "tenant",
    "in": "query",
    "description": "Whose; the caller's own unless told.",
    "schema": {"type": "string"},
}

LOGINS: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "What is in DATA/admin.token."},
    "login": {"type": "http", "scheme": "basic", "description": "A user: USER, or TENANT:USER."},
}


class Document(msgspec.Struct, frozen=True):
    """A document of OpenAPI."""

    openapi: str
    info: dict[str, Any]
    servers: list[dict[str, str]]
    security: list[dict[str, list[str]]]
    paths: dict[str, dict[str, Any]]
    components: dict[str, Any]


class Description:
    """Handler of the document."""

    def __init__(self) -> None:
        self.operations: Sequence[Operation] = ()
        """Set once it is known what else is served."""
        self._document: Document | None = None

    async def show(self, request: Request) -> Response:
        """What may be asked here, and what comes back, as OpenAPI 3.1 tells it."""
        if self._document is None:
            self._document = document(self.operations)
        return answer(self._document)


def document(operations: Sequence[Operation]) -> Document:
    """What there is to say of operations."""
    types = [ErrorBody]
    for each in operations:
        types += [kind for kind in (each.takes, each.answers) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    found = iter(schemas)
    error = next(found)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        takes = None if each.takes is None else next(found)
        answers = None if each.answers is None else next(found)
        about = _operation(each, takes, answers, error)
        paths.setdefault(each.path, {})[each.method.lower()] = about
    return Document(
        openapi=OPENAPI,
        info={"title": "Weir's admin API", "version": gateway.__version__},
        servers=[{"url": API_PATH}],
        security=[{name: []} for name in LOGINS],
        paths=paths,
        components={"schemas": components, "securitySchemes": LOGINS},
    )


def _operation(
    operation: Operation, takes: Schema | None, answers: Schema | None, error: Schema
) -> Schema:
    words = re.findall(r"\w+", operation.path)
    about: dict[str, Any] = {
        "operationId": "_".join([operation.method.lower(), *words]).replace("_json", ""),
        "tags": [words[0]],
        "summary": operation.says,
        "description": TAKES[operation.right],
        "parameters": _parameters(operation),
        "responses": {
            **{str(status): _content("It is done.", answers) for status in operation.statuses},
            "default": _content("It is not, and why.", error),
        },
    }
    if takes is not None:
        about["requestBody"] = {"content": {JSON_TYPE: {"schema": takes}}, "required": True}
    return about


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    in_query = [
        {
            "name": each.name,
            "in": "query",
            "description": each.meaning,
            "schema": msgspec.json.schema(each.kind),
        }
        for each in operation.query
    ]
    return [*in_path, *in_query, *([TENANT] if operation.asked_tenant else ())]


def _content(description: str, schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        return {"description": description}
    return {"description": description, "content": {JSON_TYPE: {"schema": schema}}}
