"""`weir bench mqtt`: three loads on any MQTT broker, and what they cost it.

    pairs    producer i publishes to a topic that subscriber i alone reads
    fanout   one producer, one topic, many subscribers; the next message when all have the last
    idle     connections with one subscription each that do nothing: memory, and how fast they come

The clients live in this process; the broker's CPU and memory are read from /proc (`--pid`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec

from benchmarks.load import procfs
from benchmarks.load.errors import BenchError
from benchmarks.load.mqtt_client import Address, BenchClient, Login, parse_url
from benchmarks.load.mqtt_plan import Load, MqttOptions
from benchmarks.load.open_files import allow_connections
from benchmarks.load.stats import Histogram
from benchmarks.load.verify import Verdict, arrivals, judge

CONNECTING_AT_ONCE = 64  # a fleet comes at once, but no faster than backlogs hold
POLL_S = 0.005
DRAIN_S = 30.0


class MqttReport(msgspec.Struct, frozen=True):
    """The figures of a run. Rates are a second, times microseconds; -1: not measured."""

    load: str
    settings: dict[str, str | int | float | bool]
    published_per_s: float
    delivered_per_s: float
    latency_p50_us: float
    latency_p99_us: float
    server_cpu_us_per_message: float
    """Of pairs: in and out; of fanout: a delivery; of idle: a connection."""
    server_resident_mib: float
    connects_per_s: float
    resident_kib_per_connection: float
    generator_cpu_share: float
    expected: int
    received: int
    lost: int
    duplicated: int
    disordered: int
    refused: int
    ok: bool


class _Run:
    """The clients of one run."""

    def __init__(self, options: MqttOptions) -> None:
        self.options = options
        self.address: Address = parse_url(options.url)
        self.clients: list[BenchClient] = []
        self.failure: str | None = None

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason

    def check(self) -> None:
        if self.failure is not None:
            raise BenchError(self.failure)

    async def client(self, name: str, *, kept: bool) -> BenchClient:
        login = Login(f"{self.options.prefix}-{name}", self.options.version, kept)
        client = BenchClient(login, self.fail)
        self.clients.append(client)
        await client.open(self.address)
        return client

    async def subscriber(self, name: str, topic: str) -> BenchClient:
        client = await self.client(name, kept=self.options.kept)
        await client.subscribe(topic, self.options.qos)
        return client

    def cpu_s(self) -> float:
        return procfs.cpu_s(self.options.pids) if self.options.pids else 0.0

    async def until(self, done: object, what: str) -> None:
        """Until `done()` is true. Raises BenchError after DRAIN_S."""
        assert callable(done)
        ends = time.monotonic() + DRAIN_S
        while not done():
            self.check()
            if time.monotonic() > ends:
                raise BenchError(f"{what} did not come within {DRAIN_S:.0f} s")
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await asyncio.sleep(0.1)


async def run_load(options: MqttOptions) -> MqttReport:
    """Run one load. Raises BenchError when it cannot be carried through."""
    allow_connections(options.connections if options.load is Load.IDLE else options.subscribers)
    run = _Run(options)
    try:
        if options.load is Load.IDLE:
            return await _idle(run)
        return await _messages(run)
    finally:
        with contextlib.suppress(OSError):
            await run.close()


# --- Messages -------------------------------------------------------------------------------


async def _messages(run: _Run) -> MqttReport:
    options = run.options
    fan = options.load is Load.FANOUT
    pairs = 1 if fan else options.producers
    topics = [f"{options.prefix}/{number}" for number in range(pairs)]
    wanted = options.subscribers if fan else pairs
    receivers = [
        await run.subscriber(f"s{number}", topics[0 if fan else number]) for number in range(wanted)
    ]
    givers: list[BenchClient] = []
    for number, topic in enumerate(topics):
        giver = await run.client(f"p{number}", kept=options.kept)
        giver.publish_to(topic, number, options.size_bytes, options.qos, options.window)
        givers.append(giver)
        if not options.qos:
            receivers[number].source = giver
    window = _Window(run, givers, receivers)
    if fan:
        await _fan(run, givers[0], receivers, window)
    else:
        for giver in givers:
            giver.start()
        await asyncio.sleep(options.warmup_s)
        window.open()
        await asyncio.sleep(options.duration_s)
        window.close()
        for giver in givers:
            giver.stop()
    await run.until(lambda: all(giver.is_done for giver in givers), "the acknowledgements")
    copies = len(receivers) if fan else 1
    expected = sum(giver.sent - giver.refused for giver in givers) * copies
    with contextlib.suppress(BenchError):
        await run.until(
            lambda: sum(receiver.received for receiver in receivers) >= expected, "messages"
        )
    run.check()
    return window.report(_verdict(givers, receivers, fan=fan), expected)


async def _fan(
    run: _Run, giver: BenchClient, receivers: list[BenchClient], window: _Window
) -> None:
    """One message after the other, each to all, until the time is over."""
    warm = time.monotonic() + run.options.warmup_s
    ends = warm + run.options.duration_s
    is_open = False
    while time.monotonic() < ends:
        if not is_open and time.monotonic() >= warm:
            window.open()
            is_open = True
        giver.start(giver.sent + 1)
        wanted = giver.sent * len(receivers)
        await run.until(lambda: sum(t.received for t in receivers) >= wanted, "a message to all")  # noqa: B023
    window.close()


class _Window:
    """The measured part of a run."""

    def __init__(self, run: _Run, givers: list[BenchClient], receivers: list[BenchClient]) -> None:
        self._run = run
        self._givers = givers
        self._receivers = receivers
        self._from = (0.0, 0.0, 0.0, 0, 0)
        self._to = self._from

    def _sample(self) -> tuple[float, float, float, int, int]:
        return (
            time.monotonic(),
            self._run.cpu_s(),
            time.process_time(),
            sum(giver.answered for giver in self._givers),
            sum(receiver.received for receiver in self._receivers),
        )

    def open(self) -> None:
        for receiver in self._receivers:
            receiver.latency = Histogram()
        self._from = self._sample()

    def close(self) -> None:
        self._to = self._sample()

    def report(self, verdict: Verdict, expected: int) -> MqttReport:
        options = self._run.options
        elapsed, server, own, published, delivered = (
            after - before for before, after in zip(self._from, self._to, strict=True)
        )
        latency = Histogram()
        for receiver in self._receivers:
            latency.add_pairs(receiver.latency.to_pairs(), receiver.latency.max_ns)
        refused = sum(giver.refused for giver in self._givers)
        measured = bool(options.pids) and delivered > 0
        return MqttReport(
            load=options.load.value,
            settings=_settings(options),
            published_per_s=round(published / elapsed, 1),
            delivered_per_s=round(delivered / elapsed, 1),
            latency_p50_us=round(latency.percentile_ns(50) / 1e3, 1),
            latency_p99_us=round(latency.percentile_ns(99) / 1e3, 1),
            server_cpu_us_per_message=round(server * 1e6 / delivered, 2) if measured else -1.0,
            server_resident_mib=_resident_mib(options),
            connects_per_s=-1.0,
            resident_kib_per_connection=-1.0,
            generator_cpu_share=round(own / elapsed, 3),
            expected=expected,
            received=verdict.received,
            lost=verdict.lost,
            duplicated=verdict.duplicated,
            disordered=verdict.disordered,
            refused=refused,
            ok=not (verdict.lost or verdict.disordered or refused),
        )


def _verdict(givers: list[BenchClient], receivers: list[BenchClient], *, fan: bool) -> Verdict:
    verdict = Verdict()
    for number, receiver in enumerate(receivers):
        producer = 0 if fan else number
        runs = receiver.ledger.runs(receiver.expected).get(producer, [])
        giver = givers[producer]
        seen = arrivals(runs, 0, 1)
        verdict += judge([seen], giver.sent - giver.refused)
    return verdict


# --- Idle connections -----------------------------------------------------------------------


async def _idle(run: _Run) -> MqttReport:
    options = run.options
    # What the first connections make once for all is not theirs.
    for number in range(CONNECTING_AT_ONCE):
        await run.subscriber(f"warm{number}", f"{options.prefix}/warm/{number}")
    resident = procfs.resident_bytes(options.pids)
    cpu_s, own_s, began = run.cpu_s(), time.process_time(), time.monotonic()
    numbers = iter(range(options.connections))

    async def connect() -> None:
        for number in numbers:
            await run.subscriber(f"i{number}", f"{options.prefix}/idle/{number}")

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTING_AT_ONCE):
            group.create_task(connect())
    elapsed = time.monotonic() - began
    own_s = time.process_time() - own_s
    used_s = run.cpu_s() - cpu_s
    await asyncio.sleep(1)
    run.check()
    grown = procfs.resident_bytes(options.pids) - resident
    measured = bool(options.pids)
    each = options.connections
    return MqttReport(
        load=options.load.value,
        settings=_settings(options),
        published_per_s=0.0,
        delivered_per_s=0.0,
        latency_p50_us=0.0,
        latency_p99_us=0.0,
        server_cpu_us_per_message=round(used_s * 1e6 / each, 1) if measured else -1.0,
        server_resident_mib=_resident_mib(options),
        connects_per_s=round(each / elapsed, 1),
        resident_kib_per_connection=round(grown / 1024 / each, 2) if measured else -1.0,
        generator_cpu_share=round(own_s / elapsed, 3),
        expected=each,
        received=each,
        lost=0,
        duplicated=0,
        disordered=0,
        refused=0,
        ok=True,
    )


def _resident_mib(options: MqttOptions) -> float:
    return round(procfs.resident_bytes(options.pids) / (1 << 20), 1) if options.pids else -1.0


def _settings(options: MqttOptions) -> dict[str, str | int | float | bool]:
    """The options that shape the load; the URL and the processes are the caller's."""
    common: dict[str, str | int | float | bool] = {
        "version": options.version,
        "qos": options.qos,
        "kept": options.kept,
    }
    if options.load is Load.IDLE:
        return common | {"connections": options.connections}
    receivers = options.subscribers if options.load is Load.FANOUT else options.producers
    return common | {
        "size_bytes": options.size_bytes,
        "producers": 1 if options.load is Load.FANOUT else options.producers,
        "subscribers": receivers,
        "window": options.window,
        "duration_s": options.duration_s,
    }


