"""The console's lists of one node with very many topics, and publishing meanwhile.

    python benchmarks/console_row.py [--topics N] [--seconds 20] [--write benchmarks/RESULTS.md]

The node and the publisher are those of `scrape_row`. Measured are the requests that the page of
topics makes: the first page, one in the middle, a search, and each order; how long the answer
takes, and what it takes of a core. Then the publisher by itself, and beside a page that is searched
and sorted twice a second.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import results
from benchmarks.kernel_load import put
from benchmarks.scrape_row import Server, publish, scraping, served
from benchmarks.session import ROOT, circumstances, load_average

ROWS = 100
PAGE_MS_MAX = 200.0
P99_RATIO_MAX = 1.5
RUNS = 20
EVERY_S = 0.5

LISTS = {
    "first page": "",
    "page in the middle": "&after=queue-50000",
    "search": "&search=9999",
    "search that finds nothing": "&search=nowhere",
    "by name, down": "&sort=-name",
    "by ready, down": "&sort=-ready",
    "by groups, down": "&sort=-groups",
}


def paths() -> dict[str, str]:
    """What is asked, by name."""
    return {name: f"/api/v1/topics?limit={ROWS}{query}" for name, query in LISTS.items()}


def measure(server: Server, seconds: float) -> dict[str, float]:
    """See the module's head."""
    found: dict[str, float] = {}
    for name, path in paths().items():
        before_s = server.cpu_s()
        took_s = [server.scrape(path)[0] for _ in range(RUNS)]
        found[f"{name}, ms of a core"] = round((server.cpu_s() - before_s) / RUNS * 1_000, 1)
        found[f"{name}, ms"] = round(median(took_s) * 1_000, 1)
        found[f"{name}, most ms"] = round(max(took_s) * 1_000, 1)
    publish(server.amqp, 2)
    for name, asked in (("alone", []), ("beside a page", list(paths().values()))):
        with scraping(server, asked, EVERY_S):
            took = publish(server.amqp, seconds)
        found[f"publish p50 ms, {name}"] = round(median(took), 2)
        found[f"publish p99 ms, {name}"] = round(quantiles(took, n=100)[98], 2)
    ratio = found["publish p99 ms, beside a page"] / found["publish p99 ms, alone"]
    found["publish p99, ratio"] = round(ratio, 2)
    return found


def bar_of(name: str) -> float | None:
    """What a figure must not be above; None: nothing."""
    if name.endswith(", ms"):
        return PAGE_MS_MAX
    return P99_RATIO_MAX if name.endswith("ratio") else None


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / ".bench" / "console")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--write", type=Path, help="page whose section of the row is renewed")
    options = parser.parse_args()
    before = load_average()
    with served(options.data, options.topics) as server:
        found = measure(server, options.seconds)
    put("console", **found)
    if options.write is not None:
        command = f"python benchmarks/console_row.py --topics {options.topics}"
        title = f"Console: pages of {ROWS} of very many topics, and publishing meanwhile"
        how = circumstances(command, before)
        text = results.figures_section(title, found, bar_of, how)
        results.write(options.write, "console", text)


if __name__ == "__main__":
    main()
