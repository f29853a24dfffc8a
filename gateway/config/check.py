"""Rules that no single value shows: what settings mean together, and what is not served yet.

Every rule yields what is wrong and where; none of them changes anything. A setting that this
version reads but does not act upon is refused unless it has its shipped value, with a sentence
that says what this version does instead (NOT_SERVED_YET): a setting ignored in silence is a lie.
Whoever makes the program act upon one of them removes its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from auth.loopback import is_loopback
from gateway.config.cluster_settings import cluster_findings
from gateway.config.declared import look
from gateway.config.exposure import exposure_findings
from gateway.config.limits import limits_findings
from gateway.config.path import SECTIONS, Path, Problem, spell
from gateway.config.tenants import tenant_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adapters.base import Declaration
    from gateway.config.schema import Settings

Finding = tuple[Path, str]

ANY = "*"
"""Stands for any one key in a row of NOT_SERVED_YET."""

NOT_SERVED_YET: tuple[Finding, ...] = (
    (("node", "workers"), "this version runs one gateway process"),
    (("node", "store", "enabled"), "a store always listens, and nobody else does"),
    (("node", "store", "tls"), "node.cluster.tls says whether it speaks TLS"),
    (("node", "store", "advertised"), "node.cluster.address tells others where it is"),
    (("node", "mesh", "enabled"), "a gateway of a cluster always listens, and nobody else does"),
    (("node", "mesh", "tls"), "node.cluster.tls says whether it speaks TLS"),
    (("node", "mesh", "advertised"), "node.cluster.address tells others where it is"),
    (("names", "aliases"), "this version has no aliases"),
    (("names", "tree"), "this is fixed for now: `weir topic create --tree` decides for one topic"),
    (("protocols", ANY, "auth"), "this version offers what each adapter has"),
)
"""Beginnings of paths whose values are fixed for now, and what is the case instead."""


def find_problems(
    settings: Settings, origins: Mapping[Path, str], changed: Sequence[Path]
) -> list[Problem]:
    """Return everything wrong with settings whose every value is fine by itself.

    `changed` are the paths whose value differs from the shipped one.
    """
    declared, undeclared = look(settings.protocols)
    findings = [
        *_protocol_findings(settings),
        *undeclared,
        *_limit_findings(settings),
        *_operation_findings(settings),
        *_address_findings(settings),
        *_metering_findings(settings),
        *_tls_findings(settings),
        *_declared_findings(settings, declared),
        *exposure_findings(settings),
        *cluster_findings(settings, declared, changed),
        *limits_findings(settings),
        *tenant_findings(settings.tenants, declared, changed),
        *_unserved_findings(changed),
    ]
    return [Problem(spell(path), what, _origin(path, origins)) for path, what in findings]


def _protocol_findings(settings: Settings) -> Iterator[Finding]:
    for name, protocol in settings.protocols.items():
        at = ("protocols", name)
        if name in SECTIONS:
            yield at, "has the name of a section; a protocol needs another one"
        if not protocol.enabled:
            continue
        if protocol.adapter is None:
            yield (*at, "enabled"), f"{name} is not served yet: this version has no adapter for it"
        elif not protocol.open_listeners():
            yield (*at, "listeners"), f"none is enabled, so no one could reach {name}"


def _limit_findings(settings: Settings) -> Iterator[Finding]:
    for protocol_name, protocol in settings.protocols.items():
        for name, limit in protocol.limits.items():
            path = ("protocols", protocol_name, "limits", name, "value")
            if limit.value < limit.min:
                yield path, f"{limit.value} is below the least possible, {limit.min} {limit.unit}"
            if limit.max is not None and limit.value > limit.max:
                yield path, f"{limit.value} is above the most possible, {limit.max} {limit.unit}"


def _operation_findings(settings: Settings) -> Iterator[Finding]:
    for protocol_name, protocol in settings.protocols.items():
        for name, operation in protocol.operations.items():
            path = ("protocols", protocol_name, "operations", name)
            if (operation.status == "refused") != (operation.error is not None):
                yield path, "an error is named exactly where the status is 'refused'"
            if operation.status == "partial" and operation.note is None:
                yield path, "a partial operation needs a note that says what is left out"


def _address_findings(settings: Settings) -> Iterator[Finding]:
    taken: dict[tuple[str, int], Path] = {}
    for path, listener in settings.open_listeners().items():
        # Port 0 asks the system for a free port, so it never collides.
        if listener.port == 0:
            continue
        first = taken.setdefault((listener.host, listener.port), path)
        if first != path:
            what = f"{listener.host}:{listener.port} is the address of {spell(first)} too"
            yield (*path, "port"), what


def _metering_findings(settings: Settings) -> Iterator[Finding]:
    interval_s = settings.node.metering.flush_interval_s
    if 3_600 % interval_s:
        path = ("node", "metering", "flush_interval_s")
        yield path, f"{interval_s} s do not divide an hour, at whose ends bills are cut"


def _tls_findings(settings: Settings) -> Iterator[Finding]:
    for path, listener in settings.open_listeners().items():
        if listener.client_certificate == "none":
            continue
        asks = (*path, "client_certificate")
        if path[0] != "protocols":
            yield (
                asks,
                "is for the listeners of protocols",
            )
        elif not listener.tls:
            yield asks, "is for listeners with `tls: true`"
        elif settings.node.tls.client_authority is None:
            yield asks, "needs the authority that signs them: set node.tls.client_authority"
    tls = settings.node.tls
    if (tls.certificate is None) != (tls.private_key is None):
        missing = "certificate" if tls.certificate is None else "private_key"
        yield ("node", "tls", missing), "is needed: a certificate goes with its private key"
    elif tls.certificate is None:
        for path, listener in settings.open_listeners().items():
            if listener.tls and not is_loopback(listener.host):
                yield (
                    (*path, "host"),
                    "is not on loopback: set node.tls.certificate and node.tls.private_key",
                )


def _declared_findings(
    settings: Settings, declared: Mapping[str, Declaration]
) -> Iterator[Finding]:
    """What adapters say of their listeners."""
    titles = " and ".join(each.title for each in declared.values() if each.reads_plain_too)
    for path, listener in settings.open_listeners().items():
        adapter = declared.get(path[1]) if path[0] == "protocols" else None
        if listener.plain_too and not (
            listener.tls and adapter is not None and adapter.reads_plain_too
        ):
            yield (*path, "plain_too"), f"is for {titles}'s listeners with `tls: true`"
        if adapter is not None:
            for key, what in adapter.listener_faults(listener):
                yield (*path, key), what


def _unserved_findings(changed: Sequence[Path]) -> Iterator[Finding]:
    # An entry with an adapter of its own says what that one does.
    others = {path[1] for path in changed if path[0] == "protocols" and path[2:] == ("adapter",)}
    for path in changed:
        if path[0] == "protocols" and path[1] in others:
            continue
        for beginning, instead in NOT_SERVED_YET:
            head = path[: len(beginning)]
            if len(head) == len(beginning) and all(
                pattern in {ANY, key} for pattern, key in zip(beginning, head, strict=True)
            ):
                yield path, f"cannot be changed yet: {instead}"


def _origin(path: Path, origins: Mapping[Path, str]) -> str:
    for at, origin in origins.items():
        if at[: len(path)] == path:
            return origin
    return ""
