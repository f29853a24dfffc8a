"""Policies that exist in every tenant without being stored."""

from __future__ import annotations

from .policy_rules import Action, Effect, Policy, Resource, ResourceKind, Rule

ADMINISTRATOR_POLICY = "administrator"
"""Everything. In a tenant other than `default`: everything in that tenant."""

FULL_POLICY = "full"
"""Everything with messages and definitions, nothing with users, keys, policies or nodes."""

_RULES = {
    ADMINISTRATOR_POLICY: (Rule(Effect.ALLOW, tuple(Action), (Resource(None),)),),
    FULL_POLICY: (
        Rule(
            Effect.ALLOW,
            tuple(action for action in Action if action is not Action.ADMINISTER),
            (
                Resource(ResourceKind.TOPIC, "*"),
                Resource(ResourceKind.ROUTER, "*"),
                Resource(ResourceKind.GROUP, "*"),
                Resource(ResourceKind.TREE, "#"),
                Resource(ResourceKind.TREE, "$SYS/#"),
            ),
        ),
    ),
}

BUILT_IN_POLICIES = frozenset(_RULES)
"""Names that no stored policy can take."""


def built_in_policy(tenant: str, name: str) -> Policy | None:
    """The built-in policy of that name as it stands in a tenant; None if it is not one."""
    rules = _RULES.get(name)
    return Policy(tenant=tenant, name=name, rules=rules) if rules is not None else None
