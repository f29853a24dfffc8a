"""Connections, channels and consumers of all gateways over the management API: of the caller's own
user; of a whole tenant for who administers it. Those of AMQP.

They come from /api/v1, whose gateway asks all others. Who has not answered is named in a header of
the answer (`application.SILENT_HEADER`) and in the log; a connection that may be there is answered
503 instead of 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from adapters.amqp.management.administering import ask, part
from adapters.amqp.management.pages import ROWS_MAX, Page
from adapters.amqp.management.requests import Answer, Asked, Refused, bad_request, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

REASON: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection is closed here, unless X-Reason says another."""

PAGE: Final = 200
"""Connections asked for at a time: with their channels, some hundred KB."""

UNNAMED: Final = "(one of the cluster)"
"""What a gateway is called to those who administer nothing: addresses are the operator's."""

SILENT_MAX: Final = 8
"""Gateways that are named."""

_log = structlog.get_logger("weir.management")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Open:
    """What there is, as far as it was told."""

    rows: list[tuple[Row, str]]
    """Of /api/v1, each with its virtual host."""
    silent: str


async def _open(asked: Asked, host: str | None = None) -> _Open:
    """All that the caller may see, of one virtual host or of all. Raises Refused 400: too many."""
    rows: list[tuple[Row, str]] = []
    silent: dict[str, str] = {}
    for seen, at, is_all in _seen(asked):
        if host not in {None, at}:
            continue
        query = {**seen, "details": "true", "limit": str(PAGE)}
        after: str | None = ""
        while after is not None:
            query["after"] = after
            _, page = await ask(asked, "GET", "/connections", None, query, of_own=not is_all)
            rows += [(row, at) for row in page["connections"]]
            for each in page["silent"]:
                silent[each["gateway"] if is_all else UNNAMED] = each["reason"]
            if len(rows) > ROWS_MAX:
                raise bad_request(f"there are more than {ROWS_MAX} connections: `weir connection`")
            after = page["next"]
    for row, _ in rows:
        if row["opened"] is None:
            shown = row["node"] if asked.is_administrator else UNNAMED
            silent[shown] = "it is of an older version: its channels are missing"
    return _Open(rows, _told(silent))


def _told(silent: dict[str, str]) -> str:
    """Why gateways have not answered, in one line, which is in the log too."""
    if silent:
        _log.warning("gateways are missing in an answer", silent=silent)
    named = list(silent.items())[:SILENT_MAX]
    return ", ".join(f"{each} ({why})" for each, why in named)


async def totals(asked: Asked) -> tuple[dict[str, int], str]:
    """How many connections, channels and consumers the caller may see, of all gateways; who is
    silent.
    """
    sums = dict.fromkeys(("connections", "channels", "consumers"), 0)
    silent: dict[str, str] = {}
    for query, _, is_all in _seen(asked):
        _, found = await ask(asked, "GET", "/connections/totals", None, query, of_own=not is_all)
        for name in sums:
            sums[name] += found[name]
        for each in found["silent"]:
            silent[each["gateway"] if is_all else UNNAMED] = each["reason"]
    return sums, _told(silent)


def _seen(asked: Asked) -> Iterator[tuple[dict[str, str], str, bool]]:
    """What of each tenant's connections the caller may see, as /api/v1 is asked for it; its virtual
    host; whether these are all of them, and not the caller's own alone.
    """
    own = asked.own.principal
    for tenant, host in asked.tenants():
        query = {"tenant": tenant, "protocol": "amqp"}
        if asked.administers(tenant):
            yield query, host, True
        elif tenant == own.tenant:
            yield {**query, "user": own.name}, host, False


async def list_connections(asked: Asked) -> Answer:
    """All of them."""
    found = await _open(asked, asked.names.get("vhost"))
    return _listed(asked, [_row(row, at) for row, at in found.rows], found.silent)


async def show_connection(asked: Asked) -> Answer:
    """One, by its name."""
    row, host, silent = await _named(asked)
    return Answer(200, _row(row, host), silent=silent)


