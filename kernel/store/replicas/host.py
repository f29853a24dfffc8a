"""The port of a group to the store it lives in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from ...api.origins import Origins
from ...broker.delivery.delivery_scheduler import DeliveryScheduler
from ...common.ids import RaftGroup

ReplicaT_contra = TypeVar("ReplicaT_contra", contravariant=True)
"""Who asks: the replica, which knows its host and not the other way round."""


class Timer(Protocol):
    """A call that has been asked for with `call_later`."""

    def cancel(self) -> None:
        """Withdraw the call."""


class ReplicaHost(Protocol[ReplicaT_contra]):
    """What a replica asks of the store it lives in."""

    origins: Origins
    awaits_claims: bool
    """Whether other processes may hold what the last leader of a group has handed out, and claim
    it from the next one."""

    @property
    def scheduler(self) -> DeliveryScheduler:
        """How much may be handed out at once."""

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    def fetch(
        self, group: RaftGroup, index: int, done: Callable[[], None], *, log: bool = False
    ) -> None:
        """Read a log entry into memory, then call `done`. Those behind it may come along: what is
        held, or (`log`) all of the group's.
        """

    def dirty(self, replica: ReplicaT_contra, *, urgent: bool) -> None:
        """The replica has something to propose: at the next commit, or within 5 ms."""

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Call `action` after so long."""
