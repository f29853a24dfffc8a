"""`weir events`: what happens at a process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import Format, Table, put, put_line, say

if TYPE_CHECKING:
    from gateway.commands.common.api import Facts

WAIT_S = 15
"""For one answer while it follows."""

PAGE = 1_000


@with_groups
def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")
    ] = False,
    *,
    server: ServerOptions,
    output: FormatOption = Format.JSON,
) -> None:
    """Say what has happened, a line of JSON each: who came and went, who changed what, alarms."""
    api, after = server.connect(), 0
    while True:
        page = api.get("/events", after=after, limit=PAGE, wait=WAIT_S if follow else 0)
        if page["lost"]:
            say(f"{page['lost']} events before these are kept no more")
        _put(page["events"], output)
        after = page["next"]
        if not follow and len(page["events"]) < PAGE:
            return


def _put(found: list[Facts], output: Format) -> None:
    if output is Format.JSON:
        for each in found:
            put_line(json.dumps({**each.pop("facts"), **each}, ensure_ascii=False))
    elif found:
        rows = [
            (str(each["number"]), each["time"], each["level"], each["event"], str(each["facts"]))
            for each in found
        ]
        put({"events": found}, Table(("number", "time", "level", "event", "facts"), rows), output)
