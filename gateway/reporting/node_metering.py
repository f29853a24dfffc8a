"""The metering of one node: the meters of its adapters, flushes to `__metering`, the archive.

    adapters' counters ─┐
    transient topics ────┼─> windows ─> one flush an interval ─> __metering ─> DATA/metering
    durable topics ─────┘   (metering.driver)               (metering.exporter, on a schedule)

What a crash may lose is what the adapters and transient topics have counted since the last flush,
in the customer's favour; what the log holds is counted there and told again after the crash.

A defect of the metering never ends the node: it is logged, shown by /api/v1/health and the
metrics, and the node goes on unbilled for what no log holds.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import structlog

from adapters.base import KERNEL_ORIGIN
from gateway.config.declared import KERNEL_NAME, names_by_origin
from gateway.config.schema import Metering
from gateway.process.data_lock import lock_data_directory
from gateway.process.slices import Slice
from gateway.reporting.month_bill import MonthBill
from kernel.api.origins import INTERNAL
from kernel.common.errors import Code, KernelError
from kernel.in_process.opening import open_store
from kernel.log.format.meta import read_meta
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker
from metering.collector import Collector
from metering.counters import Meter
from metering.driver import MeteringDriver, Ports
from metering.exporter import Archive, ExportError, export_queue
from metering.lineage import check_lineage, trim_restored
from metering.store_source import StoreSource, protocol_names
from metering.topic import MeteringTopic
from metering.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from adapters.base import Declaration
    from kernel.api.client import Client
    from kernel.common.ports import Clock
    from kernel.store.replicas.replica import Replica
    from metering.collector import CollectorStatistics
    from metering.schema import ManifestEntry
    from metering.window import Window

ARCHIVE_DIRECTORY: Final = "metering"
"""Below the data directory: Parquet files and their manifest."""

DRAIN_S: Final = 5.0
"""A flush is one commit; longer only if the disk stalls, and then what is left is lost."""

FLUSH_NOW_S: Final = 10.0
"""For an export that somebody asked for."""

QUEUE: Final = 0
"""`__metering` has one queue."""

NO_PYARROW: Final = (
    "pyarrow is not installed here: `make setup-spark`, or pip install 'weir-mq[spark]'"
)

_log = structlog.get_logger("weir.metering")


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has added to the archive."""

    directory: str
    files: int
    rows: int
    flushed: bool
    """Whether everything counted before was in `__metering` in time."""
    head: str
    """Of the manifest, for who bills from the archive elsewhere."""


