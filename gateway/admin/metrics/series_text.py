"""Very many series as text: Prometheus' form, or OpenMetrics', in slices between which the event
loop has its turn. prometheus-client takes 12 µs for each sample; this takes 0.3.

The text of a series' labels is made once for all metrics of its family. A metric's samples stand
together, as both forms want it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

SLICE_LINES = 400
"""Samples written in one turn of the event loop: about 0.15 ms: publishing is several turns."""


class TextForm(Enum):
    """What a scraper reads."""

    PLAIN = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


END = b"# EOF\n"
"""The last line of OpenMetrics, which tells a whole answer from one that was cut off."""


def form_of(accept: str) -> TextForm:
    """The form that an Accept header asks for."""
    return TextForm.OPEN_METRICS if "application/openmetrics-text" in accept else TextForm.PLAIN


class Kind(Enum):
    """What a value means."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricHead:
    """A metric, without its samples. Counters end in `_total`, which `name` leaves out."""

    name: str
    kind: Kind
    text: str

    @property
    def unit(self) -> str:
        """The unit that its name ends with."""
        last = self.name.rpartition("_")[2]
        return last if last in {"bytes", "seconds"} else ""

    def head(self, form: TextForm) -> str:
        """The lines before its samples."""
        name = self.name
        if form is TextForm.PLAIN and self.kind is Kind.COUNTER:
            name += "_total"
        lines = f"# HELP {name} {_escape(self.text)}\n# TYPE {name} {self.kind.value}\n"
        if form is TextForm.OPEN_METRICS and self.unit:
            lines += f"# UNIT {name} {self.unit}\n"
        return lines


@dataclass(frozen=True, slots=True)
class Column:
    """One sample of each series: of which metric, with what beside the family's labels."""

    metric: MetricHead
    suffix: str = ""
    """Behind the metric's name: `_bucket` of a histogram, `_total` of a counter."""
    more: str = ""
    """More labels, each with a comma before it."""


Series = tuple[str, Sequence[float]]
"""The text of the labels, without braces; a value for each column."""


def columns_of(heads: Iterable[MetricHead]) -> list[Column]:
    """A column for each gauge and counter."""
    return [Column(each, "_total" if each.kind is Kind.COUNTER else "") for each in heads]


async def write(
    columns: Sequence[Column], series: Sequence[Series], form: TextForm
) -> AsyncIterator[bytes]:
    """The text of a family: columns of one metric stand side by side in `columns`."""
    before: MetricHead | None = None
    for number, column in enumerate(columns):
        if column.metric is not before:
            before = column.metric
            yield column.metric.head(form).encode()
        name, more = column.metric.name + column.suffix, column.more
        for start in range(0, len(series), SLICE_LINES):
            part = series[start : start + SLICE_LINES]
            yield "".join(
                [f"{name}{{{text}{more}}} {values[number]}\n" for text, values in part]
            ).encode()
            await asyncio.sleep(0)


_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def _escape(text: str) -> str:
    return text.translate(_ESCAPED)


def escaped(value: str) -> str:
    """The value of a label, between its quotes (hot)."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.translate(_VALUE_ESCAPED)
    return value
