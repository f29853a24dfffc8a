"""Decisions: whether a principal may do something to a name, and why.

Rules:
- What no rule allows is denied. A deny beats every allow, in whatever policy it stands.
- But a client id is allowed as long as no allow names that kind, `*` not counting (ADR 20).
- A principal acts inside its own tenant. `administer tenant:NAME` reaches other tenants, and
  `node` resources count at all, only for principals of the tenant `default`.
- A decision is always made by the policies of now: every check compares the store's generation,
  and a user that is removed or disabled keeps nothing.

Structure, from shared to own:

    PolicyBook          one a gateway
      RuleSet           one per (tenant, policies): compiled rules, decisions they all share
        Access          one per connection: the object that adapters hold and ask

An `Access` keeps decisions of its own only if its rules hold placeholders. The hot call is
`Access.allows`: one comparison, one index, one dict look-up. Names come from clients, so every
cache of decisions is bounded; one that is full starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from ..principal import DEFAULT_TENANT, Principal
from .matching import Matcher, Values, compile_resource
from .policy_rules import (
    PERMISSION_COUNT,
    Action,
    Effect,
    Permission,
    ResourceKind,
    Rule,
    action_of,
    kind_of,
    permission,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .policy_rules import Policy

SHARED_DECISIONS_MAX = 4_096
"""Decisions per rule set and permission: the hot names of a tenant, at most about 1 MB."""

OWN_DECISIONS_MAX = 64
"""Decisions per connection and permission under placeholders: a device uses a handful of names,
and a hundred thousand devices are connected."""


class Authority(Protocol):
    """Where rights are looked up (auth.users.directory)."""

    def policies_of(
        self, principal: Principal, sign_out: int | None = None, /
    ) -> tuple[str, ...] | None:
        """Names of the policies that hold for a principal now, all of its own tenant or built in;
        None if there is no such principal (any more). `sign_out`: what its record said when it
        signed in with a password, None if it did not.
        """

    def policies_named(self, tenant: str, names: tuple[str, ...], /) -> tuple[Policy, ...]:
        """The policies themselves, as they are now."""

    def generation_source(self) -> Generation:
        """The object whose `generation` rises whenever anyone's rights may have changed."""


