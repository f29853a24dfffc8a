"""`weir bench`: load testers that run against any broker of a protocol."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.load import rocketmq_spec
from benchmarks.load.amqp_deliveries import AckMode
from benchmarks.load.amqp_plan import QUEUES_MAX, LoadOptions, Mode
from benchmarks.load.amqp_wire import SIZE_MAX, SIZE_MIN
from benchmarks.load.errors import BenchError
from benchmarks.load.mqtt_plan import SIZE_MIN as MQTT_SIZE_MIN
from benchmarks.load.mqtt_plan import Load, MqttOptions
from benchmarks.load.verify import PRODUCERS_MAX
from gateway.commands.common.options import FormatOption
from gateway.commands.common.output import CommandError, Format, Table, put, say
from gateway.commands.tools import bench_sqs

if TYPE_CHECKING:
    from benchmarks.load.report import LoadReport
    from benchmarks.load.rocketmq_load import LoadOptions as RocketmqOptions

app = typer.Typer(
    no_args_is_help=True,
    help="Load testers for Weir or any other broker; they verify loss, duplicates and order.",
)

PROCESSES_MAX = 64  # generators of one kind; more than that many cores are no test machine
WINDOW_MAX = 100_000  # open publishes of a producer: 100 MB in sockets at 1 KB
CONNECTIONS_MAX = 60_000  # from one address to one port
PREFETCH_MAX = 65_535  # AMQP 0-9-1 1.8.3.1: a short


_SATURATED = (
    "weir: a generator process used over 80 % of a core, so these figures describe it "
    "and not the broker; use more --producer-processes or --consumer-processes"
)


class Pattern(StrEnum):
    """The shape of the load."""

    QUEUE = "queue"
    FANOUT = "fanout"
    LONE = "lone"


Url = Annotated[str, typer.Option(help="The broker.")]
PatternOption = Annotated[
    Pattern,
    typer.Option(
        help="queue: producers take --queues in turn; fanout: one exchange, --fanout queues; "
        "lone: one producer, one message at a time."
    ),
]
ModeOption = Annotated[
    Mode,
    typer.Option(help="produce alone, consume an existing backlog until it is empty, or both."),
]
Size = Annotated[int, typer.Option(min=SIZE_MIN, max=SIZE_MAX, help="Bytes of a body.")]
RocketmqSize = Annotated[
    int,
    typer.Option(
        "--size", min=rocketmq_spec.SIZE_MIN, max=rocketmq_spec.SIZE_MAX, help="Bytes of a body."
    ),
]
Producers = Annotated[
    int, typer.Option("--producers", "-P", min=1, max=PRODUCERS_MAX, help="Connections.")
]
Consumers = Annotated[
    int, typer.Option("--consumers", "-C", min=0, max=PRODUCERS_MAX, help="Connections.")
]
Processes = Annotated[
    int, typer.Option(min=1, max=PROCESSES_MAX, help="Generator processes that share them.")
]
Window = Annotated[
    int, typer.Option(min=1, max=WINDOW_MAX, help="Unconfirmed messages of a producer at most.")
]
Prefetch = Annotated[
    int, typer.Option(min=0, max=PREFETCH_MAX, help="Unacknowledged of a consumer; 0 = no limit.")
]
Ack = Annotated[
    AckMode, typer.Option(help="each: a frame a message; multiple: one a read; none: no-ack.")
]
Rate = Annotated[
    float,
    typer.Option(
        min=0, help="Messages/s of all producers on a fixed schedule; 0 = as fast as confirmed."
    ),
]
Duration = Annotated[float, typer.Option(min=0.1, help="Seconds of the measured part.")]
Messages = Annotated[
    int,
    typer.Option(
        min=0, help="Messages of the run instead of --duration; consuming: how many to expect."
    ),
]
Warmup = Annotated[
    float, typer.Option(min=0, help="Seconds before the measured part (not with --messages).")
]
Queues = Annotated[
    int, typer.Option(min=1, max=QUEUES_MAX, help="Queues that the load is spread over.")
]
Fanout = Annotated[int, typer.Option(min=1, max=QUEUES_MAX, help="Queues of the fanout pattern.")]
QueueType = Annotated[str, typer.Option(help="classic, quorum, ... (x-queue-type).")]
Durable = Annotated[
    bool, typer.Option("--durable/--transient", help="Queues and messages survive a restart.")
]
QueueName = Annotated[
    str, typer.Option(help="Prefix; PREFIX-0000 ... are deleted before and after a run.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the queues and what is in them.")]
Pids = Annotated[
    list[int] | None,
    typer.Option(help="A process of the server, for its CPU a message (repeatable)."),
]
MetricsUrl = Annotated[
    str, typer.Option(help="Weir's /metrics, for its fdatasyncs per 1,000 messages.")
]
DrainTimeout = Annotated[
    float, typer.Option(min=1, help="Seconds without any progress after which a run ends.")
]


app.command()(bench_sqs.sqs)


@app.command()
def amqp(
    url: Url = "amqp://guest:guest@127.0.0.1:5672/%2f",
    pattern: PatternOption = Pattern.QUEUE,
    mode: ModeOption = Mode.BOTH,
    size: Size = 1024,
    producers: Producers = 1,
    consumers: Consumers = 1,
    producer_processes: Processes = 1,
    consumer_processes: Processes = 1,
    window: Window = 200,
    prefetch: Prefetch = 200,
    ack: Ack = AckMode.EACH,
    rate: Rate = 0.0,
    duration: Duration = 10.0,
    messages: Messages = 0,
    warmup: Warmup = 2.0,
    queues: Queues = 1,
    fanout: Fanout = 100,
    queue_type: QueueType = "classic",
    durable: Durable = True,
    queue_name: QueueName = "weir-bench",
    keep: Keep = False,
    pid: Pids = None,
    metrics_url: MetricsUrl = "",
    drain_timeout: DrainTimeout = 30.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Load an AMQP 0-9-1 broker and verify it.

    Exit code 1 when a message is lost or out of order, or when the broker refuses.
    """
    from benchmarks.load.amqp_load import run_load
    from benchmarks.load.report import report_of

    lone = pattern is Pattern.LONE
    fan = pattern is Pattern.FANOUT
    if fan and queues != 1:
        raise typer.BadParameter("the fanout pattern has --fanout queues", param_hint="--queues")
    options = LoadOptions(
        url=url,
        mode=mode,
        size_bytes=size,
        producers=1 if lone else producers,
        consumers=consumers,
        producer_processes=producer_processes,
        consumer_processes=consumer_processes,
        window=1 if lone else window,
        prefetch=prefetch,
        acks=ack,
        rate=rate,
        duration_s=duration,
        messages=messages,
        warmup_s=warmup,
        queues=fanout if fan else queues,
        fanout=fan,
        queue_name=queue_name,
        queue_type=queue_type,
        durable=durable,
        pids=pid or [],
        metrics_url=metrics_url,
        drain_timeout_s=drain_timeout,
        keep=keep,
    )
    try:
        report = report_of(asyncio.run(run_load(options)))
    except BenchError as error:
        raise CommandError(str(error)) from None
    _put(report, output)


