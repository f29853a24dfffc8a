"""What can go wrong with a store's files, apart from OSError.

An OSError of a write or a sync is never handled in this package: the driver ends the process,
because after a failed fdatasync nobody knows what the disk holds (reference: ATC'20, "Can
Applications Recover from fsync Failures?").
"""

from __future__ import annotations

from collections.abc import Mapping


class JournalError(Exception):
    """Base of every error of the journal; raised as it stands for a caller's mistake."""


class FormatError(JournalError):
    """A file was written by a version of Weir that this one does not know, or by another store."""


class RecordDamaged(JournalError):
    """A record that was synced fails its checksum when it is read."""


class JournalDamaged(JournalError):
    """Synced records are unreadable: acknowledged data may be missing. Nothing was changed."""

    def __init__(self, groups: Mapping[int, str]) -> None:
        reasons = "; ".join(f"group {group}: {why}" for group, why in sorted(groups.items()))
        super().__init__(f"the journal is damaged ({reasons})")
        self.groups = dict(groups)
