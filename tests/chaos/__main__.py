"""`make chaos`: `python -m tests.chaos --rounds 20 --seed 1`; `--help` tells the rest."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign, report
from tests.chaos.clients.lanes import LANES
from tests.chaos.plan import Kind, plan
from tests.chaos.processes import ChaosError
from tests.chaos.site import DATA_GROUPS, Cluster, Node, can_mount

ELECTION_TIMEOUT_MS = 1_500
"""The product's default. An election is called after so long up to twice as long."""

ELECTIONS = 2
"""Publishers go on within so many of the longest election timeouts."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--node", action="store_true", help="one `weir serve`, no cluster")
    parser.add_argument("--lanes", nargs="+", default=list(LANES), choices=list(LANES))
    parser.add_argument("--only", nargs="+", default=[], choices=[kind.name for kind in Kind])
    parser.add_argument("--election-timeout-ms", type=int, default=ELECTION_TIMEOUT_MS)
    parser.add_argument("--keep", type=Path, default=None, help="an empty directory for all files")
    return parser.parse_args()


def main() -> int:
    given = options()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    again = f"python -m tests.chaos --rounds {given.rounds} --seed {seed}"
    again += " --node" * given.node
    again += f" --lanes {' '.join(given.lanes)}" * (given.lanes != list(LANES))
    again += f" --only {' '.join(given.only)}" * bool(given.only)
    timeout_ms = given.election_timeout_ms
    again += f" --election-timeout-ms {timeout_ms}" * (timeout_ms != ELECTION_TIMEOUT_MS)
    with tempfile.TemporaryDirectory(prefix="weir-chaos-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        site = (Node if given.node else Cluster)(folder, given.election_timeout_ms)
        kinds = [kind for kind in site.kinds if not given.only or kind.name in given.only]
        if not given.node and not can_mount():
            say("NOT DONE: full disk: this user may not mount a small file system")
        campaign = Campaign(site, folder, given.lanes, given.election_timeout_ms, say)
        say(f"seed {seed}, {given.rounds} rounds")
        try:
            if isinstance(site, Cluster) and can_mount():
                site.mount_small_disk()
            pause_max = ELECTIONS * 2 * given.election_timeout_ms / 1_000
            rounds = plan(seed, given.rounds, kinds, DATA_GROUPS)
            outcome = campaign.run(rounds, pause_max=pause_max)
        except (ChaosError, KeyboardInterrupt) as error:
            say(f"BROKEN OFF: {error}")
            say(f"again: {again}")
            return 1
        finally:
            site.stop()
        report(outcome, again, say)
        return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main())
