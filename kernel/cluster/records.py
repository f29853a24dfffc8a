"""The register of a cluster's stores: metadata records of group 0, one for each store.

    cluster/node/NUMBER    MessagePack of a `NodeRecord`; the record's version is the kernel's

        admitted                 voter of every group           dismissed
    (none) ------> JOINING ----------------------> MEMBER ------------> LEAVING ------> (none)
                                                     |  another data directory          |
                                                     '------- of its number ------------'-> JOINING

A record says what is to become of a store; the leader of group 0 brings it about (`manager`) and
takes it up where another leader has left it. A number whose data directory is new is a new store:
it leaves with its old identity first, so that nobody counts what it may have forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ..common.errors import UNDECODABLE

PREFIX = "cluster/node/"

NODE_MAX = 65_535
LABEL_LENGTH_MAX = 253
"""A host's name at most (RFC 1035 2.3.4)."""

Number = Annotated[int, Meta(ge=1, le=NODE_MAX)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]


class NodeState(StrEnum):
    """What is to become of a store."""

    JOINING = "joining"
    """It becomes a voter of every group."""
    MEMBER = "member"
    LEAVING = "leaving"
    """It leaves every group; then its record goes, or begins anew with the data directory that
    waits in `then`."""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """What a store says of itself."""

    store: Annotated[str, Meta(min_length=1, max_length=64)]
    """Id of its data directory, new whenever the directory is."""
    host: Label
    port: Port
    """Where others reach it."""
    label: Label
    """What fails together with it."""
    zone: Annotated[str, Meta(max_length=LABEL_LENGTH_MAX)] = ""
    """A larger thing that fails at once; empty: none was named, or it is of an older build, which
    reads past it."""


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    """The record of one store in the register."""

    number: Number
    state: NodeState
    facts: Facts
    replaces: int = 0
    """Number of the store that leaves every group in the step by which this one joins it."""
    then: Facts | None = None


_decoder = msgspec.msgpack.Decoder(NodeRecord)


def key_of(number: int) -> str:
    """Key of a store's record; keys sort as numbers do."""
    return f"{PREFIX}{number:05d}"


def encode(record: NodeRecord) -> bytes:
    """The record's value."""
    return msgspec.msgpack.encode(record)


def decode(value: bytes) -> NodeRecord | None:
    """Inverse of `encode`; None if it is no such record (of a later version, perhaps)."""
    try:
        return _decoder.decode(value)
    except UNDECODABLE:
        return None


def read(records: Mapping[str, tuple[int, bytes]]) -> dict[int, tuple[int, NodeRecord]]:
    """(version, record) of every store, by number."""
    found: dict[int, tuple[int, NodeRecord]] = {}
    for key, (version, value) in sorted(records.items()):
        record = decode(value) if key.startswith(PREFIX) else None
        if record is not None:
            found[record.number] = version, record
    return found
