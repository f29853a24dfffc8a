"""`make chaos`: `python -m tests.chaos --rounds 20 --seed 1`; `--help` tells the rest."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign, report
from tests.chaos.clients.lanes import LANES, USUAL
from tests.chaos.growing import Growing
from tests.chaos.plan import Kind, plan
from tests.chaos.processes import ChaosError
from tests.chaos.site import Cluster, Node, can_mount

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
    sites = parser.add_mutually_exclusive_group()
    sites.add_argument("--node", action="store_true", help="one `weir serve`, no cluster")
    sites.add_argument("--five", action="store_true", help="five stores, and changes of them")
    parser.add_argument("--lanes", nargs="+", default=None, choices=list(LANES))
    parser.add_argument("--only", nargs="+", default=[], choices=[kind.name for kind in Kind])
    parser.add_argument("--election-timeout-ms", type=int, default=ELECTION_TIMEOUT_MS)
    parser.add_argument("--keep", type=Path, default=None, help="an empty directory for all files")
    return parser.parse_args()


def main() -> int:
    given = options()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    again = f"python -m tests.chaos --rounds {given.rounds} --seed {seed}"
    again += " --node" * given.node
    again += " --five" * given.five
    again += f" --lanes {' '.join(given.lanes or ())}" * (given.lanes is not None)
    lanes = given.lanes or list(LANES if given.five else USUAL)
    again += f" --only {' '.join(given.only)}" * bool(given.only)
    timeout_ms = given.election_timeout_ms
    again += f" --election-timeout-ms {timeout_ms}" * (timeout_ms != ELECTION_TIMEOUT_MS)
    with tempfile.TemporaryDirectory(prefix="weir-chaos-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        kind_of_site = Node if given.node else Growing if given.five else Cluster
        site = kind_of_site(folder, given.election_timeout_ms)
        kinds = [kind for kind in site.kinds if not given.only or kind.name in given.only]
        small = type(site) is Cluster
        if small and not can_mount():
            say("NOT DONE: full disk: this user may not mount a small file system")
        campaign = Campaign(site, folder, lanes, given.election_timeout_ms, say)
        say(f"seed {seed}, {given.rounds} rounds")
        try:
            if isinstance(site, Cluster) and small and can_mount():
                site.mount_small_disk()
            pause_max = ELECTIONS * 2 * given.election_timeout_ms / 1_000
            rounds = plan(seed, given.rounds, kinds, site.data_groups)
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
