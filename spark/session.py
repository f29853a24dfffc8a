"""The Spark session of the billing jobs, with every setting that a bill depends on.

Needs the extra `spark`: pyspark, pandas < 3, pyarrow, and a Java for where there is none (`java`).
On a cluster the same settings come in through `apply_settings`, whatever spark-submit was given.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark.java import JavaUnavailableError, find_java, java_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# What decides values. Hours are of UTC; an overflow is an error and not a null; a decimal result
# that needs more than 38 digits is an error and not a rounded number.
VALUE_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# One machine with a few cores. More partitions than cores only cost scheduling
# (docs/design/billing.md).
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Success markers and summary files in a run's directory say nothing that its rename does not.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

# Below some hundred thousand rows the job is done before the JVM's second compiler and Spark's
# generated code have paid for themselves: both are left out, and it takes half the time.
QUICK_ROWS_MAX = 300_000
_QUICK_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


class SparkUnavailableError(RuntimeError):
    """pyspark or Java is missing; the message says which, and what to do."""


def check_available() -> None:
    """Raises SparkUnavailableError unless a session can be opened here."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailableError(
            "billing needs pyspark: pip install 'weir-mq[spark]' (500 MB to download)"
        )
    try:
        find_java()
    except JavaUnavailableError as error:
        raise SparkUnavailableError(str(error)) from error


@contextmanager
def local_session(
    *, cores: int = 2, driver_memory: str = "1g", quick: bool = True
) -> Iterator[SparkSession]:
    """A session of this process, stopped on leaving.

    Raises SparkUnavailableError. `quick` is for small jobs (see QUICK_ROWS_MAX).
    """
    check_available()
    from pyspark.sql import SparkSession

    # Workers and driver take the interpreter and the address that run here, whatever a shim or
    # the host's own name would say.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local[{cores}]").appName("weir bill")
    builder = builder.config("spark.driver.memory", driver_memory)
    profile = _QUICK_SETTINGS if quick else {}
    for name, value in {**VALUE_SETTINGS, **_LOCAL_SETTINGS, **profile}.items():
        builder = builder.config(name, value)
    with java_home():
        session = builder.getOrCreate()
    # What a job dies of is raised here: the JVM need not print its stack as well.
    session.sparkContext.setLogLevel("FATAL")
    try:
        yield session
    finally:
        session.stop()


def apply_settings(session: SparkSession) -> None:
    """Give a session that someone else opened the settings that decide values."""
    for name, value in VALUE_SETTINGS.items():
        session.conf.set(name, value)
