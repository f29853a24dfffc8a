"""How unpleasant a run is. Swarm style: each run has levels of its own, many of them zero."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

FAULTS = (
    *("cut", "cut_one_way", "halves", "bridge", "noise"),
    *("kill", "power", "power_in_write", "sync_error", "no_space", "stall"),
    *("clock", "transfer", "members", "flip"),
)

ALONE_EACH = 10
"""Each so many-th seed is of a store alone: nobody else has what its disk loses."""

PLACED_SHARE = 0.4
"""Of the runs that begin with all features on: a replica that is given up takes one of them."""

HOLD_SHARE = 0.3
"""Of all runs: stores hold what they commit, as for a backup."""

FAULTS_ALONE = frozenset({"kill", "power", "power_in_write", "sync_error", "no_space", "stall"})
"""What else may happen to one: the others are of a network, and of clocks that a majority knows to
be wrong.
"""


@dataclass(frozen=True, slots=True)
class Levels:
    """Of one run."""

    nodes: int
    loss: float
    repeat: float
    reorder: float
    """Share of messages that others overtake, or that overtake them."""
    delay_s_max: float
    write_s: float
    """How long a write takes at most."""
    pause_s: float
    """Mean time between two things that clients do."""
    fault_share: float
    """How much of what happens is a fault."""
    faults: dict[str, float]
    """Weight of each kind of fault."""
    body_bytes_max: int
    checkpoint_s: int
    recent_bytes: int
    patience: float
    """Share of deliveries that a consumer keeps until they run out."""
    old: bool
    """It begins with builds that understand no feature of the log: they are replaced while it runs,
    and all features turned on then."""
    placed: bool = False
    """There are more machines than replicas, and a planner says where these are to be."""


def levels_of(seed: int) -> Levels:
    """The levels of a seed."""
    levels = _levels_of(seed)
    apart = random.Random(seed + 8)  # so that other runs stay as they are
    if apart.random() < HOLD_SHARE:
        faults = {**levels.faults, "hold": apart.uniform(0.5, 3)}
        share = max(0.02, levels.fault_share)
        return replace(levels, faults=faults, fault_share=share)
    return levels


def _levels_of(seed: int) -> Levels:
    chance = random.Random(seed)
    faults = {name: chance.uniform(0.2, 3) for name in FAULTS if chance.random() < 0.55}
    levels = Levels(
        nodes=5 if chance.random() < 0.3 else 3,
        loss=chance.choice((0, 0, 0.01, 0.05)),
        repeat=chance.choice((0, 0, 0.02, 0.1)),
        reorder=chance.choice((0, 0, 0.05, 1)),
        delay_s_max=chance.choice((0.005, 0.02, 0.1)),
        write_s=chance.choice((0.002, 0.01, 0.05)),
        pause_s=chance.choice((0.01, 0.03)),
        fault_share=chance.choice((0.005, 0.02, 0.04)) if faults else 0.0,
        faults=faults,
        body_bytes_max=chance.choice((60, 600, 3_000)),
        checkpoint_s=chance.choice((2, 4)),
        recent_bytes=chance.choice((4_000, 40_000)),
        patience=chance.choice((0, 0.1, 0.3)),
        old=chance.random() < 0.5,
    )
    if seed % ALONE_EACH and not levels.old:
        more = random.Random(seed + 7)  # apart, so that other runs stay as they are
        if more.random() < PLACED_SHARE:
            return replace(levels, nodes=more.choice((4, 5, 6, 8)), placed=True)
    if seed % ALONE_EACH:
        return levels
    kept = {name: weight for name, weight in faults.items() if name in FAULTS_ALONE}
    faults = {**kept, "bad_entry": 1.0 + sum(kept.values())}
    return replace(levels, nodes=1, fault_share=max(0.02, levels.fault_share), faults=faults)
