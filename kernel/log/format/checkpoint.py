"""`ckpt`: from where recovery reads, and what it need not read any more.

    8 bytes magic | u32 version | u32 length of what follows the sum | u32 crc32c of that
    16 bytes store id | u64 segment | u64 offset | u64 synced sequence
    u32 groups | u32 cuts | u32 closed | u32 damaged
    group     u64 group | u64 index | u64 term | u64 hard term | u64 vote | u64 commit
              | u16 length | snapshot name
    cut       u64 segment | u64 offset | u64 next segment
    closed    u64 source | u64 first | u64 last | u64 first segment | u64 last segment
    damaged   u64 group
    level     u32, in version 2 only: features that are on (`kernel.common.feature_levels`)
    left      u64 group, from level 3 on: to the end

Every entry that some group's snapshot has not applied stands at or behind (segment, offset).
A cut says that a segment ends at an offset and another continues it: recovery after an unclean end
makes one, and writing it here is what makes the copied tail valid. `closed` names the rewrites
whose closing records may stand in segments that are gone. Version 2 is written from the first
checkpoint on that has a group with a feature on: no build that does not understand it gets further.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from crc32c import crc32c

from ...common.feature_levels import LATEST, REPLICAS, newer
from ...common.ports import Disk
from ..errors import FormatError, JournalError
from .files import read_all, replace_file
from .record import Close

CHECKPOINT_NAME = "ckpt"
MAGIC = b"WEIRCKPT"
VERSION = 1
VERSION_WITH_LEVEL = 2
_HEAD = struct.Struct("<8sIII")
_BODY = struct.Struct("<16sQQQIIII")
_GROUP = struct.Struct("<QQQQQQH")
_CUT = struct.Struct("<QQQ")
_CLOSED = struct.Struct("<QQQQQ")
_DAMAGED = struct.Struct("<Q")
_LEVEL = struct.Struct("<I")


class Position(NamedTuple):
    """A place in the journal."""

    segment: int
    offset: int


class HardState(NamedTuple):
    """What a Raft group must never forget (term and vote), and its commit index."""

    term: int = 0
    vote: int = 0
    """Node voted for in `term`; 0 nobody."""
    commit: int = 0


class Cut(NamedTuple):
    """A segment ends at `offset`; segment `next` continues it."""

    offset: int
    next: int


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """One group: its snapshot, and what the journal knew of it."""

    index: int
    """Applied by the snapshot."""
    term: int
    """Term of entry `index`."""
    snapshot: str
    """Name of the snapshot; empty if `index` is 0."""
    hard_state: HardState


_NO_SNAPSHOT = GroupCheckpoint(0, 0, "", HardState())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Content of `ckpt`."""

    store: bytes
    position: Position
    synced_sequence: int
    groups: Mapping[int, GroupCheckpoint] = field(default_factory=dict)
    cuts: Mapping[int, Cut] = field(default_factory=dict)
    closed: tuple[Close, ...] = ()
    damaged: frozenset[int] = frozenset()
    """Groups of which nothing here counts but the term: they lost synced data and have not been
    healed, or were left."""
    level: int = 0
    """The highest level that is on in a group (`feature_levels`)."""
    left: frozenset[int] = frozenset()
    """Those of them that this store has left: others have all of it."""

    @staticmethod
    def read(disk: Disk, understands: int = LATEST) -> Checkpoint | None:
        """The last durable checkpoint, None if there was none. FormatError if it is damaged, or if
        more is on than this build understands.
        """
        content = read_all(disk, CHECKPOINT_NAME)
        if content is None:
            return None
        checkpoint = decode_checkpoint(content)
        if checkpoint.level > understands:
            raise FormatError(newer(CHECKPOINT_NAME, checkpoint.level, understands))
        return checkpoint

    def with_hard_states(self, hard_states: Mapping[int, HardState]) -> Checkpoint:
        """With those of now: whoever gives a checkpoint a later `synced_sequence` has to, for up to
        there a start takes the checkpoint's word for them.
        """
        groups = {
            number: replace(self.groups.get(number, _NO_SNAPSHOT), hard_state=hard_state)
            for number, hard_state in hard_states.items()
        }
        return replace(self, groups={**self.groups, **groups})

    def write(self, disk: Disk) -> None:
        """Durably replace the file. Blocking; OSError."""
        replace_file(disk, CHECKPOINT_NAME, encode_checkpoint(self))


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    parts = [
        _BODY.pack(
            checkpoint.store,
            *checkpoint.position,
            checkpoint.synced_sequence,
            len(checkpoint.groups),
            len(checkpoint.cuts),
            len(checkpoint.closed),
            len(checkpoint.damaged),
        )
    ]
    for number, group in sorted(checkpoint.groups.items()):
        name = group.snapshot.encode()
        parts.append(
            _GROUP.pack(number, group.index, group.term, *group.hard_state, len(name)) + name
        )
    parts.extend(_CUT.pack(number, *cut) for number, cut in sorted(checkpoint.cuts.items()))
    parts.extend(_CLOSED.pack(*close) for close in checkpoint.closed)
    parts.extend(_DAMAGED.pack(number) for number in sorted(checkpoint.damaged))
    if checkpoint.level:
        parts.append(_LEVEL.pack(checkpoint.level))
    if checkpoint.level >= REPLICAS:
        parts.extend(_DAMAGED.pack(number) for number in sorted(checkpoint.left))
    body = b"".join(parts)
    version = VERSION_WITH_LEVEL if checkpoint.level else VERSION
    return _HEAD.pack(MAGIC, version, len(body), crc32c(body)) + body


