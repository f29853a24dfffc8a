"""Which clients of which gateway are to move: the manager's table, without sockets or clocks."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import pytest

from kernel.cluster.gateway_balance import (
    COOL_DOWN_MS,
    GATEWAYS_MAX,
    HOLD_MS,
    LOADS,
    MOVES_MAX,
    SILENT_MS,
    STAGES,
    Gateways,
    Load,
)
from kernel.cluster.messages import (
    TASKS_MAX,
    UNLIKE_MAX,
    ClientMove,
    ConsumingReport,
    HeartbeatReport,
    Orders,
    Role,
    Task,
    pack,
    unpack,
)
from kernel.common.errors import Code, KernelError

LIMIT = 1_000
HOT_MESSAGES = 2_000


def told(
    name: str,
    clients: dict[str, int] | None = None,
    traffic: int = 0,
    tasks: Collection[Task] = (),
    process: str = "p",
    settings: str = "",
) -> HeartbeatReport:
    there = {"x": 10} if clients is None else clients
    return HeartbeatReport(
        name, process, "host", "1", {"x.tcp": f"{name}:1"}, there, traffic, 0, list(tasks), settings
    )


class Told:
    """Gateways that report every second."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.table = Gateways(limit, HOT_MESSAGES)
        self.now_ms = 0
        self.drained: set[str] = set()

    def second(self, *all_told: HeartbeatReport) -> dict[str, list[ClientMove]]:
        self.now_ms += 1_000
        return {each.name: orders.moves for each, orders in self.orders(*all_told)}

    def orders(self, *all_told: HeartbeatReport) -> list[tuple[HeartbeatReport, Orders]]:
        return [
            (each, self.table.take_report(each, self.drained, self.now_ms)) for each in all_told
        ]

    def stages(self) -> dict[str, str]:
        return {each.name: each.stage for each in self.table.status(self.drained, self.now_ms)}


def moved(moves: list[ClientMove]) -> list[tuple[str, int, str]]:
    return [(each.kind, each.clients, each.listeners["x.tcp"]) for each in moves]


def test_the_tables_name_every_case() -> None:
    assert STAGES.keys() == {(a, b) for a in (False, True) for b in (False, True)}
    assert LOADS.keys() == {(load, over) for load in Load for over in (False, True)}


def test_a_gateway_that_is_drained_spreads_its_clients_over_the_others() -> None:
    found = Told()
    both = {"x": 5, "y": 1}
    found.second(told("a", both), told("b"), told("c"))
    assert set(found.stages().values()) == {"serving"}
    found.drained = {"a"}
    assert found.stages()["a"] == "draining"
    heard = found.second(told("a", both), told("b"), told("c"))
    assert moved(heard["a"]) == [("x", 3, "b:1"), ("x", 2, "c:1"), ("y", 1, "b:1")]
    assert (heard["b"], heard["c"]) == ([], [])
    assert found.second(told("a", {"x": 0}))["a"] == []
    assert found.stages()["a"] == "drained"


def test_a_gateway_is_drained_once_it_tells_so_after_it_has_heard_of_it() -> None:
    found = Told()
    found.second(told("a", {}), told("b"))
    found.drained = {"a"}
    assert found.stages()["a"] == "draining"
    found.second(told("a", {}))
    assert found.stages()["a"] == "draining"
    found.second(told("a", {}))
    assert found.stages()["a"] == "drained"
    found.now_ms += SILENT_MS // 2
    found.second(told("a", {}, process="restarted"))
    assert found.stages()["a"] == "draining"


def test_nobody_moves_to_a_gateway_that_is_silent_or_drained_itself() -> None:
    found = Told()
    found.second(told("a"), told("b"))
    found.drained = {"a", "b"}
    assert found.second(told("a"), told("b")) == {"a": [], "b": []}
    found.drained = {"a"}
    found.now_ms += SILENT_MS
    assert found.second(told("a"))["a"] == []
    assert found.stages() == {"a": "draining"}


def test_a_gateway_hears_which_others_take_clients() -> None:
    found = Told()
    found.orders(told("a", process="p1"), told("b", process="p2"), told("c", process="p3"))
    found.drained = {"b"}
    ((_, heard),) = found.orders(told("a", process="p1"))
    assert (heard.draining, heard.others) == (False, ["p3"])
    ((_, heard),) = found.orders(told("b", process="p2"))
    assert (heard.draining, heard.others) == (True, ["p1", "p3"])
    assert {each.process for each in heard.moves} == {"p1", "p3"}


