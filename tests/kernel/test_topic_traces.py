"""Records of traced topics, once their topic is gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kernel.api.tracing import TraceMode
from kernel.broker.tracing import TraceBuffer
from kernel.definitions.topic_records import VOID_MS
from kernel.definitions.topic_traces import TopicTraced, decode, encode, key_of, name_of_key
from kernel.definitions.tracing import Tracing
from kernel.requests.client_trace import ClientTrace

if TYPE_CHECKING:
    from collections.abc import Coroutine


def test_a_key_has_any_name_and_a_record_that_does_not_read_is_none() -> None:
    key = key_of("acme/x", "a b/ü")
    assert name_of_key(key) == ("acme/x", "a b/ü")
    assert name_of_key("traces/one") is None
    value = encode(TopicTraced(7, TraceMode.SAMPLE))
    assert decode(value) == TopicTraced(7, TraceMode.SAMPLE)
    for wrong in (b"", b"\xc1", value[:-2], encode(TopicTraced(7, TraceMode.ALL))[:-3] + b"new"):
        assert decode(wrong) is None


def test_the_record_of_a_topic_that_is_gone_is_removed_in_a_while() -> None:
    made: list[Any] = []
    now = [0]
    topics: dict[tuple[str, str], Any] = {("t", "q"): SimpleNamespace(id=7)}

    async def administer(change: Any) -> None:
        made.append(change)

    def run(work: Coroutine[object, object, object]) -> None:
        asyncio.run(cast("Any", work))

    store = SimpleNamespace(
        replicas=list, home_groups=[1], serving=lambda _group: object(), transient=None
    )
    client = ClientTrace(TraceBuffer(), int)
    tracing = Tracing(cast("Any", store), topics.get, administer, lambda: now[0], run, client)
    key = key_of("t", "q")
    tracing.record_changed(key, (3, encode(TopicTraced(7, TraceMode.ALL))))
    assert client.modes == {7: TraceMode.ALL}
    for now[0] in (1, 2 * VOID_MS):
        tracing.look()
    assert not made
    topics["t", "q"] = SimpleNamespace(id=8)  # the next of the name
    tracing.look()
    now[0] += VOID_MS - 1
    tracing.look()
    assert not made
    now[0] += 1
    tracing.look()
    assert [(each.key, each.value, each.expected) for each in made] == [(key, None, 3)]
    tracing.record_changed(key, None)
    now[0] += 2 * VOID_MS
    tracing.look()
    assert len(made) == 1
