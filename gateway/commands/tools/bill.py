"""`weir bill`: a month's invoices from the metering archive, by Spark on this machine.

Of a data directory everything that was served is billed: first its server is asked to flush and
export, or, if none runs, that is done here (which opens the store as `weir serve` would, and ends
it in order). Of an archive named with --metering just what it holds.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.admin.address import read_address
from gateway.commands.common.api import DEFAULT_DATA, connect
from gateway.commands.common.options import DataOption, FormatOption, ServersFile, load_adapters
from gateway.commands.common.output import CommandError, ExitCode, Format, say
from gateway.commands.common.reaching import NoAnswer
from gateway.commands.common.values import put_one
from gateway.process.data_lock import DataDirectoryInUse
from kernel.common.errors import KernelError
from kernel.log.errors import JournalError
from metering.exporter import ExportError

if TYPE_CHECKING:
    from types import ModuleType

DEFAULT_OUT = Path("weir-bills")


def bill(
    period: Annotated[str, typer.Option("--period", metavar="YYYY-MM", help="The month.")],
    data: DataOption = None,
    metering: Annotated[
        Path | None,
        typer.Option("--metering", metavar="DIR", help="Archive to bill from, as it is."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs and invoices are kept.")
    ] = DEFAULT_OUT,
    new_archive: Annotated[
        bool,
        typer.Option(
            "--new-archive",
            help="Begin a new archive, after the old one was lost or moved away.",
        ),
    ] = False,
    price_book: Annotated[
        Path | None, typer.Option("--price-book", metavar="FILE", help="Else Weir's own.")
    ] = None,
    config: ServersFile = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Bill a month and show its invoices. The same records give the same run, not a second one.

    Exit code 1 if the invoices are there but records are known to be missing or to disagree.
    """
    engine = _engine()
    try:
        engine.Period.parse(period)
        if price_book is not None:
            engine.load_price_book(price_book)  # before anything is flushed or exported
    except engine.BILLING_ERRORS as error:
        raise CommandError(str(error), *_advice(error)) from error
    if metering is None:
        metering = refreshed_archive(data or Path(DEFAULT_DATA), config, anew=new_archive)
    elif new_archive:
        raise CommandError(
            "--new-archive begins the archive of a data directory",
            ExitCode.USAGE,
            "leave out --metering",
        )
    say(f"billing {period} from {metering}")
    try:
        summary = engine.run(period, metering, out, price_book)
    except engine.BILLING_ERRORS as error:
        raise CommandError(str(error), *_advice(error)) from error
    if output is Format.TABLE:
        typer.echo(engine.render_invoices(summary), nl=False)
    else:
        facts: dict[str, Any] = asdict(summary) | {"total": f"{summary.total:f}"}
        put_one(facts, summary.run_id, (), output)
    say(f"the run is in {summary.directory}")
    if summary.problems:
        raise typer.Exit(ExitCode.FAILED)


def refreshed_archive(data: Path, config: Path | None = None, *, anew: bool = False) -> Path:
    """The archive of a data directory, with everything that was counted; `config`: the file of its
    server; `anew`: a new archive. Raises CommandError.
    """
    from gateway.process.running import GATEWAY_FILE
    from gateway.reporting.node_metering import ARCHIVE_DIRECTORY, export_offline
    from kernel.cluster.roster import FILE as HOME_FILE

    if (data / HOME_FILE).exists():
        message = f"{data} is the data directory of a cluster's store, which keeps no archive"
        raise CommandError(message, ExitCode.FAILED, "name a gateway's directory with --data")
    address = read_address(data)
    if address is not None:
        try:
            answer = connect(address, data).post(
                "/metering/export" + ("?new_archive=true" if anew else ""), {}
            )
        except NoAnswer:
            pass
        else:
            if not answer["flushed"]:
                raise CommandError(
                    "the server could not flush its counts in time; see `weir health`",
                    ExitCode.FAILED,
                    f"bill what is there with --metering {data / ARCHIVE_DIRECTORY}",
                )
            return data / ARCHIVE_DIRECTORY
    elif not data.is_dir():
        raise CommandError(
            f"{data} is no data directory", ExitCode.FAILED, "name the server's one with --data"
        )
    if (data / GATEWAY_FILE).exists():
        message = f"{data} is the data directory of a gateway that does not run"
        raise CommandError(
            message,
            ExitCode.FAILED,
            f"start it, or bill what it has exported with --metering {data / ARCHIVE_DIRECTORY}",
        )
    say(f"no server runs on {data}: exporting what it has counted")
    adapters = load_adapters(config)
    try:
        export_offline(data, adapters, anew=anew)
    except (DataDirectoryInUse, KernelError, ExportError, JournalError, OSError) as error:
        raise CommandError(
            f"the counts in {data} cannot be exported: {error}",
            ExitCode.FAILED,
            f"bill what was exported with --metering {data / ARCHIVE_DIRECTORY}",
        ) from error
    return data / ARCHIVE_DIRECTORY


def _engine() -> ModuleType:
    """The billing entry. By name, since nothing of ours may depend on the billing jobs."""
    try:
        return importlib.import_module("spark.bill")
    except ImportError as error:
        message = f"the billing jobs are not installed ({error})"
        hint = "`make setup-spark`, or pip install 'weir-mq[spark]'"
        raise CommandError(message, ExitCode.FAILED, hint) from error


def _advice(error: Exception) -> tuple[ExitCode, str]:
    """Exit code and next step of an error that the caller can mend."""
    return {
        "PeriodError": (ExitCode.USAGE, "a period is a month, such as --period 2026-11"),
        "ArchiveError": (ExitCode.FAILED, "name the archive with --metering DIR"),
        "PriceBookError": (
            ExitCode.FAILED,
            "mend it, name another with --price-book, or leave that out",
        ),
    }.get(type(error).__name__, (ExitCode.FAILED, ""))
