"""All that is defined, as one document (`adapters.definitions`), over HTTP.

    GET  /definitions?only=&name=&secrets=     POST /definitions?only=&dry_run=

Each takes ?tenant=NAME; who administers the node and names none gets, or applies, all tenants.

A document is looked at whole before anything is changed: if one thing of it cannot be had here,
nothing is done. What fails later (a full disk, a leader that goes) is told by name, with status
207, and the rest goes on: the same request again does what is left. A document of another broker is
read by the adapter that knows it (`adapters.base.Declaration`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from adapters.definitions import (
    DOCUMENT_BYTES_MAX,
    FORMAT,
    Definitions,
    Foreign,
    Unlike,
    UserDefined,
)
from auth.password_checks.salted_hashes import is_salted
from gateway.admin.http.callers import caller_of
from gateway.admin.http.requests import answer, flag, read_body
from gateway.admin.http.streaming import StreamedJson
from gateway.admin.resources.tenant_changes import check_feature
from gateway.definitions.applying import Applying
from gateway.definitions.checks import Checks
from gateway.definitions.known import Known
from gateway.definitions.planning import ChangePlanned, Fault, Plan, plan_of
from gateway.definitions.things import chosen_kinds
from gateway.definitions.writing import written
from kernel.common.errors import UNDECODABLE, Code, KernelError
from kernel.common.feature_levels import HASHES, TENANTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import Declaration
    from gateway.access.limit_records import LimitRecords
    from gateway.access.tenant_book import TenantBook
    from gateway.admin.resources.principals import Principals
    from gateway.admin.resources.tenant_changes import Features
    from gateway.admin.resources.tenants import KnownTenants
    from gateway.definitions.things import Thing
    from kernel.api.client import Client
    from kernel.api.model import RouterOptions

FAULTS_TOLD: Final = 10
"""Of a document that is refused; a dry run lists all."""

_SECRET_KINDS: Final = frozenset({"users", "keys"})


class Applied(Struct, frozen=True, kw_only=True):
    """What a document has changed, or would."""

    changes: list[ChangePlanned]
    """Those of this request, in order; of a dry run the first."""
    same: int
    """Things that were so already."""
    remaining: int
    """Changes that the same request makes next."""
    faults: list[Fault]
    """Of a dry run: what cannot be had here, because of which nothing would be done. Else: what
    failed."""
    unlike: list[Unlike]
    """Of another broker's document: what has no equal, or another form."""


