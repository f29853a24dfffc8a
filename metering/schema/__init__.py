"""What the meters write and the bill reads: the only part of metering that spark imports.

Three modules, all of them the standard library alone: `record` (one row and its columns), `codec`
(rows as the body of one `__metering` message) and `manifest` (which archive files count).
"""

from metering.schema.codec import SchemaError, decode, encode
from metering.schema.manifest import ManifestEntry, ManifestError, SourceRange, parse_manifest
from metering.schema.record import (
    CUMULATIVE_COLUMNS,
    HOUR_US,
    INTERNAL,
    NUMBER_COLUMNS,
    OTHER,
    SCHEMA_VERSION,
    TEXT_COLUMNS,
    Action,
    Batch,
    FlushId,
    Kind,
    Network,
    Outcome,
    QueueClass,
    Record,
)

__all__ = [
    "CUMULATIVE_COLUMNS",
    "HOUR_US",
    "INTERNAL",
    "NUMBER_COLUMNS",
    "OTHER",
    "SCHEMA_VERSION",
    "TEXT_COLUMNS",
    "Action",
    "Batch",
    "FlushId",
    "Kind",
    "ManifestEntry",
    "ManifestError",
    "Network",
    "Outcome",
    "QueueClass",
    "Record",
    "SchemaError",
    "SourceRange",
    "decode",
    "encode",
    "parse_manifest",
]
