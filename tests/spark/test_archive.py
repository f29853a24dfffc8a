from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark import bill
from spark.archive import ArchiveError, open_archive
from spark.period import Period, PeriodError
from tests.spark.samples import HOUR_US, NOVEMBER, record, write_archive

DAY_US = 24 * HOUR_US


def test_files_of_other_periods_are_left_out_but_for_cumulative_rows(tmp_path: Path) -> None:
    before = {"emitted_at_us": 1}
    write_archive(
        tmp_path,
        [
            record(0, NOVEMBER.start_us - 3 * DAY_US, **before),
            record(1, NOVEMBER.start_us - 2 * DAY_US, kind="store", **before),
            record(2, NOVEMBER.start_us, **before),
            record(3, NOVEMBER.end_us, **before),
        ],
    )
    archive = open_archive(tmp_path, NOVEMBER)
    assert archive.rows == 4
    files = write_archive(
        tmp_path / "apart",
        [
            record(0, NOVEMBER.start_us - 3 * DAY_US),
            record(1, NOVEMBER.start_us - 2 * DAY_US, kind="store"),
            record(2, NOVEMBER.start_us),
            record(3, NOVEMBER.end_us),
        ],
    )
    archive = open_archive(tmp_path / "apart", NOVEMBER)
    assert archive.entries == tuple(files[1:3])
    assert archive.gaps == ()


def test_only_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    entries = write_archive(tmp_path, [record(0, messages=1)])
    (tmp_path / "p0-1-2.parquet").write_bytes(b"PAR1 half a file")
    assert open_archive(tmp_path, NOVEMBER).entries == tuple(entries)


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_that_is_not_what_the_manifest_says_stops_the_bill(
    tmp_path: Path, gone: bool
) -> None:
    (entry,) = write_archive(tmp_path, [record(0, messages=1)])
    path = tmp_path / entry.name
    if gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveError, match="the manifest names it" if gone else "restore it"):
        open_archive(tmp_path, NOVEMBER)


def test_missing_records_are_found_over_all_files(tmp_path: Path) -> None:
    write_archive(tmp_path, [record(0), record(2), record(5, epoch=2)])
    gaps = open_archive(tmp_path, NOVEMBER).gaps
    assert [(gap.epoch, gap.first_seq, gap.last_seq) for gap in gaps] == [(1, 1, 1), (2, 0, 4)]


def test_messages_that_the_log_gave_up_are_problems_of_the_bill(tmp_path: Path) -> None:
    (entry,) = write_archive(tmp_path, [record(0)])
    lines = replace(entry, missing=2).to_line()
    (tmp_path / "manifest.jsonl").write_bytes(lines)
    archive = open_archive(tmp_path, NOVEMBER)
    counts = SimpleNamespace(quarantined=0, counters_fallen=0, routed_apart=0, returned_beyond=0)
    assert bill._problems(archive, counts) == (  # type: ignore[arg-type]
        "2 messages of p0-0-1.parquet were given up by the log: their records are missing",
    )


def test_two_lives_of_one_log_stop_the_bill(tmp_path: Path) -> None:
    again = record(1, incarnation=9, emitted_at_us=1)
    write_archive(tmp_path, [record(0, incarnation=5), again])
    with pytest.raises(ArchiveError, match=r"two lives of one log \(node n1, epoch 1\)"):
        open_archive(tmp_path, NOVEMBER)


def test_an_archive_without_its_last_line_is_found_by_the_head_that_was_told(
    tmp_path: Path,
) -> None:
    write_archive(tmp_path, [record(0), record(1, NOVEMBER.start_us + HOUR_US, emitted_at_us=1)])
    head = open_archive(tmp_path, NOVEMBER).head
    assert open_archive(tmp_path, NOVEMBER, head).head == head
    manifest = tmp_path / "manifest.jsonl"
    lines = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ArchiveError, match="lines are missing, or changed"):
        open_archive(tmp_path, NOVEMBER, head)


def test_no_archive_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has the exporter run"):
        open_archive(tmp_path, NOVEMBER)
    (tmp_path / "manifest.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ArchiveError, match="manifest line 1"):
        open_archive(tmp_path, NOVEMBER)


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-00", "2026-1", "26-11", "2026-11-01"]
)
def test_a_period_is_a_month(text: str) -> None:
    with pytest.raises(PeriodError, match="write it as 2026-11"):
        Period.parse(text)


def test_december_ends_with_its_year() -> None:
    assert Period.parse("2026-12").end_us == Period.parse("2027-01").start_us
    assert str(Period.parse("2026-12")) == "2026-12"
