"""The adapter's small parts: tables, the wheel, notes, options, overlapping filters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.mqtt.access.refusals import AUTH_REASONS, KERNEL_REASONS
from adapters.mqtt.access.sign_in import StoreSignIn
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.reason_codes import ALLOWED, ReasonCode, carried_by, v3_return_code
from adapters.mqtt.codec.topic_filter import parse_filter
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery import copies, notes
from adapters.mqtt.delivery.inbox import RecentUids
from adapters.mqtt.delivery.notes import DeliveryProgress
from adapters.mqtt.environment import Login
from adapters.mqtt.limits import RECENT_UIDS_MAX
from adapters.mqtt.subscriptions.subscription import Options, decode_options, overlaps
from adapters.mqtt.transport.wheel import TimingWheel
from auth.errors import AuthCode, AuthError
from kernel.common.errors import Code
from tests.adapters.mqtt.broker import serving

ANSWERS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.SUBACK, PacketType.UNSUBACK)


def test_every_kernel_error_has_a_reason_code_that_its_packets_can_carry() -> None:
    assert KERNEL_REASONS.keys() == set(Code)
    for reason in KERNEL_REASONS.values():
        assert reason >= ReasonCode.UNSPECIFIED_ERROR
        for packet in (*ANSWERS, PacketType.CONNACK, PacketType.DISCONNECT):
            assert carried_by(packet, reason) in ALLOWED[packet]
            assert carried_by(packet, reason) >= ReasonCode.UNSPECIFIED_ERROR


def test_every_sign_in_error_has_a_code_for_both_versions() -> None:
    assert AUTH_REASONS.keys() == set(AuthCode)
    for reason in AUTH_REASONS.values():
        assert reason in ALLOWED[PacketType.CONNACK]
        assert v3_return_code(reason) is not None


# --- The wheel ------------------------------------------------------------------------------


class Entry:
    wheel_tick = 0


def test_an_entry_comes_up_once_at_its_deadline() -> None:
    wheel: TimingWheel[Entry] = TimingWheel(1_000, 5_500)
    entry = Entry()
    wheel.put(entry, 7_200)
    assert wheel.due(6_999) == []
    assert wheel.due(7_999) == []
    assert wheel.due(8_000) == [entry]
    assert wheel.due(20_000) == []
    wheel.put(entry, 1_000)
    assert wheel.due(21_000) == [entry]


def test_an_entry_that_moves_or_goes_comes_up_at_no_other_time() -> None:
    wheel: TimingWheel[Entry] = TimingWheel(1_000, 0)
    entry, other = Entry(), Entry()
    wheel.put(entry, 2_000)
    wheel.put(entry, 9_000)
    wheel.put(other, 2_000)
    wheel.remove(other)
    wheel.remove(other)
    assert wheel.due(9_000) == []
    assert wheel.due(10_000) == [entry]
    assert wheel._slots == {}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(1, 5_000)), max_size=30))
def test_nobody_is_forgotten_or_early(steps: list[tuple[int, int]]) -> None:
    wheel: TimingWheel[Entry] = TimingWheel(1_000, 0)
    now = 0
    waiting: dict[Entry, int] = {}
    for deadline, pause in steps:
        entry = Entry()
        wheel.put(entry, now + deadline)
        waiting[entry] = now + deadline
        now += pause
        for found in wheel.due(now):
            assert waiting.pop(found) <= now
        assert all(now - late < 2_000 for late in waiting.values())
    found = wheel.due(now + 60_000)
    assert set(found) == set(waiting)


# --- Notes and options ----------------------------------------------------------------------


def test_notes_are_read_as_they_were_written() -> None:
    changes = [
        notes.received(1, 5 << 32 | 7),
        notes.received(0x716F, 9),
        notes.delivery(2, DeliveryProgress.EXACTLY_ONCE, 1 << 40, 3),
        notes.delivery(0x6971, DeliveryProgress.RELEASED, 4, 1 << 47),
        notes.delivery(3, DeliveryProgress.AT_LEAST_ONCE, 5, 6, (1 << 63, 8)),
        (notes.LIVE_SUBSCRIPTION + b"a/#", b"x"),
        (notes.TOPIC_MEMBERSHIP + b"$share/g/t", b"y"),
    ]
    kept = {key: value for key, value in changes if value is not None}
    assert len(kept) == len(changes)
    assert notes.received_of(kept) == {1: 5 << 32 | 7, 0x716F: 9}
    assert notes.deliveries_of(kept) == [
        notes.Delivery(2, DeliveryProgress.EXACTLY_ONCE, 1 << 40, 3),
        notes.Delivery(0x6971, DeliveryProgress.RELEASED, 4, 1 << 47),
        notes.Delivery(3, DeliveryProgress.AT_LEAST_ONCE, 5, 6, (1 << 63, 8)),
    ]
    assert notes.subscriptions_of(kept, notes.LIVE_SUBSCRIPTION) == {"a/#": b"x"}
    assert notes.subscriptions_of(kept, notes.TOPIC_MEMBERSHIP) == {"$share/g/t": b"y"}
    assert notes.released(1)[0] == changes[0][0]
    assert notes.delivered(2)[0] == changes[2][0]


def test_options_are_read_as_they_were_written() -> None:
    flags = (False, True)
    for qos, local, retain, uid in itertools.product((0, 1, 2), flags, flags, flags):
        options = Options(qos, local, retain, 268_435_455, uid)
        assert decode_options(options.encoded()) == options


NAMES = ["a", "b", "a/b", "b/a", "a/a", "a/b/c", "", "/", "a/", "/a", "$s", "$s/a"]
FILTERS = ["a", "a/b", "+", "#", "a/+", "+/b", "a/#", "+/+", "+/#", "a/b/#", "/", "+/", "$s/#"]


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.combinations_with_replacement(FILTERS, 2))
)
def test_filters_overlap_if_a_name_falls_under_both(one: str, other: str) -> None:
    left, right = parse_filter(one), parse_filter(other)
    assert overlaps(left, right) == overlaps(right, left)
    if any(left.matches(name) and right.matches(name) for name in NAMES):
        assert overlaps(left, right)
    if overlaps(left, right):
        assert _both(left.levels, right.levels) or "$" in one + other


def _both(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of all names of up to four levels of a, b and c falls under both."""
    left, right = parse_filter("/".join(one)), parse_filter("/".join(other))
    return any(
        left.matches(name) and right.matches(name)
        for length in range(1, 5)
        for name in map("/".join, itertools.product(("a", "b", "c", ""), repeat=length))
        if name
    )


