"""What adapters declare of topics and groups made by hand, whoever they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.base import Declaration, TopicTypes
from gateway.admin.resources.declared_shapes import DeclaredShapes
from gateway.config.declared import declared_in
from gateway.config.loading import load
from kernel.api.changes import PutTopic
from kernel.api.model import GroupOptions, Start, TopicId, TopicInfo, TopicKind, TopicOptions
from kernel.common.errors import Code, KernelError

STREAM = TopicOptions(kind=TopicKind.STREAM)
SHIPPED = load(environ={}).settings.protocols


def never(_services: Any) -> Any:
    raise AssertionError("a declaration alone is asked for nothing")


class Few:
    """Groups of a protocol that tries twice."""

    def options(self, topic: TopicInfo, group: str) -> GroupOptions:
        return GroupOptions(attempts_max=2)

    def dead_letters(self, tenant: str, group: str) -> PutTopic | None:
        return None


def typed(options: TopicOptions, word: str) -> TopicOptions:
    declarations = {**options.declarations, "line": word.encode()}
    return msgspec.structs.replace(options, declarations=declarations)


def word_of(options: TopicOptions) -> str | None:
    word = options.declarations.get("line")
    return None if word is None else word.decode()


LINE = Declaration(
    name="line",
    title="the line protocol",
    origin=200,
    make=never,
    topic_types=lambda: TopicTypes(words=("fifo", "loud"), typed=typed, word=word_of),
    group_defaults=lambda _settings: Few(),
)


def shapes(*, shipped: bool) -> DeclaredShapes:
    declared = declared_in(SHIPPED) if shipped else {}
    settings: dict[str, Any] = {**SHIPPED, "line": SHIPPED["amqp"]}
    return DeclaredShapes({**declared, "line": LINE}, settings)


def topic(options: TopicOptions) -> TopicInfo:
    return TopicInfo("default", "t", TopicId(1), 1, options, (), {})


def test_a_type_is_told_to_every_adapter_that_knows_it() -> None:
    all_of_them = shapes(shipped=True)
    assert all_of_them.typed(STREAM, "fifo").declarations == {"rocketmq": b"fifo", "line": b"fifo"}
    assert all_of_them.typed(STREAM, "loud").declarations == {"line": b"loud"}
    assert all_of_them.typed(STREAM, "normal").declarations == {"rocketmq": b"normal"}
    assert shapes(shipped=False).typed(STREAM, "normal").declarations == {}


def test_a_topic_has_the_type_that_an_adapter_reads_there() -> None:
    line = shapes(shipped=True)
    assert line.type_of(topic(line.typed(STREAM, "loud"))) == "loud"
    assert line.type_of(topic(line.typed(STREAM, "delay"))) == "delay"
    assert line.type_of(topic(STREAM)) == "normal"
    assert line.type_of(topic(TopicOptions(declarations={"line": b"loud"}))) == "work"


@pytest.mark.parametrize(
    ("word", "spelled", "says"),
    [
        ("other", {}, "there are normal, fifo, delay, transaction, priority, loud, work"),
        ("loud", {"line": False}, "only the line protocol's clients know the type loud"),
        ("fifo", {"line": False, "rocketmq": False}, "only RocketMQ and the line protocol's"),
        ("fifo", {"line": False, "rocketmq": True}, None),
        ("fifo", {"amqp": False}, None),
        ("normal", {"line": False}, None),
        ("work", {"line": False}, None),
    ],
)
def test_a_type_that_nobody_could_use_is_refused(
    word: str, spelled: dict[str, bool], says: str | None
) -> None:
    if says is None:
        shapes(shipped=True).check(word, spelled)
        return
    with pytest.raises(KernelError, match=says) as caught:
        shapes(shipped=True).check(word, spelled)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_the_first_adapter_that_has_defaults_says_what_groups_get() -> None:
    given = shapes(shipped=True).groups.options(topic(STREAM), "g")
    assert (given.start, given.attempts_max) == (Start.EARLIEST, 17)
    assert shapes(shipped=False).groups.options(topic(STREAM), "g").attempts_max == 2
    nobody = DeclaredShapes({}, {}).groups
    assert nobody.options(topic(STREAM), "g") == GroupOptions(start=Start.EARLIEST)
    assert nobody.dead_letters("default", "g") is None
