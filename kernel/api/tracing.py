"""Which messages of a topic are traced, and who had a part in it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TraceMode(StrEnum):
    """Which messages of a topic are traced."""

    OFF = "off"
    SAMPLE = "sample"
    """One in 100 (`broker.tracing`)."""
    ALL = "all"


class ConnectedUser(NamedTuple):
    """Who is connected, and by which connection: an adapter says so once for each connection (of
    users who share one, for each of them). Made of text alone: it is written down.
    """

    tenant: str
    user: str
    protocol: str
    address: str
    """Address and port; empty: not known."""
    connection: str
    """Its id in this process, as operators see it; empty: it has none."""
