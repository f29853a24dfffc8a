"""One Spark session for all tests that need one: starting it costs more than using it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark.session import SparkUnavailableError, check_available, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        check_available()
    except SparkUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI has to run the Spark tests: {error}")
        pytest.skip(str(error))
    with local_session(cores=2) as session:
        yield session
