"""The bill of a month so far, for the console: what `weir bill` makes of the archive, in a process
of its own.

    none ─begin─► running ─► done: invoices         (a later one takes its place)
                     └─────► failed: why

Prices are worked out by the billing jobs alone, so that what is shown is what an invoice would say:
there is no second arithmetic. They take some seconds and some hundred megabytes, beside the server
and behind it (NICE). One runs at a time, for RUN_S at most; of its tables the last run's are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
from msgspec import Struct

from kernel.common.errors import UNDECODABLE, Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from kernel.common.ports import Clock

BILLS_DIRECTORY: Final = "bill-so-far"
"""Below the data directory."""

RUN_S: Final = 900.0
NICE: Final = 10
OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Of what the run prints: a summary, or why it failed."""

REASON_CHARACTERS_MAX: Final = 2_000
INVOICES_MAX: Final = 1_000

PROGRAM: Final = (sys.executable, "-m", "gateway", "bill")

_log = structlog.get_logger("weir.metering")


class BillLine(Struct, frozen=True):
    """A line of an invoice. Numbers are decimals as text, so that no digit is lost."""

    title: str
    quantity: str | int
    per: str | int
    unit_price: str
    amount: str


class InvoiceShown(Struct, frozen=True):
    """A draft: what a tenant would owe."""

    tenant: str
    currency: str
    total: str
    lines: list[BillLine]


class MonthBillShown(Struct, frozen=True, kw_only=True):
    """The last run, or the one that goes on."""

    state: str
    """`none`, `running`, `done` or `failed`."""
    period: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    reason: str = ""
    """Why it failed."""
    is_whole_month: bool = False
    """Whether the month was over: if not, what is served until then is still to come."""
    problems: list[str] = []
    """What is known to be missing or to disagree; the invoices are right for the rest."""
    unpriced: list[str] = []
    """Usage that the price book has no price for."""
    price_book: str = ""
    """Its name."""
    is_own_price_book: bool = False
    """Whether it is the one that comes with Weir, whose prices are made up: none is set."""
    invoices: list[InvoiceShown] = []
    left_out: int = 0
    """Invoices beyond INVOICES_MAX, which are in the tables of the run alone. Of one tenant 1: its
    own may be among them.
    """

    def of(self, tenant: str) -> MonthBillShown:
        """What who administers a tenant is told: its own invoice, and no words about others."""
        missing = ["Some records of this month are missing or disagree: ask who runs this server."]
        failed = "It could not be worked out: ask who runs this server."
        own = [each for each in self.invoices if each.tenant == tenant]
        return msgspec.structs.replace(
            self,
            reason=failed if self.reason else "",
            problems=missing if self.problems else [],
            unpriced=[],
            invoices=own,
            left_out=int(not own and self.left_out > 0),
        )


class MonthBill:
    """Of one process. Belongs to its event loop."""

    def __init__(
        self,
        export: Callable[[], Awaitable[object]],
        archive: Path,
        data: Path,
        price_book: str | None,
        clock: Clock,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """`export` puts everything that was counted into the archive. `price_book`: a file; None:
        Weir's own. `program`: what is run.
        """
        self._export = export
        self._archive = archive
        self._out = data / BILLS_DIRECTORY
        self._price_book = price_book
        self._clock = clock
        self._program = program
        self._running: asyncio.Task[None] | None = None
        self.shown = MonthBillShown(state="none")

    def begin(self, period: str) -> MonthBillShown:
        """Work out a month. Raises KernelError LOCKED while one is worked out."""
        if self._running is not None:
            message = f"the bill of {self.shown.period} is being worked out"
            raise KernelError(Code.LOCKED, message)
        now_ms = self._clock.wall_ms()
        self.shown = MonthBillShown(state="running", period=period, began_ms=now_ms)
        self._running = asyncio.get_running_loop().create_task(self._run(period))
        self._running.add_done_callback(self._ended)
        return self.shown

    async def stop(self) -> None:
        """End what runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if task.cancelled():
            self._failed("the server is shutting down")
        elif task.exception() is not None:
            _log.error("no bill was made", error=repr(task.exception()))
            self._failed("it could not be worked out; the server's log says why")

    def _failed(self, reason: str) -> None:
        self.shown = msgspec.structs.replace(
            self.shown,
            state="failed",
            reason=reason[:REASON_CHARACTERS_MAX],
            ended_ms=self._clock.wall_ms(),
        )

    async def _run(self, period: str) -> None:
        try:
            await self._export()
            async with asyncio.timeout(RUN_S):
                said, complaint = await self._ran(period)
        except KernelError as error:
            return self._failed(error.message)
        except TimeoutError:
            return self._failed(f"it took longer than {RUN_S:.0f} s")
        try:
            summary = msgspec.json.decode(said)
        except UNDECODABLE:
            return self._failed(complaint.strip() or "the billing jobs said nothing")
        invoices, left_out = await asyncio.to_thread(self._kept, period, summary)
        self.shown = MonthBillShown(
            state="done",
            period=period,
            began_ms=self.shown.began_ms,
            ended_ms=self._clock.wall_ms(),
            is_whole_month=summary["ended"],
            problems=summary["problems"],
            unpriced=summary["unpriced"],
            price_book=summary["price_book"],
            is_own_price_book=self._price_book is None,
            invoices=invoices,
            left_out=left_out,
        )
        return None

    async def _ran(self, period: str) -> tuple[bytes, str]:
        """(what it printed, what it complained of)."""
        words = [*self._program, "--period", period, "--metering", str(self._archive)]
        words += ["--out", str(self._out), "--output", "json"]
        if self._price_book is not None:
            words += ["--price-book", self._price_book]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=OUTPUT_BYTES_MAX,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        try:
            said, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                await process.wait()
        return said[:OUTPUT_BYTES_MAX], complaint[-REASON_CHARACTERS_MAX:].decode(errors="replace")

    def _kept(self, period: str, summary: dict[str, Any]) -> tuple[list[InvoiceShown], int]:
        """The invoices of a run, and how many more there are. Those before it go."""
        for run in self._out.glob("period=*/run=*"):
            if run.name != f"run={summary['run_id']}" or run.parent.name != f"period={period}":
                shutil.rmtree(run, ignore_errors=True)
        files = sorted((self._out / f"period={period}" / f"run={summary['run_id']}").glob("json/*"))
        invoices = [
            msgspec.json.decode(each.read_bytes(), type=InvoiceShown)
            for each in files[:INVOICES_MAX]
        ]
        return sorted(invoices, key=lambda each: each.tenant), len(files) - len(invoices)
