"""A billing period: one calendar month of UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

_TEXT = re.compile(r"(\d{4})-(\d{2})")


class PeriodError(ValueError):
    """Not a month."""


def day_start_us(day: date) -> int:
    """Microseconds since 1970 at which a day of UTC begins."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return int(start.timestamp()) * 1_000_000


@dataclass(frozen=True, slots=True)
class Period:
    """The days [first, end), from the first of a month to the first of the next."""

    first: date
    end: date

    @classmethod
    def parse(cls, text: str) -> Period:
        """The period named "2026-11". Raises PeriodError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= 12 or not 1970 <= int(match[1]) < 9999:
            raise PeriodError(f"{text!r} is no month: write it as 2026-11")
        year, month = int(match[1]), int(match[2])
        return cls(date(year, month, 1), date(year + month // 12, month % 12 + 1, 1))

    def __str__(self) -> str:
        return f"{self.first:%Y-%m}"

    @property
    def start_us(self) -> int:
        return day_start_us(self.first)

    @property
    def end_us(self) -> int:
        return day_start_us(self.end)