async def close_connection(asked: Asked) -> Answer:
    """Say goodbye to one, at whichever gateway it is."""
    row, _, _ = await _named(asked)
    of_own = not asked.administers(row["tenant"])
    query = {"tenant": row["tenant"], "reason": asked.reason or REASON}
    await ask(asked, "DELETE", f"/connections/{part(row['id'])}", None, query, of_own=of_own)
    return Answer(204)


async def _named(asked: Asked) -> tuple[Row, str, str]:
    """The connection that the path names, its virtual host, who is silent. Raises Refused 404, 503:
    a gateway that may have it has not answered.
    """
    found = await _open(asked)
    for row, host in found.rows:
        if row["peer"] == asked.names["name"]:
            return row, host, found.silent
    raise _missing(found.silent)


def _missing(silent: str) -> Refused:
    """What is said of something that nobody has."""
    if not silent:
        return not_found()
    return Refused(503, "unavailable", f"it may be at a gateway that has not answered: {silent}")


async def list_channels(asked: Asked) -> Answer:
    """Channels of all connections, of a virtual host, or of the one that the path names."""
    if "name" in asked.names:
        row, host, silent = await _named(asked)
        return _listed(asked, list(_channels([(row, host)])), silent)
    found = await _open(asked, asked.names.get("vhost"))
    return _listed(asked, list(_channels(found.rows)), found.silent)


async def show_channel(asked: Asked) -> Answer:
    """One, by its name."""
    found = await _open(asked)
    for channel in _channels(found.rows):
        if channel["name"] == asked.names["channel"]:
            return Answer(200, {**channel, "consumer_details": []}, silent=found.silent)
    raise _missing(found.silent)


def _channels(rows: list[tuple[Row, str]]) -> Iterator[Row]:
    for row, host in rows:
        for channel in row["opened"] or ():
            yield _channel(channel, row, host)


async def list_consumers(asked: Asked) -> Answer:
    """Consumers of all channels."""
    found = await _open(asked, asked.names.get("vhost"))
    rows = [
        {
            "consumer_tag": consumer["consumer_tag"],
            "queue": {"name": consumer["queue"], "vhost": host},
            "ack_required": consumer["ack_required"],
            "prefetch_count": consumer["prefetch_count"],
            "exclusive": False,
            "active": True,
            "arguments": {},
            "channel_details": _details(channel, row),
        }
        for row, host in found.rows
        for channel in row["opened"] or ()
        for consumer in channel["consumers"]
    ]
    return _listed(asked, rows, found.silent)


def _listed(asked: Asked, rows: list[Row], silent: str) -> Answer:
    page = Page(asked.query)
    wanted = [each for each in rows if page.wanted(str(each.get("name", "")))]
    some, made = page.cut(page.sorted_by(wanted), len(rows))
    return Answer(200, made(some), silent=silent)


def _row(shown: Row, host: str) -> Row:
    address, _, port = shown["peer"].rpartition(":")
    return {
        "name": shown["peer"],
        "vhost": host,
        "user": shown["user"],
        "protocol": "AMQP 0-9-1",
        "state": shown["state"],
        "ssl": shown["ssl"],
        "peer_host": address.strip("[]"),
        "peer_port": int(port) if port.isdigit() else 0,
        "channels": shown["channels"],
        "recv_oct": shown["recv_oct"],
        "send_oct": shown["send_oct"],
        "client_properties": {
            "product": shown["client"],
            "connection_name": shown["client_id"],
        },
        "user_provided_name": shown["client_id"],
        "node": shown["node"],
        "type": "network",
    }


def _channel(channel: Row, shown: Row, host: str) -> Row:
    return {
        "name": f"{shown['peer']} ({channel['number']})",
        "number": channel["number"],
        "vhost": host,
        "user": shown["user"],
        "state": channel["state"],
        "confirm": channel["confirm"],
        "transactional": channel["transactional"],
        "prefetch_count": channel["prefetch_count"],
        "consumer_count": len(channel["consumers"]),
        "messages_unacknowledged": channel["messages_unacknowledged"],
        "connection_details": {"name": shown["peer"]},
    }


def _details(channel: Row, shown: Row) -> Row:
    return {
        "name": f"{shown['peer']} ({channel['number']})",
        "number": channel["number"],
        "connection_name": shown["peer"],
        "user": shown["user"],
    }
