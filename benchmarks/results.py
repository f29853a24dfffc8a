"""RESULTS.md: one section a row, replaced when the row is measured again.

A section lies between two comments, so measuring one row touches nothing else on the page:

    <!-- row amqp-1p1c -->
    ## title
    table, notes, command, date, versions, settings
    <!-- end amqp-1p1c -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.samples import Sample

PREAMBLE = """\
# Results

Written by the programs in `benchmarks/`; each section names its own and says how it was made. A
figure is the median of its rounds (least..most). Ratios are taken round by round, Weir over the
other. Use the ratios: absolute figures belong to the machine.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a row, side by side."""

    figure: str
    cells: dict[str, Sample]
    ratio: Sample | None = None
    bar: str = ""
    met: bool | None = None  # None: no bar, or nothing to judge


@dataclass(frozen=True, slots=True)
class Outcome:
    """What measuring a row gave."""

    sides: list[str]
    lines: list[Line]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How the row was measured."""

    command: str
    date: str
    machine: str
    filesystem: str
    load_before: str
    rounds: int
    versions: dict[str, str]
    settings: dict[str, str]


def section(title: str, outcome: Outcome, how: Circumstances) -> str:
    """The section's text, without its marks."""
    head = ["figure", *outcome.sides, "ratio", "bar", "met"]
    rows = [head, ["---"] * len(head)]
    for line in outcome.lines:
        cells = [line.cells[side].text() if side in line.cells else "" for side in outcome.sides]
        ratio = line.ratio.text() if line.ratio is not None else ""
        met = {None: "", True: "yes", False: "**no**"}[line.met]
        rows.append([line.figure, *cells, ratio, line.bar, met])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "".join(f"\n- {_one_line(note)}" for note in outcome.notes)
    versions = "; ".join(f"{side}: {version}" for side, version in how.versions.items())
    settings = "; ".join(f"{side}: {text}" for side, text in how.settings.items())
    return (
        f"## {title}\n\n{table}\n{notes}\n\n"
        f"`{how.command}`, {how.date}, {how.rounds} rounds; {how.machine}; {how.filesystem}; "
        f"load average before {how.load_before}. {versions}. Settings: {settings}.\n"
    ).replace("\n\n\n", "\n\n")


def figures_section(
    title: str, figures: Mapping[str, float], bar_of: Callable[[str], float | None], how: str
) -> str:
    """A section of figures with a name each, some of which must not be above a bar; without its
    marks. `how`: `session.circumstances`.
    """
    lines = []
    for name, figure in figures.items():
        bar = bar_of(name)
        cells = ("", "") if bar is None else (f"≤ {bar:g}", "yes" if figure <= bar else "**no**")
        lines.append(f"| {name} | {figure:,} | {cells[0]} | {cells[1]} |\n")
    head = "| figure | | bar | met |\n| --- | --- | --- | --- |\n"
    return f"## {title}\n\n{head}{''.join(lines)}\n{how}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def replace_section(page: str, row: str, text: str) -> str:
    """`page` with the section of `row` replaced, or appended when it has none."""
    begin, end = f"<!-- row {row} -->", f"<!-- end {row} -->"
    block = f"{begin}\n{text.rstrip()}\n{end}\n"
    found = re.search(re.escape(begin) + r".*?" + re.escape(end) + r"\n?", page, re.DOTALL)
    if found is None:
        return f"{page.rstrip()}\n\n{block}"
    return page[: found.start()] + block + page[found.end() :]


def write(page: Path, row: str, text: str) -> None:
    """Put the section of `row` into the file `page`, which need not exist."""
    before = page.read_text() if page.exists() else PREAMBLE
    page.write_text(replace_section(before, row, text))
