"""`weir bill` rates what a protocol of somebody's own has served, by a price book that names it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from gateway.commands.common.output import CommandError
from gateway.commands.tools.bill import refreshed_archive
from metering.schema import Action, Kind
from spark import bill
from spark.session import SparkUnavailableError, check_available, local_session
from tests.gateway.serving import serving
from tests.line_protocol.test_line_protocol import BOOK, PORT, SETTINGS, TOPIC, trade
from tests.metering.served.reading import records_of, usage_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    try:
        check_available()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    with local_session(cores=2) as session:
        yield session


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server that was killed before it had flushed anything."""
    data = tmp_path_factory.mktemp("bill") / "data"
    with serving(data, PORT, "node.metering.flush_interval_s=3600", config=SETTINGS) as node:
        trade(node)
        node.kill()
    return data


def test_counts_of_an_adapter_that_is_not_named_are_not_exported_under_another_name(
    data: Path,
) -> None:
    with pytest.raises(CommandError, match="no adapter declares origin 200"):
        refreshed_archive(data)
    published = Counter[str]()
    for row in usage_of(records_of(refreshed_archive(data, SETTINGS))):
        if (row.kind, row.action) == (Kind.STORE, Action.PUBLISH):
            published[row.protocol] += row.messages
    assert published == {"line": 3, "amqp": 1}


def test_a_server_that_does_not_know_the_adapter_any_more_says_so(
    data: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    with serving(copy, "node.metering.flush_interval_s=1") as node:
        with node.amqp() as connection:
            connection.channel().basic_publish("", TOPIC, b"so that the topic is counted again")
        said = node.wait_for("counted by number: no adapter of these settings declares it")
        assert said["origin"] == 200


@pytest.mark.spark
def test_a_killed_server_is_billed_for_it_by_the_job(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    book = tmp_path / "book.yaml"
    book.write_text(BOOK)
    archive = refreshed_archive(data, SETTINGS)
    month = f"{datetime.now(UTC):%Y-%m}"
    summary = bill.run(month, archive, tmp_path / "out", book, session=spark)
    # What was pushed has died with the server, in the customer's favour; the log has kept the rest.
    assert (summary.total, summary.problems) == (Decimal(3), ())
