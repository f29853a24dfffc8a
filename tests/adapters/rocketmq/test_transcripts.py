"""Calls of RocketMQ clients as text: transcripts/*.txt. Their words: script.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.rocketmq.script import Script
from tests.adapters.session_script import play_sessions
from tests.transcripts import transcripts


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent), ids=lambda path: path.stem)
def test_a_transcript_says_what_happens(path: Path) -> None:
    play_sessions(path, Script)
