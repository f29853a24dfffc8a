"""Writes beside the event loop: on the disk before they are reported, by whatever way it takes."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kernel.store.drivers import write_ring
from kernel.store.drivers.disk import DirectoryDisk, DiskFile
from kernel.store.drivers.write_ring import WriteRing, open_ring
from tests.rings import HAS_RINGS

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
needs_rings = pytest.mark.skipif(
    not HAS_RINGS, reason="no io_uring for this process: nothing writes beside the loop"
)


class Heard(list["BaseException | None"]):
    """What writes have ended with."""

    async def once(self) -> BaseException | None:
        """How the next one ends."""
        async with asyncio.timeout(5):
            while not self:
                await asyncio.sleep(0.001)
        return self.pop()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DiskFile]:
    opened = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT), writes_through=True)
    yield opened
    opened.close()


@needs_rings
@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS.keys())
class TestReal:
    def run(
        self, make_loop: Any, scenario: Callable[[WriteRing], Coroutine[Any, Any, None]]
    ) -> None:
        async def with_ring() -> None:
            ring = WriteRing(asyncio.get_running_loop())
            try:
                await scenario(ring)
            finally:
                ring.close()

        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(with_ring())

    def test_all_buffers_are_written_and_reported_in_a_later_turn(
        self, make_loop: Any, tmp_path: Path
    ) -> None:
        async def scenario(ring: WriteRing) -> None:
            file, heard = DirectoryDisk(tmp_path, ring).open("a", create=True), Heard()
            for number in range(20):
                buffers = [b"%d" % number] * (number + 2_000)
                assert file.begin_write(buffers, 7, heard.append)
                assert not heard
                assert await heard.once() is None
                assert file.pread(1 << 20, 7).startswith(b"".join(buffers))
            file.close()

        self.run(make_loop, scenario)

    def test_one_at_a_time(self, make_loop: Any, file: DiskFile) -> None:
        async def scenario(ring: WriteRing) -> None:
            heard = Heard()
            assert ring.begin(file, [b"first"], 0, heard.append)
            assert not ring.begin(file, [b"other"], 0, heard.append)
            assert await heard.once() is None
            assert file.pread(10, 0) == b"first"
            assert ring.begin(file, [b"third"], 0, heard.append)
            assert await heard.once() is None

        self.run(make_loop, scenario)

    def test_where_writes_do_not_go_through_a_sync_follows(
        self, make_loop: Any, tmp_path: Path
    ) -> None:
        async def scenario(ring: WriteRing) -> None:
            file, heard = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)), Heard()
            assert file.through() is None
            assert ring.begin(file, [b"abc"], 0, heard.append)
            assert await heard.once() is None
            assert file.pread(10, 0) == b"abc"
            file.close()

        self.run(make_loop, scenario)

    def test_an_error_of_the_disk_is_reported(self, make_loop: Any, tmp_path: Path) -> None:
        async def scenario(ring: WriteRing) -> None:
            (tmp_path / "a").write_bytes(b"")
            heard = Heard()
            read_only = DiskFile(os.open(tmp_path / "a", os.O_RDONLY))
            assert ring.begin(read_only, [b"abc"], 0, heard.append)
            error = await heard.once()
            assert isinstance(error, OSError)
            assert error.errno == errno.EBADF
            read_only.close()

        self.run(make_loop, scenario)

    def test_after_close_nothing_is_begun(self, make_loop: Any, file: DiskFile) -> None:
        async def scenario(ring: WriteRing) -> None:
            ring.close()
            ring.close()
            assert not ring.begin(file, [b"abc"], 0, Heard().append)

        self.run(make_loop, scenario)


class Operation:
    """As caio's."""

    def __init__(self, kind: str, descriptor: int, content: bytes = b"", offset: int = 0) -> None:
        self.kind, self.descriptor, self.content, self.offset = kind, descriptor, content, offset
        self.callback: Callable[[int], None]

    @classmethod
    def write(cls, content: bytes, descriptor: int, offset: int) -> Operation:
        return cls("write", descriptor, content, offset)

    @classmethod
    def fdsync(cls, descriptor: int) -> Operation:
        return cls("fdsync", descriptor)

    def set_callback(self, callback: Callable[[int], None]) -> None:
        self.callback = callback

    def carry_out(self) -> int:
        if self.kind == "write":
            return os.pwrite(self.descriptor, self.content, self.offset)
        os.fdatasync(self.descriptor)
        return 0


