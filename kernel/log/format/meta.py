"""`store.meta`: who this store is, and how its last run ended.

    8 bytes magic | u32 version | 16 bytes node id | 16 bytes store id
    u8 clean | u64 segment | u64 offset | u64 sequence      (zeros if not clean)
    u32 crc32c of all before it

The clean mark names the end of a journal that was closed in order. It is removed, durably, before
the first write of the next run: a run that finds none copies what it cannot prove to be on disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from crc32c import crc32c

from ...common.ports import Disk, Random
from ..errors import FormatError, JournalError
from .files import JOURNAL_DIRECTORY, read_all, replace_file

META_NAME = "store.meta"
FORMAT_VERSION = 1
MAGIC = b"WEIRMETA"
_META = struct.Struct("<8sI16s16sBQQQ")
_SUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class CleanEnd:
    """End of a journal that was closed in order."""

    segment: int
    offset: int
    sequence: int
    """Sequence of the last record."""


@dataclass(frozen=True, slots=True)
class StoreMeta:
    """Identity of a store. A store id is new whenever a data directory is: a wiped disk is not the
    store it was, and must not vote as if it were.
    """

    node: bytes
    store: bytes
    clean: CleanEnd | None


def read_meta(disk: Disk) -> StoreMeta | None:
    """The store's identity, None in an empty data directory. FormatError if it is not ours."""
    content = read_all(disk, META_NAME)
    if content is None:
        return None
    if len(content) < _META.size + _SUM.size or not content.startswith(MAGIC):
        raise FormatError(f"{META_NAME} is not the identity of a Weir store")
    if _SUM.unpack_from(content, _META.size)[0] != crc32c(content[: _META.size]):
        raise FormatError(f"{META_NAME} is damaged: its checksum does not match")
    _magic, version, node, store, clean, segment, offset, sequence = _META.unpack_from(content)
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{META_NAME} has format version {version}, this Weir knows {FORMAT_VERSION}"
        )
    return StoreMeta(node, store, CleanEnd(segment, offset, sequence) if clean else None)


def write_meta(disk: Disk, meta: StoreMeta) -> None:
    """Durably replace the file. Blocking; OSError."""
    clean = meta.clean
    end = (1, clean.segment, clean.offset, clean.sequence) if clean else (0, 0, 0, 0)
    content = _META.pack(MAGIC, FORMAT_VERSION, meta.node, meta.store, *end)
    replace_file(disk, META_NAME, content + _SUM.pack(crc32c(content)))


def ensure_meta(disk: Disk, random: Random) -> StoreMeta:
    """The store's identity; a new one in an empty data directory. JournalError if there is a
    journal without an identity: it belongs to nobody that this node could speak for.
    """
    meta = read_meta(disk)
    if meta is not None:
        return meta
    if disk.names(JOURNAL_DIRECTORY):
        raise JournalError(f"{META_NAME} is missing beside a journal: restore it or start empty")
    meta = StoreMeta(random.bits(128).to_bytes(16), random.bits(128).to_bytes(16), None)
    write_meta(disk, meta)
    return meta


def set_clean(disk: Disk, clean: CleanEnd | None) -> None:
    """Durably set or remove the clean mark. Blocking; OSError."""
    meta = read_meta(disk)
    if meta is None:
        raise JournalError(f"{META_NAME} is missing")
    if meta.clean != clean:
        write_meta(disk, replace(meta, clean=clean))
