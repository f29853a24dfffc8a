"""`weir bill`: a month's invoices from the metering archive, by Spark on this machine."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.output import CommandError, ExitCode, Format, FormatOption, say
from gateway.commands.values import put_one

if TYPE_CHECKING:
    from types import ModuleType

DEFAULT_METERING = Path("weir-data/metering")
DEFAULT_OUT = Path("weir-bills")


def bill(
    period: Annotated[str, typer.Option("--period", metavar="YYYY-MM", help="The month.")],
    metering: Annotated[
        Path, typer.Option("--metering", metavar="DIR", help="Archive of metering records.")
    ] = DEFAULT_METERING,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where runs and invoices are kept.")
    ] = DEFAULT_OUT,
    price_book: Annotated[
        Path | None, typer.Option("--price-book", metavar="FILE", help="Else Weir's own.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Bill a month and show its invoices. The same records give the same run, not a second one.

    Exit code 1 if the invoices are there but records are known to be missing or to disagree.
    """
    engine = _engine()
    say(f"billing {period} from {metering}")
    try:
        summary = engine.run(period, metering, out, price_book)
    except engine.BILLING_ERRORS as error:
        raise CommandError(str(error), *_advice(error)) from error
    if output is Format.TABLE:
        typer.echo(engine.render_invoices(summary), nl=False)
    else:
        data: dict[str, Any] = asdict(summary) | {"total": f"{summary.total:f}"}
        put_one(data, summary.run_id, (), output)
    say(f"the run is in {summary.directory}")
    if summary.problems:
        raise typer.Exit(ExitCode.FAILED)


def _engine() -> ModuleType:
    """The billing entry. By name, since nothing of ours may depend on the billing jobs."""
    try:
        return importlib.import_module("spark.bill")
    except ImportError as error:
        message = f"the billing jobs are not installed ({error})"
        hint = "pip install 'weir-mq[spark]'"
        raise CommandError(message, ExitCode.FAILED, hint) from error


def _advice(error: Exception) -> tuple[ExitCode, str]:
    """Exit code and next step of an error that the caller can mend."""
    return {
        "PeriodError": (ExitCode.USAGE, "a period is a month, such as --period 2026-11"),
        "ArchiveError": (ExitCode.FAILED, "name the archive with --metering DIR"),
        "PriceBookError": (ExitCode.FAILED, "mend the file named with --price-book"),
    }.get(type(error).__name__, (ExitCode.FAILED, ""))