MqttUrl = Annotated[str, typer.Option(help="The broker, as mqtt://user:password@host:port.")]
LoadOption = Annotated[
    Load,
    typer.Option(
        help="pairs: producer i to subscriber i; fanout: one producer to all --subscribers; "
        "idle: --connections that do nothing."
    ),
]
Version = Annotated[int, typer.Option(min=4, max=5, help="4 for MQTT 3.1.1, 5 for MQTT 5.")]
Qos = Annotated[int, typer.Option(min=0, max=2, help="Of messages and subscriptions.")]
Kept = Annotated[
    bool, typer.Option("--kept/--clean", help="Sessions outlive their connections, or do not.")
]
MqttSize = Annotated[int, typer.Option(min=MQTT_SIZE_MIN, max=SIZE_MAX, help="Bytes of a payload.")]
Pairs = Annotated[int, typer.Option(min=1, max=PRODUCERS_MAX, help="Pairs of clients.")]
Subscribers = Annotated[int, typer.Option(min=1, max=CONNECTIONS_MAX, help="Of fanout.")]
Connections = Annotated[int, typer.Option(min=1, max=CONNECTIONS_MAX, help="Of idle.")]
OpenWindow = Annotated[
    int, typer.Option(min=1, max=WINDOW_MAX, help="Unacknowledged messages of a producer at most.")
]