def test_so_many_clients_and_no_more_are_told_in_a_second() -> None:
    found = Told()
    found.drained = {"a"}
    heard = found.second(told("b"), told("a", {"x": MOVES_MAX - 1, "y": 500}))
    assert [each.clients for each in heard["a"]] == [MOVES_MAX - 1, 1]


def test_what_cannot_be_drained_is_refused() -> None:
    found = Told()
    found.second(told("a"))
    for name, code in (("a", Code.NOT_ALLOWED), ("nobody", Code.NOT_FOUND)):
        with pytest.raises(KernelError) as refused:
            found.table.check_drain(name, set(), found.now_ms)
        assert refused.value.code is code
    with pytest.raises(KernelError, match="no gateway 'nobody' is connected"):
        found.table.check_known("nobody", found.now_ms)
    found.second(told("a"), told("b"))
    found.table.check_drain("a", set(), found.now_ms)
    found.table.check_known("a", found.now_ms)


def test_traffic_above_the_bound_moves_some_clients_once_it_lasts() -> None:
    found = Told()
    seconds = 0
    heard: list[ClientMove] = []
    while not heard:
        seconds += 1
        heard = found.second(
            told("b", traffic=200), told("c", traffic=100), told("a", {"x": 9}, 2_000)
        )["a"]
        assert seconds < 60
    assert seconds * 1_000 >= HOLD_MS
    # As many as it takes for both to have the same: (2000 - 100) / 2 of 2000.
    assert moved(heard) == [("x", 4, "c:1")]
    for _ in range(COOL_DOWN_MS // 1_000 - 1):
        assert found.second(told("b"), told("c"), told("a", {"x": 9}, 2_000))["a"] == []


@pytest.mark.parametrize(
    ("own", "other", "clients"),
    [(LIMIT, 0, 9), (2_000, 1_000, 9), (2_000, 0, 1)],
    ids=["not above", "the other has half as much", "one client would take it along"],
)
def test_traffic_that_moving_would_not_help_moves_nobody(
    own: int, other: int, clients: int
) -> None:
    found = Told()
    for _ in range(30):
        heard = found.second(told("b", traffic=other), told("a", {"x": clients}, own))
        assert heard["a"] == []


def test_a_burst_moves_nobody() -> None:
    found = Told()
    for second in range(60):
        traffic = 5_000 if second % 4 else 0
        assert found.second(told("b"), told("a", traffic=traffic))["a"] == []


HOT = Task(Role.PRODUCE, "acme", "t", "", "", 2 * HOT_MESSAGES)


def first_spread(
    found: Told, produced: Callable[[int], list[Task]], seconds: int = 20
) -> list[ClientMove]:
    """What gateway a, which has 8 consumers of the hot topic, is asked for first. `produced`: at
    the other gateway in each second: who produces, and where, does not matter.
    """
    consumers = Task(Role.CONSUME, "acme", "t", "g", "x", 8)
    for second in range(seconds):
        tasks = produced(second)
        heard = found.second(told("b", tasks=tasks), told("a", tasks=[consumers]))["a"]
        if heard:
            return heard
    return []


def test_consumers_of_a_hot_topic_are_spread() -> None:
    heard = first_spread(Told(0), lambda _second: [HOT])
    assert moved(heard) == [("x", 4, "b:1")]
    assert heard[0].consuming == ConsumingReport("acme", "t", "g")


def test_a_hot_topic_stays_hot_when_its_producers_stop_for_a_second() -> None:
    heard = first_spread(Told(0), lambda second: [HOT] if second % 4 else [])
    assert moved(heard) == [("x", 4, "b:1")]


def test_the_busiest_topics_are_remembered_and_no_more() -> None:
    found = Told(0)

    def produced(second: int) -> list[Task]:
        names = [f"{second}-{number}" for number in range(TASKS_MAX - 1)]
        return [HOT, *(Task(Role.PRODUCE, "acme", name, "", "", 1_000) for name in names)]

    heard = first_spread(found, produced)
    assert moved(heard) == [("x", 4, "b:1")]
    assert len(found.table._known["b"].produced) == TASKS_MAX


def test_a_topic_whose_producers_have_stopped_is_hot_no_more() -> None:
    hot_seconds = HOLD_MS // 1_000 - 1
    assert not first_spread(Told(0), lambda second: [HOT] if second < hot_seconds else [], 40)


def test_consumers_of_a_topic_that_is_not_hot_stay() -> None:
    cool = [
        Task(Role.PRODUCE, "acme", "t", "", "", HOT_MESSAGES // 2),
        # Another tenant's topic of the same name is another one.
        Task(Role.PRODUCE, "other", "t", "", "", 2 * HOT_MESSAGES),
    ]
    assert not first_spread(Told(0), lambda _second: cool, 30)


def test_consumers_of_a_hot_topic_that_are_spread_already_stay() -> None:
    found = Told(0)
    hot = Task(Role.PRODUCE, "acme", "t", "", "", 2 * HOT_MESSAGES)
    many, few = (Task(Role.CONSUME, "acme", "t", "g", "x", amount) for amount in (4, 3))
    for _ in range(30):
        heard = found.second(told("b", tasks=[hot, few]), told("a", tasks=[many]))
        assert heard == {"a": [], "b": []}


@pytest.mark.parametrize(
    ("words", "unlike"),
    [
        ({"a": "w", "b": "w"}, {"a": [], "b": []}),
        ({"a": "w", "b": "v"}, {"a": ["b"], "b": ["a"]}),
        ({"a": "w", "b": "v", "c": "w"}, {"a": ["b"], "b": ["a", "c"], "c": ["b"]}),
        ({"a": "w", "b": "v", "c": "u"}, {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}),
        # An older gateway tells nothing: it is compared with none.
        ({"a": "w", "b": "", "c": "w"}, {"a": [], "b": [], "c": []}),
    ],
)
def test_a_gateway_hears_which_others_have_other_settings(
    words: dict[str, str], unlike: dict[str, list[str]]
) -> None:
    found = Told()
    everybody = [told(name, settings=word) for name, word in words.items()]
    found.second(*everybody)
    heard = {each.name: orders for each, orders in found.orders(*everybody)}
    assert {name: orders.unlike for name, orders in heard.items()} == unlike
    assert {name: orders.unlike_count for name, orders in heard.items()} == {
        name: len(others) for name, others in unlike.items()
    }
    shown = found.table.status(found.drained, found.now_ms)
    assert {each.name: each.unlike for each in shown} == unlike
    assert {each.name: each.settings for each in shown} == words


def test_a_gateway_that_is_drained_is_compared_and_one_that_is_gone_is_not() -> None:
    found = Told()
    found.second(told("a", settings="w"), told("b", settings="v"))
    found.drained = {"b"}
    ((_, heard),) = found.orders(told("a", settings="w"))
    assert heard.unlike == ["b"]
    found.now_ms += SILENT_MS + 1
    ((_, heard),) = found.orders(told("a", settings="w"))
    assert (heard.unlike, heard.unlike_count) == ([], 0)


def test_so_many_gateways_of_other_settings_are_named_and_the_rest_are_counted() -> None:
    found = Told()
    found.second(*(told(f"g{number:02}", settings="v") for number in range(UNLIKE_MAX + 5)))
    ((_, heard),) = found.orders(told("a", settings="w"))
    assert heard.unlike == [f"g{number:02}" for number in range(UNLIKE_MAX)]
    assert heard.unlike_count == UNLIKE_MAX + 5
    assert unpack(pack(heard)[0], Orders) == heard


def test_what_an_older_gateway_tells_and_an_older_manager_answers_is_understood() -> None:
    older = msgspec.msgpack.decode(pack(told("a"))[0])[:-1]
    assert unpack(msgspec.msgpack.encode(older), HeartbeatReport) == told("a")
    answer = Orders(False, [], ["p"])
    older = msgspec.msgpack.decode(pack(answer)[0])[:-2]
    assert unpack(msgspec.msgpack.encode(older), Orders) == answer


def test_two_processes_of_one_name_are_not_taken_for_one() -> None:
    found = Told()
    found.second(told("a"))
    with pytest.raises(KernelError) as refused:
        found.second(told("a", process="another"))
    assert refused.value.code is Code.ALREADY_EXISTS
    found.now_ms += SILENT_MS // 2
    found.second(told("a", process="another"))


def test_more_gateways_than_there_can_be_are_refused() -> None:
    found = Told()
    found.second(*(told(f"g{number}") for number in range(GATEWAYS_MAX)))
    with pytest.raises(KernelError) as refused:
        found.table.take_report(told("one more"), (), found.now_ms)
    assert refused.value.code is Code.LIMIT_EXCEEDED