class DefinitionRoutes:
    """Handlers of definitions."""

    def __init__(
        self,
        client: Client,
        principals: Principals,
        limits: LimitRecords,
        tenants: KnownTenants,
        declared: Mapping[str, Declaration],
        book: TenantBook,
        features: Features | None,
    ) -> None:
        self._book = book
        self._features = features
        self._client = client
        self._principals = principals
        self._limits = limits
        self._tenants = tenants
        self._declared = declared

    async def export_definitions(self, request: Request) -> Response:
        """All that is defined, but what lives in memory; users with the hashes of their passwords,
        keys with their secrets as they are sealed.
        """
        kinds = chosen_kinds(request.query_params.get("only"))
        if "secrets" in request.query_params and not flag(request, "secrets"):
            kinds -= _SECRET_KINDS
        asked = self._asked(request)
        tenants = self._tenants.known_to(caller_of(request)) if asked is None else [asked]
        only = request.query_params.get("name")
        parts = written(self._known(), tenants, kinds, of_all=asked is None, only=only)
        return StreamedJson(parts)

    async def apply_definitions(self, request: Request) -> Response:
        """Add and change what a document says; what it does not name stays."""
        kinds = chosen_kinds(request.query_params.get("only"))
        dry_run = flag(request, "dry_run")
        asked = self._asked(request)
        document, unlike = self._read(await read_body(request, msgspec.Raw, DOCUMENT_BYTES_MAX))
        _check_tenants(document, asked)
        caller = caller_of(request)
        predeclared = self._predeclared()
        known = self._known()
        named = {name for name, each in document.tenants.items() if each.tenant is not None}
        makes = named if "tenants" in kinds and caller.administers_node else set()
        has = self._tenants.takes_more
        checks = Checks(document, known, self._principals.keys, caller, has, predeclared, makes)
        plan = await plan_of(document, kinds, known, checks)
        if any(thing.kind == "tenants" for thing, _ in plan.changes):
            await check_feature(self._features, TENANTS)
        if any(_is_foreign_hash(thing) for thing, _ in plan.changes):
            await check_feature(self._features, HASHES)
        if dry_run:
            return answer(_planned(plan, unlike))
        if plan.faults:
            raise KernelError(Code.INVALID_ARGUMENT, _refusal(plan))
        applying = Applying(
            self._client, self._principals, self._limits, caller, predeclared, self._book, document
        )
        made = await applying.run([thing for thing, _ in plan.changes])
        done = Applied(
            changes=[plan.changes[number][1] for number in sorted(made)],
            same=plan.same,
            remaining=plan.count - len(made),
            faults=applying.failed,
            unlike=unlike,
        )
        return answer(done, 207 if applying.failed else 200)

    def _asked(self, request: Request) -> str | None:
        """The only tenant that a request is about; None: all."""
        if "tenant" in request.query_params or not caller_of(request).administers_node:
            return self._tenants.of(request)
        return None

    def _known(self) -> Known:
        return Known(self._client, self._principals.store, self._limits, self._book)

    def _predeclared(self) -> Mapping[str, RouterOptions]:
        return {
            name: options
            for declared in self._declared.values()
            if declared.predeclared is not None
            for name, options in declared.predeclared().items()
        }

    def _read(self, body: msgspec.Raw) -> tuple[Definitions, list[Unlike]]:
        """The document that a body is, and what of another broker's has no equal. Raises
        KernelError INVALID_ARGUMENT.
        """
        foreign = self._foreign(body)
        if foreign is not None:
            return foreign.definitions, foreign.unlike
        try:
            document = msgspec.json.decode(body, type=Definitions)
        except UNDECODABLE as error:
            reason = str(error).replace("`", "")
            message = f"the document cannot be read: {reason}"
            raise KernelError(Code.INVALID_ARGUMENT, message) from None
        if document.format != FORMAT:
            message = f"the document's format is {document.format!r}; this Weir reads {FORMAT}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        return document, []

    def _foreign(self, body: msgspec.Raw) -> Foreign | None:
        for name, declared in self._declared.items():
            if declared.definitions is None:
                continue
            found = declared.definitions(bytes(body), self._tenants.named_by(name))
            if found is not None:
                return found
        return None


def _is_foreign_hash(thing: Thing) -> bool:
    """Whether it is a user with a hash that builds without the feature do not read."""
    return isinstance(thing.value, UserDefined) and is_salted(thing.value.password_hash)


def _check_tenants(document: Definitions, asked: str | None) -> None:
    """Raise KernelError INVALID_ARGUMENT if a document is of others than the one asked for."""
    if asked is None:
        return
    others = sorted(document.tenants.keys() - {asked})
    if others:
        message = f"the document has the tenant {others[0]}, and the request is about {asked}"
        raise KernelError(Code.INVALID_ARGUMENT, message)


def _planned(plan: Plan, unlike: list[Unlike]) -> Applied:
    return Applied(
        changes=[change for _, change in plan.changes],
        same=plan.same,
        remaining=plan.count,
        faults=plan.faults,
        unlike=unlike,
    )


def _refusal(plan: Plan) -> str:
    told = "; ".join(
        f"{each.kind} {each.name}: {each.reason}" for each in plan.faults[:FAULTS_TOLD]
    )
    more = len(plan.faults) - FAULTS_TOLD
    return f"nothing was done: {told}" + (f"; and {more} more" if more > 0 else "")
