"""Very many series as text: Prometheus' form, or OpenMetrics', in slices between which others
have their turn. prometheus-client takes 12 µs for each sample; this takes 0.3.

The text of a series' labels is made once for all metrics of its family. A metric's samples stand
together, as both forms want it, so that all values of a family are held until the last metric is
written: in pieces (`SeriesPieces`), which cost the cycle collector nothing and are freed in turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from gateway.process.slices import Slice

SLICE_LINES = 200
"""Samples written between two looks at the clock: 0.03 to 0.1 ms."""


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


class SeriesPieces:
    """Series of one family, SLICE_LINES in a piece: their labels, and all values one behind the
    other. A tuple for each of 100,000 series would have the cycle collector look at them while they
    come (7 ms at a time), and take as long to free.
    """

    __slots__ = ("_labels", "_values", "pieces")

    def __init__(self, series: Iterable[Series] = ()) -> None:
        self.pieces: list[tuple[list[str], list[float]]] = []
        """(labels, values) of each; to be emptied by who writes the last of it."""
        self._labels: list[str] = []
        self._values: list[float] = []
        self.extend(series)

    def extend(self, series: Iterable[Series]) -> None:
        """More of them (hot: once for each topic)."""
        for text, values in series:
            if not len(self._labels) % SLICE_LINES:
                self._labels, self._values = [], []
                self.pieces.append((self._labels, self._values))
            self._labels.append(text)
            self._values.extend(values)


async def write(
    columns: Sequence[Column], series: SeriesPieces, form: TextForm
) -> AsyncIterator[bytes]:
    """The text of a family: columns of one metric stand side by side in `columns`. Nothing is left
    in `series`.
    """
    width, pieces = len(columns), series.pieces
    piece = Slice()
    for metric, of_metric in groupby(enumerate(columns), lambda each: each[1].metric):
        yield metric.head(form).encode()
        samples = [(number, metric.name + each.suffix, each.more) for number, each in of_metric]
        is_last = samples[-1][0] == width - 1
        step = max(1, SLICE_LINES // len(samples))
        for at, (labels, values) in enumerate(pieces):
            if is_last:
                pieces[at] = [], []
            for first in range(0, len(labels), step):
                some = slice(first * width, (first + step) * width)
                yield _lines(samples, labels[first : first + step], values[some], width)
                if piece.is_over:
                    await piece.pause()


def _lines(
    samples: Sequence[tuple[int, str, str]], labels: list[str], values: list[float], width: int
) -> bytes:
    """Those of one metric (hot). All samples of a series stand together, as OpenMetrics wants it
    of a histogram. `samples`: (number of the column, name, further labels); `values`: of all
    columns.
    """
    if len(samples) == 1:
        ((number, name, more),) = samples
        column = values[number::width]
        lines = [
            f"{name}{{{text}{more}}} {value}\n" for text, value in zip(labels, column, strict=True)
        ]
    else:
        lines = [
            f"{name}{{{text}{more}}} {values[at + number]}\n"
            for at, text in zip(range(0, len(values), width), labels, strict=True)
            for number, name, more in samples
        ]
    return "".join(lines).encode()


_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def _escape(text: str) -> str:
    return text.translate(_ESCAPED)


def escaped(value: str) -> str:
    """The value of a label, between its quotes (hot)."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.translate(_VALUE_ESCAPED)
    return value
