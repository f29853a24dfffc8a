"""The simulated disk does what it says, and the real one agrees with it where both can."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kernel.common.ports import Disk
from kernel.store.drivers import disk as disks
from kernel.store.drivers.disk import BUFFERS_MAX, DirectoryDisk, DiskFile
from kernel.store.drivers.file_system import type_in
from tests.simulator.disk import Crash, SimulatedDisk


@pytest.fixture(params=["simulated", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return SimulatedDisk(1 << 30) if request.param == "simulated" else DirectoryDisk(tmp_path / "d")


class TestBoth:
    def test_what_is_written_is_read(self, disk: Disk) -> None:
        file = disk.open("journal/one", create=True)
        assert file.pwritev([b"abc", b"", b"defg"], 10) == 7
        assert file.pread(100, 8) == b"\0\0abcdefg"
        assert file.size() == 17
        file.fdatasync()
        disk.sync_directory("journal")
        file.close()
        again = disk.open("journal/one")
        assert again.pread(3, 10) == b"abc"
        again.close()

    def test_many_buffers_are_one_write(self, disk: Disk) -> None:
        file = disk.open("many", create=True)
        buffers = [bytes([n % 251]) for n in range(3 * BUFFERS_MAX + 7)]
        assert file.pwritev(buffers, 0) == len(buffers)
        assert file.pread(len(buffers) + 5, 0) == b"".join(buffers)
        file.close()

    def test_allocated_space_reads_as_zeros(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.allocate(10_000)
        assert file.size() == 10_000
        assert file.pread(20_000, 0) == bytes(10_000)
        file.pwritev([b"x"], 5)
        file.allocate(5_000)
        assert file.size() == 10_000
        assert file.pread(1, 5) == b"x"
        file.close()

    def test_names(self, disk: Disk) -> None:
        assert disk.names("journal") == []
        for name in ("journal/b", "journal/a", "top"):
            disk.open(name, create=True).close()
        assert disk.names("journal") == ["a", "b"]
        assert disk.names("") == ["top"]
        disk.rename("journal/b", "journal/a")
        assert disk.names("journal") == ["a"]
        disk.remove("journal/a")
        assert disk.names("journal") == []
        with pytest.raises(FileNotFoundError):
            disk.open("journal/a")
        with pytest.raises(FileNotFoundError):
            disk.remove("journal/a")

    def test_space_is_known(self, disk: Disk) -> None:
        assert 0 < disk.free_bytes() <= disk.total_bytes()

    def test_a_closed_file_is_an_error(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.close()
        file.close()
        with pytest.raises(OSError, match=r"Bad file descriptor|closed"):
            file.pread(1, 0)

    def test_a_synced_write_is_one(self, disk: Disk) -> None:
        file = disk.open("a", create=True)
        buffers = [bytes([n % 251]) for n in range(2 * BUFFERS_MAX)]
        assert file.pwritev(buffers[:3], 5, synced=True) == 3
        assert file.pwritev(buffers, 8, synced=True) == len(buffers)
        assert file.pread(len(buffers) + 10, 5) == b"".join(buffers[:3] + buffers)
        file.close()


class TestSystemCalls:
    """Which of them bring a synced write of the real disk to the disk."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        """(name, flags or 0) of each, in order."""
        found: list[tuple[str, int]] = []
        fdatasync, pwritev = os.fdatasync, os.pwritev

        def synced(descriptor: int) -> None:
            found.append(("fdatasync", 0))
            fdatasync(descriptor)

        def written(fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
            found.append(("pwritev", flags))
            return pwritev(fd, buffers, offset, flags)

        monkeypatch.setattr(os, "fdatasync", synced)
        monkeypatch.setattr(os, "pwritev", written)
        return found

    @pytest.fixture
    def file(self, tmp_path: Path) -> Iterator[DiskFile]:
        opened = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT), writes_through=True)
        yield opened
        opened.close()

    def test_one_where_writes_go_through(
        self, file: DiskFile, calls: list[tuple[str, int]]
    ) -> None:
        file.pwritev([b"a", b"b"], 0, synced=True)
        assert calls == [("pwritev", os.RWF_DSYNC)]

    def test_a_sync_of_its_own_where_they_do_not(
        self, tmp_path: Path, calls: list[tuple[str, int]]
    ) -> None:
        file = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT))
        file.pwritev([b"a", b"b"], 0, synced=True)
        file.close()
        assert calls == [("pwritev", 0), ("fdatasync", 0)]

    def test_one_sync_for_what_takes_many_writes(
        self, file: DiskFile, calls: list[tuple[str, int]]
    ) -> None:
        file.pwritev([b"a"] * (BUFFERS_MAX + 1), 0, synced=True)
        assert calls == [("pwritev", 0), ("pwritev", 0), ("fdatasync", 0)]

    def test_a_sync_of_its_own_once_the_system_knows_no_such_write(
        self, file: DiskFile, calls: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counted = os.pwritev

        def refused(fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
            written = counted(fd, () if flags else buffers, offset, flags)
            if flags:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return written

        monkeypatch.setattr(os, "pwritev", refused)
        for _ in range(2):
            assert file.pwritev([b"abc"], 0, synced=True) == 3
        through, plain, sync = ("pwritev", os.RWF_DSYNC), ("pwritev", 0), ("fdatasync", 0)
        assert calls == [through, plain, sync, plain, sync]

    def test_who_has_written_through_and_says_he_cannot_is_the_disk(
        self, file: DiskFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.pwritev([b"abc"], 0, synced=True)

        def failing(_fd: int, _buffers: Sequence[bytes], _offset: int, _flags: int = 0) -> int:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "pwritev", failing)
        with pytest.raises(OSError, match="not supported"):
            file.pwritev([b"abc"], 0, synced=True)

    def test_an_error_of_the_disk_is_not_taken_for_that(
        self, file: DiskFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(_fd: int, _buffers: Sequence[bytes], _offset: int, _flags: int = 0) -> int:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "pwritev", failing)
        with pytest.raises(OSError, match="Input"):
            file.pwritev([b"abc"], 0, synced=True)

    def test_each_directory_knows_its_file_system(
        self, tmp_path: Path, calls: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(disks, "file_system_of", lambda path: path.name)
        disk = DirectoryDisk(tmp_path / "9p")
        for name, flags in (("a", 0), ("ext4/a", os.RWF_DSYNC), ("unknown/a", 0)):
            file = disk.open(name, create=True)
            calls.clear()
            file.pwritev([b"a"], 0, synced=True)
            assert calls[0] == ("pwritev", flags)
            file.close()


def test_a_path_is_of_the_file_system_mounted_last_and_deepest_above_it() -> None:
    mounts = "\n".join(
        f"36 35 98:0 / {place} rw,noatime master:1 - {kind} /dev/root rw"
        for place, kind in (
            ("/", "ext4"),
            ("/data", "xfs"),
            (r"/data/my\040queue", "9p"),
            ("/data/journal", "tmpfs"),
            ("/data/journal", "btrfs"),
        )
    )
    for path, kind in (
        ("/", "ext4"),
        ("/database/a", "ext4"),
        ("/data", "xfs"),
        ("/data/my queue/a", "9p"),
        ("/data/journal/a", "btrfs"),
    ):
        assert type_in(mounts, path) == kind
    assert type_in("", "/") == "unknown"


class TestPowerLoss:
    def test_unsynced_writes_are_gone(self) -> None:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        disk.sync_directory("")
        file.pwritev([b"old"], 0)
        file.fdatasync()
        file.pwritev([b"new"], 0)
        assert disk.content("a") == b"new"
        assert disk.crashed_copy().content("a") == b"old"
        assert disk.killed_copy().content("a") == b"new"
        assert disk.killed_copy().crashed_copy().content("a") == b"old"

    def test_a_synced_write_says_nothing_of_those_before_it(self) -> None:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        disk.sync_directory("")
        file.pwritev([b"12"], 0)
        file.pwritev([b"34"], 2, synced=True)
        assert disk.content("a") == b"1234"
        assert disk.crashed_copy().content("a") == b"\0\x0034"
        file.fdatasync()
        assert disk.crashed_copy().content("a") == b"1234"

    def test_a_torn_write_keeps_whole_sectors(self) -> None:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        disk.sync_directory("")
        file.allocate(4096)
        file.fdatasync()
        file.pwritev([b"x" * 3000], 100)
        seen = set()
        for seed in range(50):
            content = disk.crashed_copy(seed).content("a")
            sectors = [content[at : at + 512] for at in range(0, 4096, 512)]
            for number, sector in enumerate(sectors):
                full = disk.content("a")[number * 512 : number * 512 + 512]
                assert sector in (bytes(512), full)
            seen.add(content)
        assert len(seen) > 30
        assert disk.crashed_copy(1).content("a") == disk.crashed_copy(1).content("a")

    def test_names_are_durable_after_their_directory(self) -> None:
        disk = SimulatedDisk()
        disk.open("d/a", create=True).close()
        assert disk.crashed_copy().names("d") == []
        disk.sync_directory("")
        assert disk.crashed_copy().names("d") == []
        disk.sync_directory("d")
        assert disk.crashed_copy().names("d") == ["a"]
        disk.remove("d/a")
        assert disk.crashed_copy().names("d") == ["a"]

    def test_a_rename_is_there_or_not(self) -> None:
        disk = SimulatedDisk()
        disk.put("a", b"old")
        disk.open("b", create=True).close()
        disk.sync_directory("")
        disk.rename("b", "a")
        outcomes = {tuple(disk.crashed_copy(seed).names("")) for seed in range(20)}
        assert outcomes == {("a", "b"), ("a",)}
        assert disk.crashed_copy().content("a") == b"old"

    def test_a_failed_sync_leaves_pages_clean(self) -> None:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        disk.sync_directory("")
        disk.fail("fdatasync", OSError(errno.EIO, "Input/output error"))
        file.pwritev([b"lost"], 0)
        with pytest.raises(OSError, match="Input"):
            file.fdatasync()
        assert file.pread(4, 0) == b"lost"
        assert all(disk.crashed_copy(seed).content("a") != b"lost" for seed in range(20))

    def test_after_a_crash_nothing_goes_on(self) -> None:
        disk = SimulatedDisk()

        def crash(boundary: int, _what: str) -> None:
            if boundary == 3:
                raise Crash

        disk.on_boundary = crash
        file = disk.open("a", create=True)
        with pytest.raises(Crash):
            file.pwritev([b"x"], 0)
        for call in (file.fdatasync, lambda: disk.open("b"), lambda: disk.names("")):
            checked: Callable[[], object] = call
            with pytest.raises(Crash):
                checked()


def test_a_full_disk_says_so_and_takes_back_what_is_removed() -> None:
    disk = SimulatedDisk(capacity=1000)
    file = disk.open("a", create=True)
    file.allocate(800)
    with pytest.raises(OSError, match="no space"):
        file.pwritev([bytes(201)], 800)
    assert disk.free_bytes() == 200
    disk.remove("a")
    assert disk.free_bytes() == 1000


def test_a_flipped_bit_is_everywhere() -> None:
    disk = SimulatedDisk()
    disk.put("a", b"\x00\x00")
    disk.flip("a", 1, 3)
    assert disk.content("a") == disk.crashed_copy().content("a") == b"\x00\x08"


def test_disks_have_one_fingerprint_if_they_hold_the_same_now_and_after_a_power_loss() -> None:
    def made(*, synced: bool, named: bool, content: bytes = b"same") -> SimulatedDisk:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        if named:
            disk.sync_directory("")
        file.pwritev([content], 0)
        if synced:
            file.fdatasync()
        return disk

    known = {
        made(synced=synced, named=named).fingerprint()
        for synced in (False, True)
        for named in (False, True)
    }
    assert len(known) == 4
    assert made(synced=True, named=True, content=b"else").fingerprint() not in known
    assert made(synced=True, named=True).killed_copy().fingerprint() in known
    spoilt = made(synced=True, named=True)
    spoilt.spoil("a", 0)
    assert spoilt.fingerprint() not in known
