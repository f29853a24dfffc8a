"""protocols.yaml says what every action gets: all of them, and nothing that is not so."""

from __future__ import annotations

import re

import pytest

from adapters.sqs import actions, errors
from adapters.sqs.environment import Context
from adapters.sqs.errors import SqsError
from adapters.sqs.shapes import ACTIONS
from gateway.config import load

LISTED = load(environ={}).settings.protocols["sqs"].operations
REFUSE = actions.PERFORM["StartMessageMoveTask"]


def test_the_actions_listed_are_those_there_are() -> None:
    named_like_actions = {name for name in LISTED if re.fullmatch(r"([A-Z][a-z]+)+", name)}
    assert named_like_actions == ACTIONS.keys()


@pytest.mark.parametrize("name", ACTIONS)
async def test_an_action_is_refused_where_the_list_says_so_and_with_that_error(name: str) -> None:
    entry, perform = LISTED[name], actions.PERFORM[name]
    assert (perform is REFUSE) == (entry.status == "refused")
    if perform is REFUSE:
        context = Context(None, None, name, None, None, None)
        with pytest.raises(SqsError, match=name) as caught:
            await perform(context, None)
        kind = caught.value.kind
        assert kind is errors.UNSUPPORTED_OPERATION
        assert entry.error == f"{kind.status} {kind.code}"
