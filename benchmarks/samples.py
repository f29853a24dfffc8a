"""Repeated measurements of one figure: their median and how far they spread."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one figure in the rounds that count, in the order of the rounds.

    A round that did not count is None, so that two sides' rounds stay side by side.
    """

    values: tuple[float | None, ...] = ()

    @property
    def valid(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def median(self) -> float | None:
        return statistics.median(self.valid) if self.valid else None

    def over(self, other: Sample) -> Sample:
        """The ratio of each round in which both sides count."""
        return Sample(
            tuple(
                left / right if left is not None and right else None
                for left, right in zip(self.values, other.values, strict=False)
            )
        )

    def text(self) -> str:
        """Median (least..most), or a dash when no round counts."""
        if self.median is None:
            return "–"
        if len(self.valid) == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(min(self.valid))}..{number(max(self.valid))})"


def number(value: float) -> str:
    """Three significant digits, or whole thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"
