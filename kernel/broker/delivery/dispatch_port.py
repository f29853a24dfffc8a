"""The port of a dispatcher to the node it runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ...api.client import Settlement
from ...api.model import Reason
from ...api.origins import Origins
from ...common.ids import QueueId
from ...log.format.entry import Opened
from ..log_commands.commands import Change
from .delivery_scheduler import DeliveryScheduler
from .group_counts import GroupCounts

DispatcherT_contra = TypeVar("DispatcherT_contra", contravariant=True)
"""Who asks: the dispatcher, which knows this port and not the other way round."""


class Entries(Protocol):
    """Log entries that are in memory."""

    @property
    def newest(self) -> Opened:
        """The entry that was applied last, in the turn of the dispatchers that follows."""

    def entry(self, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    def log_time_ms(self) -> int:
        """Log time now."""


class Port(Entries, Protocol[DispatcherT_contra]):
    """What a dispatcher asks of its node."""

    @property
    def origins(self) -> Origins:
        """Readers of native blocks, for filters."""

    @property
    def scheduler(self) -> DeliveryScheduler:
        """How much may be handed out at once."""

    def put_off(self, dispatcher: DispatcherT_contra) -> None:
        """Have it go on (`PUT_OFF`) when it is its turn among all that wait for one."""

    def counts_of(self, queue: QueueId, group: str) -> GroupCounts:
        """Where it is counted what a group is handed."""

    def may_hand_out(self) -> bool:
        """Whether this node is sure that no other leads the group by now. If not, it halts its
        dispatchers until it is.
        """

    def fetch(self, index: int, dispatcher: DispatcherT_contra) -> None:
        """Read a log entry, then call `fetched`."""

    def propose_settle(
        self,
        queue: QueueId,
        group: str,
        how: Settlement,
        reason: Reason,
        offsets: Sequence[int],
        origin: int,
        *,
        urgent: bool,
    ) -> None:
        """Put a settlement into the log: at the next commit if urgent, else within 5 ms or 500."""

    def propose_acks(
        self, queue: QueueId, group: str, offsets: list[int], origin: int, *, urgent: bool
    ) -> None:
        """The same for acks (hot). The list becomes the port's."""

    def propose_mark(self, queue: QueueId, group: str, level: int, offset: int) -> None:
        """Put a dispatch mark into the log at the next commit."""

    def propose_lease(
        self,
        queue: QueueId,
        group: str,
        deadline_ms: int,
        offsets: Sequence[int],
        slot_sizes: Sequence[int],
        done: Callable[[int, Sequence[int]], None],
        who: tuple[int, int],
        *,
        ends: bool,
    ) -> None:
        """Put timed leases into the log, with the (origin, note) of who asked; `done(lease, offsets
        that got it)` once it is there. `ends`: they end at once (see `commands`).
        """

    def propose_change(
        self, queue: QueueId, group: str, changes: Sequence[Change], origin: int
    ) -> None:
        """Put changes of timed leases into the log at the next commit; `origin`: of the leases that
        have reached nobody, if any have not.
        """

    def tell_when_moved(self, tell: Callable[[], None]) -> None:
        """Call `tell` once after the next turn of the dispatchers."""

    def wake(self, dispatcher: DispatcherT_contra, delay_ms: int) -> Callable[[], None]:
        """Call `woken` after so long; what is returned takes that back."""

    def unused(self, dispatcher: DispatcherT_contra) -> None:
        """Its last push consumer has gone."""

    def idle(self, dispatcher: DispatcherT_contra) -> None:
        """Nobody takes from it any more, nor waits."""
