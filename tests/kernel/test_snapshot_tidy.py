"""Files of snapshots are removed while another thread takes one in from another store."""

from __future__ import annotations

from pathlib import Path

from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.snapshots.snapshot_file import DIRECTORY, WRITING, tidy

COMING = f"{DIRECTORY}/coming.snap"


def test_a_file_that_is_being_taken_in_is_left_alone_and_one_that_has_gone_is_no_error(
    tmp_path: Path,
) -> None:
    disk, folder = DirectoryDisk(tmp_path), tmp_path / DIRECTORY
    folder.mkdir(exist_ok=True)
    for name in (f"coming.snap{WRITING}", "old.snap", f"given_up.snap{WRITING}"):
        (folder / name).write_bytes(b"x")

    def keep() -> set[str]:
        # Asked once the names are known: whoever wrote this one has finished it meanwhile.
        (folder / f"given_up.snap{WRITING}").rename(folder / "given_up.snap")
        return {COMING}

    tidy(disk, keep, 0)
    left = sorted(each.name for each in folder.iterdir())
    assert left == [f"coming.snap{WRITING}", "given_up.snap"]
