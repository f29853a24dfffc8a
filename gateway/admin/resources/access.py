"""Whether somebody may do something, and why, over HTTP.

GET /access?user=&action=&kind=&name=&client_id=
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import Principal
from gateway.admin.http.requests import answer
from gateway.admin.resources.tenants import of_tenant
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.access.identity import Identity
    from gateway.admin.resources.tenants import KnownTenants

_E = TypeVar("_E", bound=Enum)


class Verdict(Struct, frozen=True, kw_only=True):
    """`policy`, `rule_number` (from 1) and `rule` are those that decided; empty and 0: none did."""

    allowed: bool
    reason: str
    policy: str
    rule_number: int
    rule: str


class AccessRoutes:
    """Handler of the question."""

    def __init__(self, identity: Identity, tenants: KnownTenants) -> None:
        self._identity = identity
        self._tenants = tenants

    async def explain(self, request: Request) -> Response:
        """Whether a user may use something by a name, as a client that connects now is told, and
        the rule that says so.
        """
        tenant, user = self._tenants.of(request), request.query_params.get("user", "")
        action = _one_of(Action, "action", request.query_params.get("action", ""))
        kind = _one_of(ResourceKind, "kind", request.query_params.get("kind", ""))
        found = self._identity.directory.principal(tenant, user)
        if found is None and self._identity.store.user(tenant, user) is None:
            raise KernelError(Code.NOT_FOUND, f"there is no user {user}{of_tenant(tenant)}")
        principal = found or Principal(tenant, user)
        access = self._identity.policies.access(
            principal, request.query_params.get("client_id") or None
        )
        told = access.explain(permission(action, kind), request.query_params.get("name", ""))
        verdict = Verdict(
            allowed=told.allowed,
            reason=told.reason,
            policy=told.policy,
            rule_number=told.rule_number,
            rule=told.rule,
        )
        return answer(verdict)


def _one_of(kind: type[_E], name: str, text: str) -> _E:
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        message = f"{name}={text} is none of {known}"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None
