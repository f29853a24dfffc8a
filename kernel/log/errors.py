"""What can go wrong with a store's files, apart from OSError.

EIO of a read is damage of what was to be read (`hard_read`). An OSError of a write or a sync is
never handled in this package: the driver ends the process, because after a failed fdatasync nobody
knows what the disk holds (reference: ATC'20, "Can Applications Recover from fsync Failures?").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class JournalError(Exception):
    """Base of every error of the journal; raised as it stands for a caller's mistake."""


class FormatError(JournalError):
    """A file was written by a version of Weir that this one does not know, or by another store."""


class NotUnderstood(FormatError):
    """The log says what this build does not know, or what cannot stand there: a newer build wrote
    it, or it is damaged, or one of them has a bug. Nothing of that entry may be answered.
    """


class RecordDamaged(JournalError):
    """A record that was synced fails its checksum when it is read."""


class RecordUnread(RecordDamaged):
    """The disk does not read a record, or not all of it (EIO). It may yet."""


class JournalDamaged(JournalError):
    """Synced records are unreadable: acknowledged data may be missing. Nothing was changed."""

    def __init__(self, groups: Mapping[int, str]) -> None:
        by_reason: dict[str, list[int]] = {}
        for group, why in sorted(groups.items()):
            by_reason.setdefault(why, []).append(group)
        reasons = "; ".join(f"{_named(some)}: {why}" for why, some in by_reason.items())
        super().__init__(f"the journal is damaged ({reasons})")
        self.groups = dict(groups)


def _named(groups: Sequence[int]) -> str:
    """Words for rising numbers of groups."""
    if len(groups) == 1:
        return f"group {groups[0]}"
    if groups[-1] - groups[0] == len(groups) - 1:
        return f"groups {groups[0]} to {groups[-1]}"
    return f"groups {', '.join(map(str, groups))}"
