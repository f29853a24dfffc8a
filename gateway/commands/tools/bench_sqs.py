"""`weir bench sqs`."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.load.errors import BenchError
from benchmarks.load.sqs_plan import BACKLOG_MAX, CONNECTIONS_MAX, MESSAGES_MAX, Mode, SqsOptions
from benchmarks.load.sqs_wire import SIZE_MAX, SIZE_MIN
from gateway.commands.common.options import FormatOption
from gateway.commands.common.output import CommandError, Format, Table, put, say

Url = Annotated[str, typer.Option(help="The endpoint; that of AWS works too.")]
ModeOption = Annotated[
    Mode,
    typer.Option(help="send; cycle: send, receive and delete; poll: long polls on an empty queue."),
]
Connections = Annotated[
    int, typer.Option("--connections", "-c", min=1, max=CONNECTIONS_MAX, help="Connections.")
]
Size = Annotated[int, typer.Option(min=SIZE_MIN, max=SIZE_MAX, help="Bytes of a message.")]
Messages = Annotated[
    int, typer.Option(min=1, max=MESSAGES_MAX, help="Messages of the measured part.")
]
Warmup = Annotated[int, typer.Option(min=0, max=MESSAGES_MAX, help="Messages before it.")]
Rate = Annotated[
    float, typer.Option(min=0, help="Messages/s on a fixed schedule; 0 = as fast as answered.")
]
Backlog = Annotated[
    int, typer.Option(min=0, max=BACKLOG_MAX, help="Messages waiting in the queue from the start.")
]
Duration = Annotated[float, typer.Option(min=0.1, help="Seconds of the measured part of poll.")]
AccessKey = Annotated[str, typer.Option(envvar="AWS_ACCESS_KEY_ID", help="Who signs.")]
Secret = Annotated[
    str, typer.Option(envvar="AWS_SECRET_ACCESS_KEY", help="The secret of that key.")
]
Region = Annotated[str, typer.Option(envvar="AWS_REGION", help="Signed for this region.")]
QueueName = Annotated[str, typer.Option(help="Prefix of the queue's name; the queue is new.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the queue; nothing is verified.")]
Pids = Annotated[
    list[int] | None,
    typer.Option(help="A process of the server, for its CPU a message (repeatable)."),
]


def sqs(
    url: Url = "http://127.0.0.1:9324",
    mode: ModeOption = Mode.SEND,
    connections: Connections = 16,
    size: Size = 1024,
    messages: Messages = 20_000,
    warmup: Warmup = 1_000,
    rate: Rate = 0.0,
    backlog: Backlog = 0,
    duration: Duration = 10.0,
    access_key: AccessKey = "weir",
    secret_key: Secret = "weir-secret",  # noqa: S107 - the development key of a laptop
    region: Region = "us-east-1",
    queue_name: QueueName = "weir-bench",
    keep: Keep = False,
    pid: Pids = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Load an SQS service with requests signed beforehand, and verify it.

    Exit code 1 when a message is lost, or when the service refuses.
    """
    import asyncio
    import gc

    from benchmarks.load.sqs_load import run_load
    from benchmarks.load.sqs_report import report_of, rows_of
    from benchmarks.load.worker import new_loop

    options = SqsOptions(
        url=url,
        mode=mode,
        connections=connections,
        size_bytes=size,
        messages=messages,
        warmup=warmup,
        rate=rate,
        backlog=backlog,
        duration_s=duration,
        key_id=access_key,
        secret=secret_key,
        region=region,
        queue_name=queue_name,
        keep=keep,
        pids=pid or [],
    )
    # A collection in the middle of a run is a false latency; this process ends after it.
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            report = report_of(runner.run(run_load(options)))
    except BenchError as error:
        raise CommandError(str(error)) from None
    put(report, Table(("figure", "value"), rows_of(report)), output)
    if report.generator_saturated and not rate:
        say(
            "weir: the generator used over 80 % of a core, so these figures describe it and not "
            "the service"
        )
    check = report.verification
    if check is not None and not check.ok:
        raise CommandError(f"not verified: {check.lost:,} lost of {check.sent:,}")
