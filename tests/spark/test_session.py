from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from spark import bill, session
from tests.spark.samples import record, write_archive


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("no such thing", 0),
        ('"" ""', 0),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(text: str, version: int) -> None:
    assert session._major_version(text) == version


def test_without_pyspark_billing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    write_archive(tmp_path, [record(0, messages=1)])
    with pytest.raises(session.SparkUnavailableError, match=r"pip install 'weir-mq\[spark\]'"):
        bill.run("2026-11", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_java_billing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(session, "_java", lambda: None)
    with pytest.raises(session.SparkUnavailableError, match="needs Java 17"):
        session.check_available()


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(session.SparkUnavailableError, match="is version 8"):
        session.check_available()


def test_the_code_hash_covers_both_packages() -> None:
    assert bill.code_sha256() == bill.code_sha256()
    assert len(bill.code_sha256()) == 64