@app.command()
def mqtt(
    url: MqttUrl = "mqtt://guest:guest@127.0.0.1:1883",
    load: LoadOption = Load.PAIRS,
    protocol_version: Version = 5,
    qos: Qos = 1,
    kept: Kept = False,
    size: MqttSize = 256,
    pairs: Pairs = 4,
    subscribers: Subscribers = 1_000,
    connections: Connections = 10_000,
    window: OpenWindow = 100,
    duration: Duration = 10.0,
    warmup: Warmup = 2.0,
    pid: Pids = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Load an MQTT 3.1.1 or 5 broker and verify it.

    Exit code 1 when a message is lost or out of order, or when the broker refuses.
    """
    from benchmarks.load.mqtt_load import rows_of, run_load
    from benchmarks.load.worker import new_loop

    options = MqttOptions(
        url=url,
        load=load,
        version=protocol_version,
        qos=qos,
        kept=kept,
        size_bytes=size,
        producers=pairs,
        subscribers=subscribers,
        connections=connections,
        window=window,
        duration_s=duration,
        warmup_s=warmup,
        pids=pid or [],
    )
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            report = runner.run(run_load(options))
    except BenchError as error:
        raise CommandError(str(error)) from None
    put(report, Table(("figure", "value"), rows_of(report)), output)
    if not report.ok:
        raise CommandError(
            f"not verified: {report.lost:,} lost, {report.disordered:,} out of order, "
            f"{report.refused:,} refused"
        )


@app.command()
def rocketmq(
    url: Url = "rocketmq://weir:weir-secret@127.0.0.1:8081",
    topic: Annotated[str, typer.Option(help="A topic that is there and takes NORMAL.")] = (
        "weir-bench"
    ),
    group: Annotated[str, typer.Option(help="Consumer group.")] = "weir-bench",
    size: RocketmqSize = 1024,
    batch: Annotated[
        int, typer.Option(min=1, max=rocketmq_spec.BATCH_MAX, help="Messages of one SendMessage.")
    ] = 1,
    producers: Producers = 1,
    consumers: Consumers = 1,
    producer_processes: Processes = 1,
    consumer_processes: Processes = 1,
    window: Annotated[
        int, typer.Option(min=1, max=WINDOW_MAX, help="Requests of a producer under way at most.")
    ] = 32,
    receive_batch: Annotated[
        int,
        typer.Option(
            min=1, max=rocketmq_spec.BATCH_MAX, help="Messages of one ReceiveMessage at most."
        ),
    ] = 32,
    ack_batch: Annotated[
        int,
        typer.Option(
            min=1, max=rocketmq_spec.BATCH_MAX, help="Acks of one AckMessage; clients send 1."
        ),
    ] = 32,
    duration: Duration = 10.0,
    messages: Annotated[
        int, typer.Option(min=0, help="Messages of the run instead of --duration.")
    ] = 0,
    warmup: Warmup = 2.0,
    pid: Pids = None,
    metrics_url: MetricsUrl = "",
    drain_timeout: DrainTimeout = 30.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Load a RocketMQ 5 endpoint (a closed loop of --window requests a producer) and verify it.

    The topic must exist: `weir topic create weir-bench`. Exit code 1 when a message is lost, or
    when the server refuses.
    """
    from benchmarks.load.rocketmq_load import LoadOptions as RocketmqOptions

    options = RocketmqOptions(
        url=url,
        topic=topic,
        group=group,
        size_bytes=size,
        batch=batch,
        producers=producers,
        consumers=consumers,
        producer_processes=producer_processes,
        consumer_processes=consumer_processes,
        window=window,
        receive_batch=receive_batch,
        ack_batch=ack_batch,
        duration_s=duration,
        messages=messages,
        warmup_s=warmup,
        pids=pid or [],
        metrics_url=metrics_url,
        drain_timeout_s=drain_timeout,
    )
    _load_rocketmq(options, output)


def _load_rocketmq(options: RocketmqOptions, output: Format) -> None:
    """Run it, print the report, and fail when messages were lost."""
    import asyncio

    from benchmarks.load.rocketmq_load import run_load
    from benchmarks.load.rocketmq_report import report_of, rows_of

    try:
        report = report_of(asyncio.run(run_load(options)))
    except BenchError as error:
        raise CommandError(str(error)) from None
    put(report, Table(("figure", "value"), rows_of(report)), output)
    if report.generator_saturated:
        say(_SATURATED)
    check = report.verification
    if not check.ok:
        raise CommandError(
            f"not verified: {check.lost:,} lost, {check.unanswered:,} unanswered "
            f"of {check.published:,}"
        )


def _put(report: LoadReport, output: Format) -> None:
    """Print the report; say what spoils it, and fail when messages were lost or out of order."""
    from benchmarks.load.report import rows_of

    put(report, Table(("figure", "value"), rows_of(report)), output)
    if report.generator_saturated and not report.settings["rate"]:
        say(_SATURATED)
    check = report.verification
    if not check.ok:
        raise CommandError(
            f"not verified: {check.lost:,} lost, {check.disordered:,} out of order, "
            f"{check.misrouted:,} misrouted, {check.unconfirmed:,} unanswered"
        )
