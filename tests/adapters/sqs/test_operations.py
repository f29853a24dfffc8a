"""protocols.yaml says what every action gets: all of them, and nothing that is not so."""

from __future__ import annotations

import re

from adapters.sqs.actions import table as actions
from adapters.sqs.codec.shapes import ACTIONS
from gateway.config.loading import load

LISTED = load(environ={}).settings.protocols["sqs"].operations


def test_the_actions_listed_are_those_there_are() -> None:
    named_like_actions = {name for name in LISTED if re.fullmatch(r"([A-Z][a-z]+)+", name)}
    assert named_like_actions == ACTIONS.keys()


def test_every_action_is_served_and_none_is_listed_as_refused() -> None:
    assert actions.PERFORM.keys() == ACTIONS.keys()
    assert [name for name in ACTIONS if LISTED[name].status == "refused"] == []