def decode_checkpoint(content: bytes) -> Checkpoint:
    """FormatError if the bytes are damaged or of another version."""
    if len(content) < _HEAD.size + _BODY.size or not content.startswith(MAGIC):
        raise FormatError(f"{CHECKPOINT_NAME} is not a checkpoint of a Weir store")
    _magic, version, length, checksum = _HEAD.unpack_from(content)
    body = content[_HEAD.size : _HEAD.size + length]
    if version not in {VERSION, VERSION_WITH_LEVEL}:
        raise FormatError(
            f"{CHECKPOINT_NAME} has format version {version}, this Weir knows {VERSION_WITH_LEVEL}"
        )
    if len(body) != length or crc32c(body) != checksum:
        raise FormatError(f"{CHECKPOINT_NAME} is damaged: its checksum does not match")
    store, segment, offset, synced, groups, cuts, closed, damaged = _BODY.unpack_from(body)
    at = _BODY.size
    by_group: dict[int, GroupCheckpoint] = {}
    for _ in range(groups):
        number, index, term, hard_term, vote, commit, length = _GROUP.unpack_from(body, at)
        at += _GROUP.size
        name = body[at : at + length].decode()
        at += length
        hard_state = HardState(hard_term, vote, commit)
        by_group[number] = GroupCheckpoint(index, term, name, hard_state)
    by_segment: dict[int, Cut] = {}
    for _ in range(cuts):
        number, cut_offset, following = _CUT.unpack_from(body, at)
        by_segment[number] = Cut(cut_offset, following)
        at += _CUT.size
    end = at + closed * _CLOSED.size
    closes = tuple(Close._make(row) for row in _CLOSED.iter_unpack(body[at:end]))
    level_at = end + damaged * _DAMAGED.size
    rows = _DAMAGED.iter_unpack(body[end:level_at])
    level = _LEVEL.unpack_from(body, level_at)[0] if version == VERSION_WITH_LEVEL else 0
    left = body[level_at + _LEVEL.size :] if REPLICAS <= level <= LATEST else b""
    return Checkpoint(
        store,
        Position(segment, offset),
        synced,
        by_group,
        by_segment,
        closes,
        frozenset(row[0] for row in rows),
        level,
        frozenset(row[0] for row in _DAMAGED.iter_unpack(left)),
    )


class CheckpointJob:
    """Writes a checkpoint. `run` belongs to a thread; then `Journal.checkpointed(job)`."""

    __slots__ = ("_disk", "checkpoint", "done")

    def __init__(self, disk: Disk, checkpoint: Checkpoint) -> None:
        self._disk = disk
        self.checkpoint = checkpoint
        self.done = False

    def run(self) -> None:
        """Thread: two writes, two syncs and a rename. OSError."""
        self.checkpoint.write(self._disk)
        self.done = True

    def check_done(self) -> None:
        """JournalError if `run` has not ended well."""
        if not self.done:
            raise JournalError("the checkpoint is not on disk")
