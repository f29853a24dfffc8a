"""The billing job of one period, as an application of Spark.

`spark-submit jobs/bill.py --period 2026-11 --metering DIR --out DIR` runs it on a cluster whose
machines share these directories; `weir bill` runs the same (`run_tables`) in one process.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark import bill


def main(arguments: list[str]) -> int:
    """The entry of spark-submit: bills a period in the session that it opened. Exit code 1 if it
    could not, or if the summary lists problems.
    """
    parser = argparse.ArgumentParser(prog="bill")
    parser.add_argument("--period", required=True, help="a month, such as 2026-11")
    parser.add_argument("--metering", required=True, type=Path, help="the metering archive")
    parser.add_argument("--out", required=True, type=Path, help="where the run's tables go")
    parser.add_argument("--price-book", type=Path, help="YAML; Weir's own unless given")
    parser.add_argument("--head", default="", help="the manifest's head, as an export told it")
    options = parser.parse_args(arguments)
    try:
        session = SparkSession.builder.appName("weir bill").getOrCreate()
        # What goes wrong is said below, once, and without the JVM's stack.
        session.sparkContext.setLogLevel("FATAL")
        summary = bill.run(
            options.period,
            options.metering,
            options.out,
            options.price_book,
            session=session,
            head=options.head,
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, its first line is what helps
        sys.stderr.write(f"error: {bill.one_line(error)}\n")
        return 1
    sys.stdout.write(summary.to_json())
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
