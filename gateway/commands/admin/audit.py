"""`weir audit`: who has changed what by the admin API, as the audit topic has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import Format, Table, put
from gateway.commands.common.values import milliseconds
from kernel.store.drivers.system import SystemClock

if TYPE_CHECKING:
    from gateway.commands.common.api import Facts

PAGE = 1_000
SHOWN_DEFAULT = 10_000

COLUMNS = ("time_ms", "node", "by", "method", "path", "tenant", "status", "reason")


@with_groups
def audit(
    since: Annotated[
        str, typer.Option("--since", help="Only what was done within so long (10m, 2h, 30d).")
    ] = "7d",
    by: Annotated[str | None, typer.Option("--by", help="Only by this user.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="The most shown.", min=1)] = (
        SHOWN_DEFAULT
    ),
    *,
    server: ServerOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Say who has changed what by the admin API.

    Or tried to; the oldest first.
    """
    api = server.connect()
    since_ms, offset = SystemClock().wall_ms() - milliseconds(since), 0
    found: list[Facts] = []
    while len(found) < limit:
        page = api.get("/audit", offset=offset, since_ms=since_ms, limit=PAGE)
        found += [each for each in page["entries"] if by is None or each["by"] == by]
        offset = page["next"]
        if len(page["entries"]) < PAGE:
            break
    found = found[:limit]
    rows = [tuple(str(each[name]) for name in COLUMNS) for each in found]
    put({"entries": found}, Table(COLUMNS, rows), output)
