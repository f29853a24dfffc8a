"""The adapters' declarations, found where protocols.yaml says: the one way by which anything here
knows a protocol (docs/adapter.md).

All entries with an adapter count, whether they are served or not: what one wrote stays readable,
and is billed under its name. To load a declaration does not load what serves clients.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Final

from adapters.base import ORIGIN_MAX, ORIGIN_MIN, Declaration
from metering.schema import QueueClass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.config.path import Path
    from gateway.config.schema import Protocol
    from kernel.api.origins import Origins

KERNEL_NAME: Final = "kernel"
"""What is billed that came by no protocol."""

NAMES_TAKEN: Final = frozenset({KERNEL_NAME, "internal", "weir"})
"""Names of what no protocol does: on the bill, and as the writer of a message."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)


class NotDeclared(ValueError):
    """Where an adapter should be, there is none; the text says why."""


def declaration_at(place: str) -> Declaration:
    """The declaration at `module:name`. Raises NotDeclared."""
    module, colon, name = place.partition(":")
    if not colon or not module or not name:
        raise NotDeclared(f"{place!r} is not module:name of a declaration (docs/adapter.md)")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # what somebody else's module raises is anything
        raise NotDeclared(f"{module} cannot be imported: {error!r}") from error
    if not isinstance(found, Declaration):
        raise NotDeclared(f"{place} is no adapters.base.Declaration (docs/adapter.md)")
    return found


def declared_in(protocols: Mapping[str, Protocol]) -> dict[str, Declaration]:
    """The declarations of checked settings, by the protocols' keys. Raises NotDeclared."""
    return {
        name: declaration_at(each.adapter)
        for name, each in protocols.items()
        if each.adapter is not None
    }


def look(
    protocols: Mapping[str, Protocol],
) -> tuple[dict[str, Declaration], list[tuple[Path, str]]]:
    """The declarations of settings that are being checked, and what is wrong with the others."""
    found: dict[str, Declaration] = {}
    findings: list[tuple[Path, str]] = []
    for key, protocol in protocols.items():
        if protocol.adapter is None:
            continue
        try:
            declared = declaration_at(protocol.adapter)
        except NotDeclared as error:
            findings.append((("protocols", key, "adapter"), str(error)))
            continue
        faults = list(_faults(key, declared, found))
        missing = sorted(declared.needs - protocol.values().keys())
        if missing:
            what = f"has no {', '.join(missing)} among its limits and options, as its adapter needs"
            findings.append((("protocols", key), what))
        findings += [(("protocols", key, "adapter"), fault) for fault in faults]
        if not faults:
            found[key] = declared
    return found, findings


def _faults(key: str, declared: Declaration, others: Mapping[str, Declaration]) -> Iterator[str]:
    if declared.name != key:
        yield f"is the adapter of {declared.name}: it must stand below that key, which is billed"
    if _NAME.fullmatch(declared.name) is None:
        yield f"{declared.name!r} is no name: up to 32 of a-z, 0-9 and _, a letter first"
    if declared.name in NAMES_TAKEN:
        yield f"the name {declared.name} is Weir's own"
    if not ORIGIN_MIN <= declared.origin <= ORIGIN_MAX:
        yield f"declares the origin {declared.origin}; possible are {ORIGIN_MIN} to {ORIGIN_MAX}"
    if declared.plain_class not in frozenset(QueueClass):
        yield f"declares the class {declared.plain_class!r}, which no bill knows"
    for name, other in others.items():
        if other.origin == declared.origin:
            yield (
                f"declares the origin {declared.origin}, which is that of {name}: stored messages "
                "would be taken for those of the other. An origin is one adapter's for ever"
            )


def names_by_origin(declared: Mapping[str, Declaration]) -> dict[int, str]:
    """The protocols' names, by the origin byte of what they wrote."""
    return {each.origin: name for name, each in declared.items()}


def register_readers(origins: Origins, declared: Mapping[str, Declaration]) -> None:
    """Have a process read what the adapters wrote.

    One without adapters sends dead letters by their own keys, and routes them by their attributes.
    """
    for each in declared.values():
        if each.reader is not None:
            origins.register(each.origin, each.reader())
