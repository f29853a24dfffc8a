"""Metering records as a Parquet file: the one place of this package that needs pyarrow.

One row of the file is one record, with the queue and offset of the log message it came in. Rows
are sorted by (node, epoch, seq, offset), so that repeats lie together and identities compress to
nothing. Options are fixed and nothing of the clock or the machine goes in: equal messages give
equal bytes, as long as pyarrow itself stays the same; its version is in the manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metering.schema.record import NUMBER_COLUMNS, TEXT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from metering.schema import Batch

WRITER = f"pyarrow {pa.__version__}"

# Key of the file's own metadata that says from which log messages it was made.
SOURCE_KEY = b"weir.source_sha256"

# Rows of one row group: about 1 MB packed, so that a reader can leave some out.
ROW_GROUP_ROWS = 131_072

_TIME = pa.timestamp("us", tz="UTC")
_TIMES = ("emitted_at_us", "window_start_us", "window_end_us")
_SORTING = [(name, "ascending") for name in ("node", "epoch", "seq", "log_offset")]


def column_name(record_column: str) -> str:
    """A time is a timestamp in the archive, so its name loses the unit."""
    return record_column.removesuffix("_us") if record_column in _TIMES else record_column


INCARNATION = pa.field("incarnation", pa.int64())
"""Only in files that have one: what older builds counted gives the bytes that they have written."""

ARCHIVE_SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("log_queue", pa.int32()),
        ("log_offset", pa.int64()),
        ("node", pa.string()),
        ("epoch", pa.int64()),
        ("seq", pa.int64()),
        ("emitted_at", _TIME),
        *((name, pa.string()) for name in TEXT_COLUMNS),
        *((column_name(name), _TIME if name in _TIMES else pa.int64()) for name in NUMBER_COLUMNS),
    ]
)


def table_of(queue: int, batches: Iterable[tuple[int, Batch]], version: int) -> pa.Table:
    """The sorted table of the batches of one queue, each with the offset of its message."""
    kept = list(batches)
    schema = ARCHIVE_SCHEMA
    if any(batch.incarnation for _, batch in kept):
        schema = schema.append(INCARNATION)
    parts = [_part(queue, offset, batch, version, schema) for offset, batch in kept]
    table = pa.concat_tables(parts)
    return table.take(pc.sort_indices(table, sort_keys=_SORTING)).combine_chunks()


def write(table: pa.Table, path: Path, source_sha256: str) -> None:
    """Write the table; the caller syncs and renames the file."""
    stamped = table.replace_schema_metadata({SOURCE_KEY: source_sha256})
    pq.write_table(
        stamped,
        path,
        version="2.6",
        compression="zstd",
        use_dictionary=True,
        write_statistics=True,
        row_group_size=ROW_GROUP_ROWS,
    )


def window_bounds_us(table: pa.Table) -> tuple[int, int]:
    """The earliest window start and the latest window end, microseconds since 1970 UTC."""
    start = pc.min(table["window_start"]).cast(pa.int64())
    end = pc.max(table["window_end"]).cast(pa.int64())
    return start.as_py(), end.as_py()


def rows_of_kinds(table: pa.Table) -> dict[str, int]:
    """The number of rows of each kind."""
    counts = pc.value_counts(table["kind"]).to_pylist()
    return dict(sorted((item["values"], item["counts"]) for item in counts))


def source_of(path: Path) -> str:
    """The source_sha256 in a file's metadata, empty if it has none.

    Raises OSError or pyarrow's own errors for what is no Parquet file.
    """
    metadata = pq.read_metadata(path).metadata or {}
    value: bytes = metadata.get(SOURCE_KEY, b"")
    return value.decode()


def _part(queue: int, offset: int, batch: Batch, version: int, schema: pa.Schema) -> pa.Table:
    rows = batch.rows
    columns = {
        "schema_version": pa.repeat(pa.scalar(version, pa.int32()), rows),
        "log_queue": pa.repeat(pa.scalar(queue, pa.int32()), rows),
        "log_offset": pa.repeat(pa.scalar(offset, pa.int64()), rows),
        "node": pa.repeat(pa.scalar(batch.node, pa.string()), rows),
        "epoch": pa.repeat(pa.scalar(batch.epoch, pa.int64()), rows),
        "seq": pa.array(range(batch.first_seq, batch.first_seq + rows), pa.int64()),
        "emitted_at": pa.repeat(pa.scalar(batch.emitted_at_us, _TIME), rows),
    }
    for name in TEXT_COLUMNS:
        columns[name] = pa.array(batch.text[name], pa.string())
    for name in NUMBER_COLUMNS:
        kind = _TIME if name in _TIMES else pa.int64()
        columns[column_name(name)] = pa.array(batch.numbers[name], kind)
    if INCARNATION.name in schema.names:
        columns[INCARNATION.name] = pa.repeat(pa.scalar(batch.incarnation, pa.int64()), rows)
    return pa.table(columns, schema=schema)
