"""Alarms as log lines, once a change: what `weir health` says, for who reads logs.

    alarm        check, reason; refuses: whether something is refused because of it
    alarm over   check
    given up     a log entry that does not read: group, index, topics, messages, where its bytes are

Whoever adds a check to a process's health has its lines here. Not of the process's own comings and
goings, which have lines of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernel.log.reading.aside import LOST_DIRECTORY

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    import structlog.typing

    from gateway.admin.health import Check
    from kernel.store.recovery.losses import Loss

LOOK_SECONDS: Final = 1.0
"""As often as the disk is measured."""

PASSED_OVER: Final = frozenset({"serving", "clients"})


class AlarmLog:
    """Of one process."""

    def __init__(
        self,
        log: structlog.typing.FilteringBoundLogger,
        loop: asyncio.AbstractEventLoop,
        checks: Callable[[], Sequence[Check]],
    ) -> None:
        self._log = log
        self._loop = loop
        self._checks = checks
        self._known: dict[str, tuple[bool, bool]] = {}
        """By check: (whether it is well, whether there is an alarm)."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look each second from now on."""
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self.start()
        self.look()

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Write what has changed."""
        for check in self._checks():
            now = check.ok, bool(check.reason)
            if check.name in PASSED_OVER or self._known.get(check.name, (True, False)) == now:
                continue
            self._known[check.name] = now
            if check.reason:
                self._log.warning(
                    "alarm", check=check.name, reason=check.reason, refuses=not check.ok
                )
            else:
                self._log.info("alarm over", check=check.name)

    def given_up(self, loss: Loss) -> None:
        """An entry of the log does not read (`kernel.store.recovery.unreadable`)."""
        self._log.error(
            "given up",
            group=loss.group,
            index=loss.index,
            segment=loss.segment,
            reason=loss.reason,
            messages=loss.messages,
            topics=sorted({f"{each.tenant}/{each.topic}" for each in loss.queues}),
            kept_in=LOST_DIRECTORY,
        )
