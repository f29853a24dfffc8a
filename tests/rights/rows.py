"""What a row of the matrix is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.rights.site import Actor


@dataclass(frozen=True, kw_only=True)
class Row:
    """One action of one protocol, and exactly the rights that it takes."""

    operation: str
    """As protocols.yaml has it."""
    way: str = ""
    """Which of the ways to do it."""
    needs: tuple[str, ...]
    """Each as in a rule: `publish topic:{n}`; `{n}` is what the row calls its things."""
    also_by: tuple[str, ...] = ()
    """Rights each of which does as well in place of the one that it needs."""
    do: Callable[[Actor], object]
    """Raises what `site.tried` knows, if a right is missing."""
    hold: Callable[[Actor], Callable[[], bool]] | None = None
    """For what goes on once it was allowed: begins it, and tells whether it has been ended."""
    before: Callable[[Actor], object] = lambda root: None
    """Makes what it needs, by somebody who may do everything in the tenant."""
    again: bool = True
    """Whether it can be done twice."""
    at_gateways: bool = True
    """Whether the gateway of a cluster does it, as a node does."""
    names_tenant: bool = True
    """Whether somebody of another tenant can name the tenant's things this way at all."""

    @property
    def label(self) -> str:
        return f"{self.operation} ({self.way})" if self.way else self.operation