class Context:
    """As caio's, over a kernel that answers what it is told to: `answers` by kind of operation."""

    answers: dict[str, list[int]]
    in_our_turn: bool
    refuses: bool
    last: Context

    def __init__(self, max_requests: int) -> None:
        self.fileno = os.eventfd(0, os.EFD_NONBLOCK)
        self.seen: list[str] = []
        self._queued: list[Operation] = []
        self._ended: list[tuple[Operation, int]] = []
        Context.last = self

    def submit(self, operation: Operation) -> None:
        self._queued.append(operation)

    def flush(self) -> None:
        if Context.refuses:
            raise SystemError(errno.ENOMEM, "no memory")
        for operation in self._queued:
            self.seen.append(operation.kind)
            told = Context.answers.get(operation.kind)
            result = told.pop(0) if told else operation.carry_out()
            self._ended.append((operation, result))
            os.eventfd_write(self.fileno, 1)
        self._queued.clear()
        if Context.in_our_turn:
            # As the kernel: what syncs on its own account never is.
            self._tell([each for each in self._ended if each[0].kind == "write"])

    def poll(self) -> None:
        os.eventfd_read(self.fileno)

    def process_events(self) -> int:
        return self._tell(list(self._ended))

    def _tell(self, ended: list[tuple[Operation, int]]) -> int:
        for each in ended:
            self._ended.remove(each)
            each[0].callback(each[1])
        return len(ended)