class NodeMetering:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        client: Client,
        replicas: Callable[[], Iterable[Replica]],
        node: str,
        data: Path,
        clock: Clock,
        settings: Metering,
        declared: Mapping[str, Declaration],
        others: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`replicas()`: the Raft groups that this process counts for, its transient one too;
        `node`: who flushes, the same after a restart; `declared`: all adapters, by protocol;
        `others()` has the other processes that count flush too, and tells whether all have.
        """
        self._others = others
        self._clock = clock
        self._settings = settings
        self._directory = data / ARCHIVE_DIRECTORY
        self._meter = Meter(self._now_us(), window_us=settings.flush_interval_s * 1_000_000)
        self._collector = Collector(node, incarnation=SystemRandom().bits(62) | 1)
        names = {KERNEL_ORIGIN: KERNEL_NAME, **names_by_origin(declared)}
        self._source = StoreSource(
            replicas,
            self._meter,
            protocol_names(names, INTERNAL),
            plain_classes={name: each.plain_class for name, each in declared.items()},
            slices=Slice,
        )
        self._topic = MeteringTopic(client, clock, node)
        self._driver = MeteringDriver(
            self._meter,
            self._collector,
            Ports(
                clock_us=self._now_us,
                sleep=asyncio.sleep,
                register=self._topic.register,
                flush=self._topic.flush,
                gather=self._source.gather,
                more=self._windows,
            ),
        )
        self._exporting = asyncio.Lock()
        self.bill = MonthBill(self.export, self._directory, data, settings.price_book, clock)
        self._running: list[asyncio.Task[None]] = []
        self._told_unnamed: set[int] = set()
        self.failure = ""
        """Why the metering does not work; empty if it does."""

    # --- Life -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make `__metering`, unless it is there: the first flush would. Raises KernelError."""
        await self._topic.open()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Flush and export from now on."""
        self._running.append(tasks.create_task(self._run()))
        if self._settings.export_interval_s and can_export():
            self._running.append(tasks.create_task(self._export_regularly()))
        elif self._settings.export_interval_s:
            _log.info("no archive of the metering", reason=NO_PYARROW)

    async def stop(self) -> None:
        """Flush what was counted; bounded in time. After the adapters, before the store."""
        await self.bill.stop()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if not await self._driver.drain(DRAIN_S):
            _log.warning("counts are lost", rows=self.statistics().rows_waiting)
        else:
            self._source.reported()

    async def _run(self) -> None:
        try:
            await self._driver.run()
        except Exception as error:  # noqa: BLE001 - a defect must not end the node
            self.failure = f"the metering has ended: {error!r}"
            _log.exception("the metering has ended: traffic goes unbilled")

    async def _export_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.export_interval_s)
            try:
                await self.export_log(final=False)
                self.failure = "" if self.failure.startswith("export: ") else self.failure
            except (ExportError, OSError, KernelError) as error:
                self.failure = f"export: {error}"
                _log.warning("the export of the metering failed", reason=str(error))

    # --- Counting ---------------------------------------------------------------------------

    def traffic(self, declared: Declaration) -> Traffic:
        """The meter of an adapter."""
        timed = declared.leases_are_timed
        return Traffic(self._meter, declared.name, self._now_us, leases_are_timed=timed)

    def statistics(self) -> CollectorStatistics:
        """Flushes made and waiting."""
        return self._collector.statistics(self._now_us())

    def check_declared(self) -> None:
        """Raise KernelError NOT_FOUND if an adapter has counted here that nobody knows. Its counts
        would begin again under another name, beside those that its server has told.
        """
        unknown = self._source.undeclared()
        if unknown:
            shown = ", ".join(map(str, unknown))
            raise KernelError(
                Code.NOT_FOUND,
                f"no adapter declares origin {shown}, of which there are messages: name the "
                "server's file with --config (docs/adapter.md)",
            )

    def forgotten(self) -> int:
        """Messages of deleted topics that went unbilled (`usage.RETIRED_MAX`)."""
        return self._source.forgotten()

    async def _windows(self, start_us: int, end_us: int) -> Iterable[Window]:
        if self._collector.drained():
            self._source.reported()
        found = await self._source.windows(start_us, end_us)
        for origin in self._source.unnamed - self._told_unnamed:
            self._told_unnamed.add(origin)
            _log.warning(
                "counted by number: no adapter of these settings declares it", origin=origin
            )
        return found

    def _now_us(self) -> int:
        return self._clock.wall_ms() * 1_000

    async def flush(self) -> bool:
        """Whether everything counted until now is in `__metering`, in time."""
        return await self._driver.flush_now(FLUSH_NOW_S)

    # --- The archive ------------------------------------------------------------------------

    async def export(self, *, anew: bool = False) -> Exported:
        """Flush now and export everything there is: for a bill before the hour is over. `anew`: the
        archive was lost or moved away, and another is to begin.

        Raises KernelError: NOT_ALLOWED if that cannot be done here, UNAVAILABLE if it fails now.
        """
        if not can_export():
            raise KernelError(Code.NOT_ALLOWED, NO_PYARROW)
        flushed = await self.flush()
        if self._others is not None:
            flushed = await self._others() and flushed
        try:
            entries, head = await self.export_log(final=True, anew=anew)
        except (ExportError, OSError) as error:
            raise KernelError(Code.UNAVAILABLE, f"the export failed: {error}") from error
        rows = sum(entry.rows for entry in entries)
        return Exported(str(self._directory), len(entries), rows, flushed, head)

    async def export_log(
        self, *, final: bool, anew: bool = False
    ) -> tuple[list[ManifestEntry], str]:
        """Export what can be cut; with `final` also the hour that is not over. What was added, and
        the manifest's head. Raises ExportError, OSError, KernelError.
        """
        topic = self._topic
        async with self._exporting, _opened(Archive(self._directory)) as archive:
            await topic.open()
            if anew and archive.entries:
                message = f"{self._directory} holds an archive: move it away first"
                raise KernelError(Code.ALREADY_EXISTS, message)
            kept = None if anew else topic.kept_head()
            await trim_restored(archive, topic, QUEUE, kept)
            await check_lineage(archive, topic, QUEUE, kept)
            entries = await export_queue(archive, topic, QUEUE, now_us=self._now_us(), final=final)
            if archive.heads[-1] != kept:
                await topic.keep_head(archive.heads[-1])
            return entries, archive.heads[-1].sha256


@asynccontextmanager
async def _opened(archive: Archive) -> AsyncIterator[Archive]:
    """Hold an archive; reading its manifest takes a thread."""
    await asyncio.to_thread(archive.__enter__)
    try:
        yield archive
    finally:
        archive.__exit__(None, None, None)


def node_of(data: Path) -> str:
    """Who flushes from a data directory that a store has been opened on."""
    meta = read_meta(DirectoryDisk(data))
    assert meta is not None, "an opened store has its identity"
    return meta.node.hex()


def export_offline(data: Path, declared: Mapping[str, Declaration], *, anew: bool = False) -> None:
    """Flush and export everything that a data directory holds, while no server runs on it;
    `declared`: as of the server that ran; `anew`: into a new archive.

    Opens the store and ends it in order. Blocking. Raises DataDirectoryInUse, JournalError,
    KernelError, ExportError, OSError.
    """
    if not can_export():
        raise KernelError(Code.NOT_ALLOWED, NO_PYARROW)
    if read_meta(DirectoryDisk(data)) is None:
        raise KernelError(Code.NOT_FOUND, "no server has ever run on it")
    lock = lock_data_directory(data)
    try:
        asyncio.run(_export_offline(data, declared, anew=anew))
    finally:
        lock.release()


async def _export_offline(data: Path, declared: Mapping[str, Declaration], *, anew: bool) -> None:
    from gateway.process.running import fatal

    loop = asyncio.get_running_loop()
    clock = SystemClock()
    local = open_store(
        DirectoryDisk(data), clock, SystemRandom(), lambda name: Worker(loop, name), fatal
    )
    await local.start()
    try:
        settings = Metering(enabled=True, flush_interval_s=60, export_interval_s=0, price_book=None)
        metering = NodeMetering(
            local.client, local.store.replicas, node_of(data), data, clock, settings, declared
        )
        metering.check_declared()
        await metering.open()
        await metering.stop()
        await metering.export_log(final=True, anew=anew)
    finally:
        await local.stop()


def can_export() -> bool:
    """Whether this installation can write Parquet."""
    return find_spec("pyarrow") is not None
