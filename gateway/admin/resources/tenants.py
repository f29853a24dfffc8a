"""Which tenant a request of the admin API is about: `?tenant=NAME`, and without it the caller's
own, which is `default` for the operator.

    GET /tenants        those that the caller administers

A tenant exists if it was made at run time, if the settings of this process name it, or if a user
belongs to it. So a slip of the pen makes no tenant: the first user of one that nobody has made is
refused. What a tenant has stays reachable after its row in the settings is gone, as long as it has
a user. While a tenant is removed it can be looked at, and nothing can be made in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from auth.principal import DEFAULT_TENANT, name_fault
from gateway.access.tenant_records import TenantState
from gateway.admin.http.callers import TAKES_NODE, caller_of, tenant_asked
from gateway.admin.http.requests import answer
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from adapters.base import TenantWord
    from auth.users.store import AuthStore
    from gateway.access.tenant_book import TenantBook
    from gateway.admin.http.callers import Caller

NAMED_MAX = 5
"""Tenants named in the answer to an unknown one; `weir tenant ls` lists all."""

_WHILE_LEAVING = frozenset({"GET", "HEAD", "DELETE"})
"""Methods that make nothing."""


class TenantList(Struct, frozen=True):
    tenants: list[dict[str, str | int | bool]]
    """Each with its `name`, what each protocol calls it by the protocol's word (`virtual_host`),
    how many `users` it has, whether it `is_configured`: the settings name it; and its `state`:
    `here`, `no sign-in`, or `leaving`."""


class KnownTenants:
    """The tenants there are."""

    def __init__(self, book: TenantBook, store: AuthStore, words: Mapping[str, TenantWord]) -> None:
        """`words`: for a tenant, by protocol."""
        self._book = book
        self._store = store
        self._words = words

    def has(self, name: str) -> bool:
        """Whether there is a tenant of a name, perhaps one that is being removed."""
        if self._book.state(name) is TenantState.GONE:
            return False
        return self._book.has(name) or self._store.has_users(name)

    def takes_more(self, name: str) -> bool:
        """Whether a tenant is here, and is not being removed."""
        return self.has(name) and name not in self._book.closed

    def users_of(self, name: str) -> int:
        """How many users a tenant has."""
        return self._store.users_by_tenant().get(name, 0)

    def of(self, request: Request) -> str:
        """The tenant of a request; that the caller administers it has been checked (`callers`).
        Raises KernelError INVALID_ARGUMENT, NOT_FOUND, IN_USE (it is being removed, and the request
        would make something).
        """
        name = tenant_asked(request)
        if self.has(name):
            if not self.takes_more(name) and request.method not in _WHILE_LEAVING:
                raise KernelError(Code.IN_USE, f"the tenant {name} is being removed")
            return name
        fault = name_fault("tenant", name)
        if fault is not None:
            raise KernelError(Code.INVALID_ARGUMENT, fault)
        known = self.known_to(caller_of(request))
        shown = ", ".join(known[:NAMED_MAX]) + (", ..." if len(known) > NAMED_MAX else "")
        raise KernelError(
            Code.NOT_FOUND,
            f"there is no tenant {name}: `weir tenant add` makes one, or the settings name it "
            f"below `tenants`; known: {shown}",
        )

    def named_by(self, protocol: str) -> dict[str, str]:
        """Tenants by what a protocol calls them."""
        own = {name: name for name in self._store.users_by_tenant()}
        return {**own, **self._book.owners_in(protocol)}

    def known_to(self, caller: Caller) -> list[str]:
        """The tenants that a caller may know of, by name."""
        known = {*self._book.tenants(), *self._store.users_by_tenant()}
        return sorted(name for name in known if self.has(name) and caller.administers(name))

    def administered(self, request: Request) -> list[str]:
        """Those that whoever asks administers, by name. Raises KernelError NOT_ALLOWED: none."""
        caller = caller_of(request)
        names = self.known_to(caller)
        if not names:
            takes = f"a policy that allows `administer tenant:NAME`, or {TAKES_NODE}"
            raise KernelError(Code.NOT_ALLOWED, f"this takes {takes}; you are {caller}")
        return names

    def some_for(self, caller: Caller) -> bool:
        """Whether a caller administers any."""
        return caller.administers_node or bool(self.known_to(caller))

    async def list_tenants(self, request: Request) -> Response:
        """Tenants by name; they are few, so that one page has them."""
        names = self.administered(request)
        users = self._store.users_by_tenant()
        return answer(TenantList([self._shown(name, users) for name in names]))

    def _shown(self, name: str, users: Mapping[str, int]) -> dict[str, str | int | bool]:
        book = self._book
        is_here = name not in book.closed
        return {
            "name": name,
            **{
                word.shown_as: book.names_in(protocol).get(name, name)
                for protocol, word in self._words.items()
            },
            "users": users.get(name, 0),
            "is_configured": name in book.seeds,
            "state": "leaving" if not is_here else "no sign-in" if name in book.barred else "here",
        }


def of_tenant(tenant: str) -> str:
    """The end of "there is no X" where X is looked for in another tenant than `default`."""
    return "" if tenant == DEFAULT_TENANT else f" in tenant {tenant}"