def rows_of(report: MqttReport) -> list[tuple[str, str]]:
    """The report for people: (figure, value)."""
    rows = {"load": report.load}
    unit = {"pairs": "message", "fanout": "delivery", "idle": "connection"}[report.load]
    if report.load == Load.IDLE:
        rows["connections"] = f"{report.expected:,}, {report.connects_per_s:,.0f} a second"
        if report.resident_kib_per_connection >= 0:
            rows["memory"] = f"{report.resident_kib_per_connection:.2f} KiB a connection"
    else:
        rows["published and acknowledged"] = f"{report.published_per_s:,.0f} msg/s"
        rows["delivered"] = f"{report.delivered_per_s:,.0f} msg/s"
        rows["end-to-end latency"] = (
            f"p50 {report.latency_p50_us / 1e3:,.2f} ms, p99 {report.latency_p99_us / 1e3:,.2f} ms"
        )
        rows["verified"] = (
            f"{report.received:,} of {report.expected:,} received, {report.lost:,} lost, "
            f"{report.duplicated:,} duplicated, {report.disordered:,} out of order, "
            f"{report.refused:,} refused"
        )
    if report.server_cpu_us_per_message >= 0:
        rows["server"] = (
            f"{report.server_cpu_us_per_message:.2f} us of CPU a {unit}, "
            f"{report.server_resident_mib:,.0f} MiB resident"
        )
    rows["generator"] = f"{report.generator_cpu_share:.0%} of a core"
    return list(rows.items())