def test_shares_overlap_with_nothing() -> None:
    shared = parse_filter("$share/g/a/#")
    assert not overlaps(shared, parse_filter("a/#"))
    assert not overlaps(shared, shared)


def test_only_so_many_uids_are_remembered() -> None:
    recent = RecentUids()
    for number in range(RECENT_UIDS_MAX + 1):
        assert recent.is_new((0, number))
    assert not recent.is_new((0, RECENT_UIDS_MAX))
    assert not recent.is_new((0, 1))
    assert recent.is_new((0, 0))


def test_copies_are_settled_with_the_first_one_and_only_so_many_are_held_without_credit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIES_HELD_MAX", 2)
    held, uid = copies.Copies(), (1, 2)
    assert uid not in held
    held.begin(uid, 10)
    assert uid in held
    assert held.uid_of(10) == uid
    assert [held.hold(uid, token) for token in (20, 30, 40)] == [True, True, False]
    assert held.uid_of(20) is None
    assert held.end(20) == ()
    assert held.end(10) == [20, 30, 40]
    assert [held.returns_credit() for _ in range(3)] == [False, False, True]
    assert uid not in held
    assert held.end(10) == ()


# --- Metering ---------------------------------------------------------------------------------


class Meter:
    """`TrafficMeter` that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple] = []

    def delivery_counter(self, tenant, topic, group, queue_class="standard"):
        return Counter(self.said, "deliver", tenant, topic, group, queue_class)

    def unroutable_counter(self, tenant):
        return Counter(self.said, "nobody", tenant)

    def unstored_counter(self, tenant, queue_class="standard"):
        return Counter(self.said, "live", tenant, queue_class)

    def octet_counter(self, tenant):
        return Counter(self.said, "octets", tenant)

    def connection_opened(self, tenant):
        self.said.append(("opened", tenant))

    def connection_closed(self, tenant):
        self.said.append(("closed", tenant))


class Counter:
    def __init__(self, said, *what) -> None:
        self.said = said
        self.what = what

    def count(self, *figures) -> None:
        self.said.append((*self.what, *figures))

    count_one = octets = count


async def test_what_is_delivered_and_what_is_not_is_metered(tmp_path) -> None:
    meter = Meter()
    async with serving(tmp_path, meter=meter) as broker:
        recorder = await broker.connect("taker")
        await recorder.subscribe("live", qos=1)
        kept = await broker.connect("kept", clean=False, expiry=60)
        await kept.subscribe("stored", qos=2)
        giver = await broker.connect("giver")
        await giver.publish("live", bytes(4_097))
        await recorder.take()
        await giver.publish("stored", b"123", 2)
        await kept.take()
        await giver.publish("nobody", b"12345")
    said = meter.said
    assert said.count(("opened", "default")) == said.count(("closed", "default")) == 3
    # The name with its field's head, our ten bytes of properties, and the body.
    assert [each for each in said if each[0] == "deliver"] == [
        ("deliver", "default", "", "", "qos1", 1, 5 + 4 + 10 + 4_097, 2),
        ("deliver", "default", "", "", "qos2", 1, 5 + 6 + 10 + 3, 1),
    ]
    assert [each for each in said if each[0] == "nobody"] == [("nobody", "default", 5)]
    assert [each[:3] for each in said if each[0] == "live"] == [("live", "default", "qos1")]
    octets = [each for each in said if each[0] == "octets"]
    assert len(octets) == 3
    assert all(min(each[2:]) > 4 for each in octets)


# --- Signing in -----------------------------------------------------------------------------


async def test_a_connect_without_a_user_name_is_nobody() -> None:
    asked = []

    class Users:
        async def sign_in(self, *arguments):
            asked.append(arguments)
            return "rights"

    sign_in = StoreSignIn(Users())
    login = Login("alice", None, "device-1", "192.0.2.1:9")
    assert await sign_in.sign_in(login) == "rights"
    assert asked == [("alice", b"", "192.0.2.1:9", "device-1")]
    with pytest.raises(AuthError) as caught:
        await sign_in.sign_in(replace(login, username=None))
    assert caught.value.code is AuthCode.BAD_CREDENTIALS


async def test_who_gives_neither_name_nor_password_may_be_a_user_that_is_named_for_it() -> None:
    class Users:
        def without_password(self, *arguments):
            return arguments

    sign_in = StoreSignIn(Users(), "acme:anybody")
    login = Login(None, None, "device-1", "192.0.2.1:9")
    assert await sign_in.sign_in(login) == ("acme:anybody", "192.0.2.1:9", "device-1")
    with pytest.raises(AuthError) as caught:  # a password says that somebody is meant
        await sign_in.sign_in(replace(login, password=b""))
    assert caught.value.code is AuthCode.BAD_CREDENTIALS


def test_every_counter_begins_at_nought() -> None:
    counters = Counters()
    assert {getattr(counters, name) for name in Counters.__slots__} == {0}
