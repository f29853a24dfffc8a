"""The read side of auth: what is known about a login, an access key or a principal, right now.

It joins three sources: the store (replicated), the development login (while it exists) and the
built-in policies. A user of the store hides a development one of the same name, and so does an
access key, so that `guest` means what an operator made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..policies.built_in import ADMINISTRATOR_POLICY, built_in_policy
from ..principal import Principal, PrincipalKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..policies.policy_rules import Policy
    from .development import Development
    from .records import AccessKey, User
    from .store import AuthStore


_OF_OPERATORS = (ADMINISTRATOR_POLICY,)


class Directory:
    """Look-ups by name. Every answer is of now; nothing is cached but built-in policies."""

    def __init__(
        self,
        store: AuthStore,
        unseal: Callable[[bytes, bytes], bytes],
        development: Development | None = None,
    ) -> None:
        """`unseal(envelope, context)` opens a sealed secret: `KeyRing.unseal` of
        auth.private_files.sealed.
        """
        self._store = store
        self._unseal = unseal
        self._development = development
        self._built_in: dict[tuple[str, str], Policy] = {}
        self._barred: frozenset[str] = frozenset()

    @property
    def has_development(self) -> bool:
        """Whether the development login exists: every listener is on loopback."""
        return self._development is not None

    def bar(self, tenants: frozenset[str]) -> None:
        """Nobody of these tenants signs in from now on, and nobody has any rights there; all others
        have those that they are given. Who is connected is looked at anew.
        """
        if tenants != self._barred:
            self._barred = tenants
            self._store.generation += 1

    # ------------------------------------------------------------------ signing in

    def password_hash(self, tenant: str, name: str) -> str | None:
        """The argon2 hash that a password must fit; None if no password signs this login in."""
        user = self._user(tenant, name)
        if user is None or not user.enabled or tenant in self._barred:
            return None
        return user.password_hash or None

    def access_key(self, key_id: str) -> AccessKey | None:
        """An access key that may sign requests now: it and its user are enabled."""
        key = self._store.access_key(key_id)
        development = self._development
        if key is None:
            if development is None or development.access_key.key_id != key_id:
                return None
            return development.access_key
        if not key.enabled or key.tenant in self._barred:
            return None
        user = self._store.user(key.tenant, key.user)
        return key if user is not None and user.enabled else None

    def secret_of(self, key: AccessKey) -> bytes:
        """The secret of a key that `access_key` gave. Raises what `unseal` raises."""
        development = self._development
        if development is not None and key is development.access_key:
            return development.secret
        return self._unseal(key.sealed_secret, secret_context(key.key_id))

    def principal(self, tenant: str, name: str) -> Principal | None:
        """The principal of a user that signed in; None if it was removed or disabled meanwhile."""
        user = self._user(tenant, name)
        if user is None or not user.enabled or tenant in self._barred:
            return None
        return Principal(tenant, name, self._kind_of(user))

    def principal_of(self, key: AccessKey) -> Principal | None:
        """The principal in whose name an access key signs."""
        development = self._development
        if development is not None and key is development.access_key:
            user = development.user
            return Principal(user.tenant, user.name, PrincipalKind.DEVELOPMENT)
        return self.principal(key.tenant, key.user)

    # --------------------------------------------------- rights, for auth.policies.policy_decisions

    def generation_source(self) -> AuthStore:
        return self._store

    def policies_of(
        self, principal: Principal, sign_out: int | None = None
    ) -> tuple[str, ...] | None:
        if principal.kind is PrincipalKind.OPERATOR:
            return _OF_OPERATORS
        if principal.kind is PrincipalKind.DEVELOPMENT:
            user = self._development.user if self._development is not None else None
            if user is None or (user.tenant, user.name) != (principal.tenant, principal.name):
                return None
        else:
            user = self._store.user(principal.tenant, principal.name)
        if user is None or not user.enabled or (sign_out is not None and sign_out != user.sign_out):
            return None
        if principal.tenant in self._barred:
            return None
        return user.policies

    def policies_named(self, tenant: str, names: tuple[str, ...]) -> tuple[Policy, ...]:
        return tuple(self._policy(tenant, name) for name in names)

    def sign_out_of(self, principal: Principal) -> int:
        """What a user's record says of those who sign in with its password now."""
        user = self._store.user(principal.tenant, principal.name)
        return user.sign_out if user is not None else 0

    def policy(self, tenant: str, name: str) -> Policy | None:
        """A policy by name, stored or built in."""
        return self._store.policy(tenant, name) or self._built_in_policy(tenant, name)

    def _policy(self, tenant: str, name: str) -> Policy:
        """A policy that a user refers to; the store sees to it that there is one."""
        policy = self.policy(tenant, name)
        assert policy is not None, f"a user refers to the policy {name}, which does not exist"
        return policy

    def _built_in_policy(self, tenant: str, name: str) -> Policy | None:
        """One object per (tenant, name), so that compiled rules are found again by identity."""
        policy = self._built_in.get((tenant, name))
        if policy is None:
            policy = built_in_policy(tenant, name)
            if policy is not None:
                self._built_in[tenant, name] = policy
        return policy

    def _user(self, tenant: str, name: str) -> User | None:
        user = self._store.user(tenant, name)
        if user is not None or self._development is None:
            return user
        known = self._development.user
        return known if (known.tenant, known.name) == (tenant, name) else None

    def _kind_of(self, user: User) -> PrincipalKind:
        is_known = self._development is not None and user is self._development.user
        return PrincipalKind.DEVELOPMENT if is_known else PrincipalKind.USER


def secret_context(key_id: str) -> bytes:
    """What a sealed secret is bound to: moved to another key, it does not open."""
    return b"access-key:" + key_id.encode()