class Generation(Protocol):
    """A plain attribute, because it is read for every message."""

    generation: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Why something is allowed or denied."""

    allowed: bool
    principal: Principal
    client_id: str | None
    action: Action
    kind: ResourceKind
    name: str
    policy: str
    """Policy of the rule that decided; empty if no rule matched."""
    rule_number: int
    """From 1, in its policy; 0 if no rule matched."""
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """One compiled resource of one rule."""

    policy: str
    number: int
    rule: Rule
    matcher: Matcher


_Decisions = list[dict[str, bool]]

_NOTHING_YET: dict[str, bool] = {}
"""Stands for every permission not asked about yet, so that an idle connection owns no table.
Never written to."""


def _no_decisions() -> _Decisions:
    return [_NOTHING_YET] * PERMISSION_COUNT


_UNDECIDED = _no_decisions()
"""Stands for the list of a connection that has not asked yet. Never written to."""


class RuleSet:
    """The compiled rules of one list of policies."""

    __slots__ = (
        "__weakref__",
        "_allows",
        "_denies",
        "_names_clients",
        "decisions",
        "personal",
        "policies",
        "tenant",
    )

    def __init__(self, tenant: str, policies: tuple[Policy, ...]) -> None:
        self.tenant = tenant
        self.policies = policies
        self._allows: list[list[_Entry]] = [[] for _ in range(PERMISSION_COUNT)]
        self._denies: list[list[_Entry]] = [[] for _ in range(PERMISSION_COUNT)]
        self.personal = False
        self._names_clients = not tenant
        """Whether an allow names client ids, so that others are denied. (Nobody has none.)"""
        self.decisions = _no_decisions()
        for policy in policies:
            for number, rule in enumerate(policy.rules, start=1):
                self._compile(policy.name, number, rule)

    def _compile(self, policy: str, number: int, rule: Rule) -> None:
        tables = self._denies if rule.effect is Effect.DENY else self._allows
        for resource in rule.resources:
            entry = _Entry(policy, number, rule, compile_resource(resource))
            self.personal = self.personal or entry.matcher.personal
            if resource.kind is not None:
                kinds: Iterable[ResourceKind] = (resource.kind,)
                self._names_clients |= (
                    resource.kind is ResourceKind.CLIENT and rule.effect is Effect.ALLOW
                )
            else:
                kinds = ResourceKind if rule.effect is Effect.ALLOW else _DENIED_BY_STAR
            for action in rule.actions:
                for kind in kinds:
                    tables[permission(action, kind)].append(entry)

    def decide(self, number: Permission, name: str, who: Values) -> tuple[bool, _Entry | None, str]:
        """(allowed, the entry that decided, or None, why in words)."""
        kind = kind_of(number)
        if self.tenant != DEFAULT_TENANT:
            if kind is ResourceKind.NODE:
                return False, None, f"only the tenant {DEFAULT_TENANT} administers nodes"
            if kind is ResourceKind.TENANT and name != self.tenant:
                return False, None, f"tenant {self.tenant} has no say in another tenant"
        for entry in self._denies[number]:
            if entry.matcher.touches(name, who):
                return False, entry, "denied by a rule, and a deny beats every allow"
        for entry in self._allows[number]:
            if entry.matcher.covers(name, who):
                return True, entry, "allowed by a rule"
        if kind is ResourceKind.CLIENT and not self._names_clients:
            return True, None, "no rule says which client ids are allowed"
        return False, None, "no rule allows it"


_DENIED_BY_STAR = tuple(kind for kind in ResourceKind if kind is not ResourceKind.CLIENT)
"""A deny of `*` may have been written before there was that kind: who may only publish connects."""

_NO_RIGHTS = RuleSet("", ())
"""The rules of whoever is not (any more) a principal."""


class Access:
    """The rights of one principal on one connection. Adapters hold it and ask it."""

    __slots__ = (
        "_book",
        "_decisions",
        "_generation",
        "_rules",
        "_sign_out",
        "_source",
        "client_id",
        "principal",
    )

    def __init__(
        self,
        book: PolicyBook,
        source: Generation,
        principal: Principal,
        client_id: str | None,
        sign_out: int | None,
    ) -> None:
        self._book = book
        self._source = source
        self._sign_out = sign_out
        self.principal = principal
        self.client_id = client_id
        self._rules = _NO_RIGHTS
        self._decisions = _UNDECIDED
        self._generation = -1

    def allows(self, number: Permission, name: str) -> bool:
        """Whether `name` may be used so. Hot: about 0.1 us for a name asked about before.

        For (CONSUME, TREE) `name` is a topic filter (without `$share/.../`), and True means that
        all it can ever receive is allowed.
        """
        if self._generation != self._source.generation:
            self._renew()
        allowed = self._decisions[number].get(name)
        return self._decide(number, name) if allowed is None else allowed

    def explain(self, number: Permission, name: str) -> Decision:
        """The same decision, with the rule that made it. Asks the rules, never a cache."""
        self._renew()
        allowed, entry, reason = self._rules.decide(number, name, self._values())
        if self._rules is _NO_RIGHTS:
            reason = "there is no such principal, or it is disabled"
        return Decision(
            allowed,
            self.principal,
            self.client_id,
            action_of(number),
            kind_of(number),
            name,
            policy=entry.policy if entry is not None else "",
            rule_number=entry.number if entry is not None else 0,
            rule=str(entry.rule) if entry is not None else "",
            reason=reason,
        )

    def is_alive(self) -> bool:
        """False once the principal is removed, disabled or signed out: its connection goes."""
        return self.rules() is not _NO_RIGHTS

    def rules(self) -> object:
        """The rules that decide now: another object whenever what is allowed may be another."""
        if self._generation != self._source.generation:
            self._renew()
        return self._rules

    def _values(self) -> Values:
        return Values(self.principal.name, self.client_id)

    def _renew(self) -> None:
        """Takes the rules of now; keeps what was decided if they are the same rules."""
        rules = self._book.rules_for(self.principal, self._sign_out)
        self._generation = self._source.generation
        if rules is self._rules:
            return
        self._rules = rules
        self._decisions = _UNDECIDED if rules.personal else rules.decisions

    def _decide(self, number: Permission, name: str) -> bool:
        rules = self._rules
        allowed, _, _ = rules.decide(number, name, self._values())
        if self._decisions is _UNDECIDED:
            self._decisions = _no_decisions()
        decisions = self._decisions[number]
        if decisions is _NOTHING_YET:
            decisions = self._decisions[number] = {}
        elif len(decisions) >= (OWN_DECISIONS_MAX if rules.personal else SHARED_DECISIONS_MAX):
            decisions.clear()
        decisions[name] = allowed
        return allowed


class PolicyBook:
    """Compiles policies and gives out accesses. One a gateway."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._source = authority.generation_source()
        self._rule_sets: WeakValueDictionary[tuple[str, tuple[str, ...]], RuleSet] = (
            WeakValueDictionary()
        )
        self._generation = -1
        self._current: set[tuple[str, tuple[str, ...]]] = set()
        """Of the lists in `_rule_sets`, those that were compared with the policies of now."""

    def access(
        self, principal: Principal, client_id: str | None = None, sign_out: int | None = None
    ) -> Access:
        """The rights of a principal that signed in, for one connection.

        `client_id` is what `${clientid}` stands for; None where the protocol has none. `sign_out`:
        see `Authority.policies_of`.
        """
        return Access(self, self._source, principal, client_id, sign_out)

    def rules_for(self, principal: Principal, sign_out: int | None = None) -> RuleSet:
        """The compiled rules that hold for a principal now. Shared between equal lists.

        Warm: asked by everyone who is connected whenever anyone's rights change.
        """
        names = self._authority.policies_of(principal, sign_out)
        if names is None:
            return _NO_RIGHTS
        if self._generation != self._source.generation:
            self._generation = self._source.generation
            self._current.clear()
        key = (principal.tenant, names)
        rules = self._rule_sets.get(key)
        if rules is not None and key in self._current:
            return rules
        policies = self._authority.policies_named(*key)
        if rules is None or not _same(rules.policies, policies):
            rules = self._rule_sets[key] = RuleSet(principal.tenant, policies)
        self._current.add(key)
        return rules

    def statistics(self) -> int:
        """Compiled rule sets now in use."""
        return len(self._rule_sets)


def _same(one: tuple[Policy, ...], other: tuple[Policy, ...]) -> bool:
    """Whether two lists are the same records. Records are never changed, only replaced."""
    return len(one) == len(other) and all(map(is_, one, other))
