"""What a document would change, and what of it cannot be.

A document adds and changes; what it does not name stays, whatever it is: a name that somebody
forgot deletes no messages. So does a password or a secret that it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from adapters.definitions import TopicDefined
from gateway.definitions.things import SINGULAR, Thing, plain, things_of
from gateway.process.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Collection

    from adapters.definitions import Definitions
    from gateway.definitions.checks import Checks
    from gateway.definitions.known import Known
    from gateway.definitions.things import Value

LISTED_MAX: Final = 5_000
"""Changes that one answer lists, and that one request makes: some seconds, and some hundred KB.
What is left is counted, and the same request makes it next."""

HIDDEN: Final = "(hidden)"
_SECRETS: Final = frozenset({"password_hash", "sealed_secret"})
_KEPT: Final = {
    "policies": ("note",),
    "users": ("password_hash",),
    "keys": ("sealed_secret",),
    "topics": ("declarations", "size", "trace"),
    "routers": ("declarations",),
}
"""What a thing keeps that a document does not give."""


class ChangePlanned(Struct, frozen=True, kw_only=True):
    """One thing that is made, or changed."""

    kind: str
    tenant: str
    """Empty: of no tenant."""
    name: str
    is_new: bool
    fields: dict[str, list[Any]]
    """By name, what is now and what will be; secrets are hidden. Of a new thing: none."""


class Fault(Struct, frozen=True, kw_only=True):
    """A thing of a document that cannot be had here, or could not be made."""

    kind: str
    tenant: str
    name: str
    reason: str


@dataclass(slots=True)
class Plan:
    """All of a document."""

    changes: list[tuple[Thing, ChangePlanned]] = field(default_factory=list)
    """At most LISTED_MAX, in the order in which they are to be made."""
    count: int = 0
    """Of all changes."""
    same: int = 0
    """Things that are as the document has them."""
    faults: list[Fault] = field(default_factory=list)
    """At most LISTED_MAX."""


async def plan_of(
    document: Definitions, kinds: Collection[str], known: Known, checks: Checks
) -> Plan:
    """What is to be done to have what a document says."""
    plan = Plan()
    piece = Slice()
    for thing in things_of(document, kinds):
        if piece.is_over:
            await piece.pause()
        tenant_fault = checks.tenant(thing)
        if tenant_fault is not None:
            _add_fault(plan, thing, tenant_fault)
            continue
        fault = checks.form(thing)
        now = None if fault is not None else await known.same(thing)
        change = None if fault is not None else change_of(thing, now)
        if fault is None and change is not None:
            fault = await checks.change(thing, now)
        if fault is not None:
            _add_fault(plan, thing, fault)
        elif change is None:
            plan.same += 1
        else:
            plan.count += 1
            if len(plan.changes) < LISTED_MAX:
                plan.changes.append((thing, change))
    return plan


def fault_of(thing: Thing, reason: str) -> Fault:
    """What is wrong with a thing."""
    return Fault(kind=SINGULAR[thing.kind], tenant=thing.tenant, name=thing.name, reason=reason)


def _add_fault(plan: Plan, thing: Thing, reason: str) -> None:
    if len(plan.faults) < LISTED_MAX:
        plan.faults.append(fault_of(thing, reason))


def change_of(thing: Thing, now: Value | None) -> ChangePlanned | None:
    """What has to be done for a thing; None: nothing."""
    fields: dict[str, list[Any]] = {}
    if now is not None:
        wanted, found = _settings(thing.value), _settings(now)
        for name in _KEPT.get(thing.kind, ()):
            if not wanted.get(name):
                wanted[name] = found.get(name)
        names = {**found, **wanted}
        if isinstance(thing.value, TopicDefined):
            # Groups that are not named stay.
            names = {
                name: None for name in names if not name.startswith("groups.") or name in wanted
            }
        fields = {
            name: [_shown(name, found.get(name)), _shown(name, wanted.get(name))]
            for name in names
            if wanted.get(name) != found.get(name)
        }
        if not fields:
            return None
    return ChangePlanned(
        kind=SINGULAR[thing.kind],
        tenant=thing.tenant,
        name=thing.name,
        is_new=now is None,
        fields=fields,
    )


def _settings(value: Value) -> dict[str, Any]:
    """Settings by name; a topic's groups each by itself."""
    found = plain(value)
    for name, group in found.pop("groups", {}).items():
        found[f"groups.{name}"] = group
    return found


def _shown(name: str, value: object) -> object:
    return HIDDEN if name in _SECRETS and value else value
