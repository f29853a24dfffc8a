"""What the kernel promises, as text: transcripts/*.txt. Their commands: script.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.broker.script import Script
from tests.simulator.world import World
from tests.transcripts import play, transcripts


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent), ids=lambda path: path.stem)
def test_a_transcript_says_what_happens(path: Path) -> None:
    with World() as world:
        play(path, Script(world).run, world.run)
