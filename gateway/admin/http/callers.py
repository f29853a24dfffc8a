"""Who calls the admin API, and what that caller may. Which route takes which right stands in the
table of operations (`gateway.admin.operations`).

    right     what it takes
    OPEN      nothing; the guard may have let the caller in unasked
    NODE      to administer the node: the token in DATA/admin.token, or a user of the tenant
              `default` whose policies allow `administer node:admin`
    TENANT    to administer the tenant that the request is about: a user of that tenant, or of
              `default`, whose policies allow `administer tenant:NAME`; or as NODE
    SOME      to administer any tenant; the handler shows what is of those, and no more

The tenant `default` is administered by whoever administers the node: its users can be given rights
over the node, and its topics hold the bills of all tenants. So nobody gets a right over the node by
one over a tenant.

A caller that may not administer a tenant gets the same answer whether there is one of that name or
not. Without `?tenant=NAME` a request is about the caller's own.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import DEFAULT_TENANT
from kernel.api.tracing import ConnectedUser
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from auth.policies.policy_decisions import Access

ADMINISTER_NODE: Final = permission(Action.ADMINISTER, ResourceKind.NODE)
RESOURCE: Final = "admin"
"""The node resource that stands for the admin API."""

ADMINISTER_TENANT: Final = permission(Action.ADMINISTER, ResourceKind.TENANT)

TAKES_NODE: Final = (
    "the token in DATA/admin.token, or a user of the tenant default whose policies allow"
    " `administer node:admin`"
)

OPERATOR_NAME: Final = "operator"

_SCOPE_KEY: Final = "weir.caller"


class Right(Enum):
    """What it takes to use a route of the admin API."""

    OPEN = auto()
    NODE = auto()
    TENANT = auto()
    SOME = auto()


class Caller:
    """Whoever made a request: a user that has signed in, or the holder of the operator's token."""

    __slots__ = ("_access",)

    def __init__(self, access: Access | None) -> None:
        """`access`: None: the operator's token, which opens everything."""
        self._access = access

    def __str__(self) -> str:
        return "the operator" if self._access is None else str(self._access.principal)

    @property
    def name(self) -> str:
        """Of the user; of the operator's token, what it stands for."""
        return OPERATOR_NAME if self._access is None else self._access.principal.name

    @property
    def is_alive(self) -> bool:
        """False once its user is removed, disabled or signed out."""
        return self._access is None or self._access.is_alive()

    @property
    def rules(self) -> object:
        """Another object whenever what it may do can be another."""
        return None if self._access is None else self._access.rules()

    @property
    def tenant(self) -> str:
        """Its own, which a request is about that names none."""
        return DEFAULT_TENANT if self._access is None else self._access.principal.tenant

    @property
    def administers_node(self) -> bool:
        return self._access is None or self._access.allows(ADMINISTER_NODE, RESOURCE)

    def administers(self, tenant: str) -> bool:
        """Whether it may use the admin API for a tenant, whether there is one of that name or
        not.
        """
        if self.administers_node:
            return True
        access = self._access
        assert access is not None, "the operator administers the node"
        return tenant != DEFAULT_TENANT and access.allows(ADMINISTER_TENANT, tenant)

    def check_node(self) -> None:
        """Raises KernelError NOT_ALLOWED unless it administers the node."""
        if not self.administers_node:
            message = f"this is about the node, not about one tenant: it takes {TAKES_NODE}"
            raise KernelError(Code.NOT_ALLOWED, f"{message}; you are {self}")

    def check(self, tenant: str) -> None:
        """Raises KernelError NOT_ALLOWED unless it administers a tenant."""
        if self.administers(tenant):
            return
        if tenant == DEFAULT_TENANT:
            takes = TAKES_NODE
        elif self.tenant in {tenant, DEFAULT_TENANT}:
            takes = f"a policy that allows `administer tenant:{tenant}`"
        else:
            takes = "a user of that tenant, or of the tenant default"
        message = f"to administer the tenant {tenant} takes {takes}; you are {self}"
        raise KernelError(Code.NOT_ALLOWED, message)


OPERATOR: Final = Caller(None)

ANYBODY: Final = Caller(None)
"""Who asks for what is open to everybody: let in as the operator is, and not to be told names."""


def set_caller(scope: Scope, caller: Caller) -> None:
    """Say who makes a request."""
    scope[_SCOPE_KEY] = caller


def caller_of(request: Request) -> Caller:
    """Who makes a request that the guard has let in."""
    caller = request.scope[_SCOPE_KEY]
    assert isinstance(caller, Caller)
    return caller


def connected_user(request: Request) -> ConnectedUser:
    """Who makes a request, for traces of messages."""
    caller, client = caller_of(request), request.client
    address = "" if client is None else f"{client.host}:{client.port}"
    return ConnectedUser(caller.tenant, caller.name, "weir", address, "")


def is_known(request: Request) -> bool:
    """Whether the caller of an open path has signed in all the same."""
    return caller_of(request) is not ANYBODY


def tenant_asked(request: Request) -> str:
    """The name of the tenant that a request is about; perhaps there is none of that name."""
    found = request.query_params.get("tenant")
    return caller_of(request).tenant if found is None else found


def tenant_or_all(request: Request, of: Callable[[Request], str]) -> str | None:
    """The tenant that a request is about; None, all of them, if who administers the node names
    none. Raises what `of` does.
    """
    if "tenant" not in request.query_params and caller_of(request).administers_node:
        return None
    return of(request)


def check_right(right: Right, request: Request) -> None:
    """Raise KernelError NOT_ALLOWED unless the caller has a right."""
    if right is Right.NODE:
        caller_of(request).check_node()
    elif right is Right.TENANT:
        caller_of(request).check(tenant_asked(request))
