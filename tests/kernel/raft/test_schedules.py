"""Our core under random schedules: every rule of `invariants` after every event, then agreement.

A failing seed is a schedule: run it again by its number.
"""

from __future__ import annotations

from collections import Counter

from .simulation import Simulation

SEEDS = 150
EVENTS = 600


def test_no_schedule_breaks_a_rule_and_all_end_in_agreement() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SEEDS):
        simulation = Simulation(seed)
        try:
            for _ in range(EVENTS):
                simulation.event()
            simulation.settle()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        happened += simulation.happened
    for what in ("conflicts", "snapshots", "changes", "joint", "reads", "loaded", "writes lost"):
        assert happened[what] >= 50, f"{what}: {happened}"
