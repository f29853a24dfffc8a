"""Two seeds of the cluster simulator, and bugs put in on purpose (`make sim`, `make mutants`).

`make test` runs 400 seeds beside the tests.
"""

from __future__ import annotations

import pytest

from kernel.broker.delivery import fairness
from kernel.store import entry_reader as reader
from kernel.store.space import housekeeper
from tests.simulator.mutants import QUICK, hunt
from tests.simulator.swarm.run import Run


@pytest.mark.parametrize("seed", [1, 2])
def test_every_invariant_holds_in_a_seed(seed: int) -> None:
    outcome = Run(seed, 2_000).go()
    assert not outcome.broken
    assert not outcome.crash
    assert outcome.events >= 2_000


def test_what_a_run_changes_of_the_product_is_as_before_when_it_is_over() -> None:
    """Else what a test comes to depends on which others are collected with it."""
    before = fairness.NOISY_IN_FLIGHT, reader.PAUSES_SECONDS, housekeeper.CHECKPOINT_SECONDS
    assert before == (30, (1.0, 2.0, 4.0, 8.0), 10)
    Run(1, 10).go()
    after = fairness.NOISY_IN_FLIGHT, reader.PAUSES_SECONDS, housekeeper.CHECKPOINT_SECONDS
    assert after == before


def test_a_seed_repeats_itself() -> None:
    first, second = Run(4, 800).go(), Run(4, 800).go()
    assert (first.events, first.notes, first.counters) == (
        second.events,
        second.notes,
        second.counters,
    )


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_put_in_on_purpose_is_found_by_an_invariant(name: str) -> None:
    seed, invariant = hunt(name, 20, 2_000)
    assert seed, "it lives"
    assert invariant