class TestAKernelThat:
    @pytest.fixture(autouse=True)
    def kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Context.answers, Context.in_our_turn, Context.refuses = {}, False, False
        monkeypatch.setattr(write_ring, "_caio", lambda: (Context, Operation))

    async def write(self, file: DiskFile, ring: WriteRing, content: bytes) -> BaseException | None:
        heard = Heard()
        assert ring.begin(file, [content[:1], content[1:]], 0, heard.append)
        assert not heard, "it was reported before `begin` had returned"
        error = await heard.once()
        if error is None:
            assert file.pread(len(content), 0) == content
        return error

    async def test_leaves_writes_to_its_threads_gets_one_operation(self, file: DiskFile) -> None:
        ring = WriteRing(asyncio.get_running_loop())
        for number in range(3):
            assert await self.write(file, ring, b"content %d" % number) is None
        assert Context.last.seen == ["write"] * 3
        ring.close()

    async def test_syncs_in_our_turn_is_soon_asked_so_no_more(self, file: DiskFile) -> None:
        Context.in_our_turn = True
        ring = WriteRing(asyncio.get_running_loop())
        for number in range(18):
            assert await self.write(file, ring, b"content %d" % number) is None
        assert ring.splits
        assert Context.last.seen == ["write"] * 16 + ["write", "fdsync"] * 2
        ring.close()

    async def test_seems_to_now_and_then_is_asked_as_before(self, file: DiskFile) -> None:
        """The loop's thread had to wait for a processor, and the write had ended meanwhile."""
        ring = WriteRing(asyncio.get_running_loop())
        for number in range(300):
            Context.in_our_turn = number % 5 == 0
            assert await self.write(file, ring, b"content %d" % number) is None
        assert Context.last.seen == ["write"] * 300
        ring.close()

    @pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS])
    async def test_has_written_before_means_the_disk(self, file: DiskFile, error: int) -> None:
        """What is no longer the ring's own answer must not be tried again."""
        ring = WriteRing(asyncio.get_running_loop())
        assert await self.write(file, ring, b"content") is None
        Context.answers = {"write": [-error]}
        failure = await self.write(file, ring, b"more")
        assert isinstance(failure, OSError)
        assert failure.errno == error
        ring.close()

    async def test_is_out_of_memory_when_asked_what_has_ended_is_asked_again(
        self, file: DiskFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flush, process = Context.flush, Context.process_events
        short = iter((True, True, False, True, False))

        def flushed(context: Context) -> None:
            flush(context)
            raise MemoryError

        def processed(context: Context) -> int:
            if next(short, False):
                raise MemoryError
            return process(context)

        monkeypatch.setattr(Context, "flush", flushed)
        monkeypatch.setattr(Context, "process_events", processed)
        ring = WriteRing(asyncio.get_running_loop())
        for content in (b"first", b"second"):
            assert await self.write(file, ring, content) is None
        ring.close()

    @pytest.mark.parametrize("in_our_turn", [False, True])
    async def test_fails_a_write_is_heard(self, file: DiskFile, in_our_turn: bool) -> None:
        Context.in_our_turn = in_our_turn
        Context.answers = {"write": [-errno.EIO]}
        ring = WriteRing(asyncio.get_running_loop())
        error = await self.write(file, ring, b"content")
        assert isinstance(error, OSError)
        assert error.errno == errno.EIO
        ring.close()

    @pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL, errno.EOPNOTSUPP])
    async def test_fails_a_sync_is_heard(self, tmp_path: Path, error: int) -> None:
        """The write before it has shown that the ring can."""
        Context.answers = {"fdsync": [-error]}
        plain = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT))
        ring = WriteRing(asyncio.get_running_loop())
        failure = await self.write(plain, ring, b"content")
        assert isinstance(failure, OSError)
        assert failure.errno == error
        ring.close()
        plain.close()

    @pytest.mark.parametrize("in_our_turn", [False, True])
    @pytest.mark.parametrize("answer", [-errno.EINVAL, -errno.EOPNOTSUPP, -errno.ECANCELED, 3, 0])
    async def test_refuses_a_write_or_cuts_it_short_is_not_asked_again(
        self, file: DiskFile, answer: int, in_our_turn: bool
    ) -> None:
        """A thread writes it, all of it."""
        Context.in_our_turn = in_our_turn
        Context.answers = {"write": [answer]}
        ring, reasons = WriteRing(asyncio.get_running_loop()), list[str]()
        ring.given_up = reasons.append
        assert await self.write(file, ring, b"content") is None
        assert not ring.begin(file, [b"more"], 0, Heard().append)
        await asyncio.sleep(0)
        told = f"{answer} of 7 bytes written" if answer >= 0 else os.strerror(-answer)
        assert reasons == [told]

    async def test_refuses_a_sync_is_not_asked_again(self, tmp_path: Path) -> None:
        Context.answers = {"fdsync": [-errno.ECANCELED]}
        plain = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT))
        ring = WriteRing(asyncio.get_running_loop())
        assert await self.write(plain, ring, b"content") is None
        assert not ring.begin(plain, [b"more"], 0, Heard().append)
        plain.close()

    async def test_takes_nothing_is_given_nothing_later(self, file: DiskFile) -> None:
        """What stands in the ring's queue would be written with the next, over what is there by
        then.
        """
        Context.refuses = True
        ring, reasons = WriteRing(asyncio.get_running_loop()), list[str]()
        ring.given_up = reasons.append
        heard = Heard()
        assert not ring.begin(file, [b"content"], 0, heard.append)
        await asyncio.sleep(0)
        assert len(reasons) == 1
        Context.refuses = False
        assert not ring.begin(file, [b"more"], 0, heard.append)
        assert Context.last.seen == []
        assert not heard

    async def test_takes_no_sync_behind_a_write_leaves_both_to_a_thread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT))
        ring = WriteRing(asyncio.get_running_loop())
        carried_out = Operation.carry_out

        def then_refuse(operation: Operation) -> int:
            Context.refuses = True
            return carried_out(operation)

        monkeypatch.setattr(Operation, "carry_out", then_refuse)
        assert await self.write(plain, ring, b"content") is None
        assert not ring.begin(plain, [b"more"], 0, Heard().append)
        plain.close()

    async def test_forbids_rings_leaves_writes_to_a_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(max_requests: int) -> None:
            raise SystemError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(write_ring, "_caio", lambda: (forbidden, Operation))
        assert open_ring(asyncio.get_running_loop()) is None


@pytest.mark.parametrize(
    ("system", "release"),
    [("Darwin", "24.1.0"), ("Linux", "5.10.0-33-amd64"), ("Linux", "4.18"), ("Linux", "odd")],
)
async def test_a_system_whose_rings_outlive_a_process_or_that_has_none_takes_a_thread(
    system: str, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.uname_result((system, "host", release, "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: found)
    assert open_ring(asyncio.get_running_loop()) is None


async def test_a_disk_without_a_ring_takes_a_thread(tmp_path: Path) -> None:
    file = DirectoryDisk(tmp_path).open("a", create=True)
    assert not file.begin_write([b"abc"], 0, Heard().append)
    file.close()


def test_a_file_is_opened_through_once_and_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = DiskFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT), writes_through=True)
    assert file.through() == file.through()
    (tmp_path / "a").rename(tmp_path / "b")
    through = file.through()
    assert through is not None
    assert os.readlink(f"/proc/self/fd/{through}") == str(tmp_path / "b")
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before
