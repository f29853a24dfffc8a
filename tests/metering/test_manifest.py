from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.schema import ManifestEntry, ManifestError, SourceRange, parse_manifest
from metering.schema.manifest import merge_ranges, repeating_files, sequence_gaps

ENTRY = ManifestEntry(
    queue=0,
    from_offset=0,
    to_offset=10,
    rows=20,
    kinds={"api": 15, "store": 5},
    window_start_us=100,
    window_end_us=200,
    sources=(SourceRange("nöde", 1, 0, 19),),
    size_bytes=1234,
    sha256="a" * 64,
    source_sha256="b" * 64,
    writer="pyarrow 26",
)
NEXT = replace(ENTRY, from_offset=10, to_offset=12, sources=(SourceRange("nöde", 1, 20, 39),))


def test_lines_come_back_as_entries() -> None:
    assert parse_manifest(ENTRY.to_line() + NEXT.to_line()) == [ENTRY, NEXT]
    assert ENTRY.name == "p0-0-10.parquet"


def test_a_line_that_was_not_finished_does_not_count() -> None:
    line = NEXT.to_line()
    for length in range(len(line)):
        assert parse_manifest(ENTRY.to_line() + line[:length]) == [ENTRY]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"{not json}\n", "line 2"),
        (b"[]\n", "line 2: not an object"),
        (b'{"schema":2}\n', "schema 2, known is 1"),
        (NEXT.to_line().replace(b".parquet", b".csv"), "no name of an archive file"),
        (NEXT.to_line().replace(b"a" * 64, b"A" * 64), "sha256 is no SHA-256"),
        (replace(NEXT, from_offset=11).to_line(), "begins at 11, the file before it ends at 10"),
        (replace(NEXT, from_offset=9).to_line(), "begins at 9, the file before it ends at 10"),
        (replace(NEXT, to_offset=10).to_line(), "holds no offset"),
        (NEXT.to_line().replace(b'"rows":20,', b""), "line 2: 'rows'"),
        (NEXT.to_line().replace(b'"rows":20', b'"rows":Infinity'), "line 2"),
    ],
)
def test_a_manifest_that_cannot_be_relied_on_names_its_line(second: bytes, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        parse_manifest(ENTRY.to_line() + second)


def test_queues_continue_independently() -> None:
    other = replace(ENTRY, queue=1, from_offset=500, to_offset=501)
    assert len(parse_manifest(ENTRY.to_line() + other.to_line() + NEXT.to_line())) == 3


@given(st.sets(st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 30))))
def test_gaps_are_exactly_the_seqs_that_no_file_has(present: set[tuple[str, int, int]]) -> None:
    singles = [SourceRange(node, epoch, seq, seq) for node, epoch, seq in present]
    files = [
        replace(ENTRY, sources=tuple(singles[at : at + 3])) for at in range(0, len(singles), 3)
    ]
    highest: dict[tuple[str, int], int] = {}
    for node, epoch, seq in present:
        highest[node, epoch] = max(seq, highest.get((node, epoch), 0))
    missing = {
        (node, epoch, seq)
        for (node, epoch), last in highest.items()
        for seq in range(last)
        if (node, epoch, seq) not in present
    }
    gaps = sequence_gaps(files)
    assert missing == {
        (gap.node, gap.epoch, seq) for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)
    }
    runs = list(merge_ranges(singles))
    assert sum(run.last_seq - run.first_seq + 1 for run in runs) == len(present)


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)), max_size=6)))
def test_files_that_repeat_records_are_known_by_their_ranges(
    files: list[list[tuple[str, int]]],
) -> None:
    entries = [
        replace(
            ENTRY,
            from_offset=number,
            to_offset=number + 1,
            rows=len(rows),
            sources=tuple(merge_ranges(SourceRange(node, 1, seq, seq) for node, seq in rows)),
        )
        for number, rows in enumerate(files)
    ]
    count = Counter(row for rows in files for row in rows)
    expected = {
        entry.name
        for entry, rows in zip(entries, files, strict=True)
        if any(count[row] > 1 for row in rows)
    }
    assert repeating_files(entries) == expected
