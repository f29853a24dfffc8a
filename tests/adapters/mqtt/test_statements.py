"""Every numbered statement of MQTT 5 is cited by a test here, or named with the part that owns it.

The list below holds the identifiers of MQTT5 appendix B that bind clients, servers and their
transport. What is not ours to keep, or is not kept, stands in ELSEWHERE.
"""

from __future__ import annotations

import re
from pathlib import Path

# Section -> how many statements; gaps in the numbering of the specification are in MISSING.
COUNTS = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2,
    "3.1.2": 30, "3.1.3": 12, "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20,
    "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3, "3.8.1": 1,
    "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6,
    "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2,
    "4.5.0": 2, "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6,
    "4.9.0": 3, "4.12.0": 7, "4.12.1": 2, "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
MISSING = {"2.2.1-1", "3.1.3-10"}

ELSEWHERE = {
    "client": {
        "3.1.2-20", "3.1.2-21", "3.2.2-4", "3.2.2-5", "3.3.2-10", "3.3.4-8", "4.5.0-2", "4.6.0-4",
    },
    # A QoS 2 delivery of a share that breaks off goes to another member instead of waiting for the
    # first one (docs/mqtt.md says so): a lease ends with its connection.
    "deviation": {"4.8.2-5"},
}  # fmt: skip

_ONE = r"\[MQTT-([\d.]+)-(\d+)\]"
# Statements of 3.1.1 have numbers of their own.
_OLDER = re.compile(rf"{_ONE}(?:,\s+{_ONE})*\s+of\s+3\.1\.1")
_RANGE = re.compile(rf"{_ONE}\s+to\s+{_ONE}")


def statements() -> set[str]:
    everything = {
        f"{section}-{number}" for section, count in COUNTS.items() for number in range(1, count + 1)
    }
    return everything - MISSING


def cited() -> set[str]:
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name == Path(__file__).name:
            continue
        text = _OLDER.sub("", path.read_text())
        found |= {f"{section}-{number}" for section, number in re.findall(_ONE, text)}
        for section, first, _, last in _RANGE.findall(text):
            found |= {f"{section}-{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_every_statement_has_a_test_or_an_owner_elsewhere():
    elsewhere = set().union(*ELSEWHERE.values())
    assert statements() - cited() - elsewhere == set()


def test_no_statement_is_cited_that_does_not_exist():
    assert cited() - statements() == set()


def test_what_is_tested_here_has_no_other_owner():
    owners = [identifier for group in ELSEWHERE.values() for identifier in group]
    assert len(owners) == len(set(owners))
    assert set(owners) & cited() == set()
    assert set(owners) <= statements()
