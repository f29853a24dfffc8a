"""What `Confirms` says, held against the bookkeeping of clients: whoever publishes hears once, and
the truth, whatever order publishes complete in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.channel.confirms import ACK_FRAME, ACK_KEY, NACK_KEY, Confirms

PUBLISHES_MAX = 40


class Frame(NamedTuple):
    """One ack or nack."""

    is_ack: bool
    number: int
    multiple: bool


def frames_in(data: bytes) -> list[Frame]:
    found = []
    for kind, channel, _, key, number, multiple, _ in ACK_FRAME.iter_unpack(data):
        assert (kind, channel) == (1, 1)
        assert key in (ACK_KEY, NACK_KEY)
        found.append(Frame(key == ACK_KEY, number, bool(multiple)))
    return found


class Aiormq:
    """aiormq 7 (`Channel._on_confirm_frame`): a frame whose number it does not hold is dropped, as
    by npm's @cloudamqp/amqp-client; what a multiple speaks for is told in the loop's next round.
    """

    def __init__(self, count: int) -> None:
        self.waiting = set(range(1, count + 1))
        self.told: dict[int, bool] = {}

    def take(self, frames: list[Frame]) -> None:
        later: list[tuple[int, bool]] = []
        for frame in frames:
            assert frame.number in self.waiting, "Unexpected confirmation frame"
            if frame.multiple:
                later += [(each, frame.is_ack) for each in self.waiting if each <= frame.number]
            else:
                self._tell(frame.number, is_ack=frame.is_ack)
        for number, is_ack in later:
            self._tell(number, is_ack=is_ack)

    def _tell(self, number: int, *, is_ack: bool) -> None:
        if number in self.waiting:
            self.waiting.remove(number)
            self.told[number] = is_ack


class Amqplib:
    """npm's amqplib (`Channel.handleConfirm`): a list from the lowest number that is open."""

    def __init__(self, count: int) -> None:
        self.low = 1
        self.open: list[int | None] = list(range(1, count + 1))
        self.told: dict[int, bool] = {}

    def take(self, frames: list[Frame]) -> None:
        for is_ack, number, multiple in frames:
            if multiple:
                taken = self.open[: number - self.low + 1]
                self.open = self.open[number - self.low + 1 :]
                self.low = number + 1
            else:
                taken = [self.open[number - self.low]]
                self.open[number - self.low] = None
                while self.open and self.open[0] is None:
                    self.open.pop(0)
                    self.low += 1
            for each in taken:
                if each is not None:
                    assert each not in self.told
                    self.told[each] = is_ack


class Step(NamedTuple):
    """Publishes that complete together; `turn`: the client is told before the next step."""

    first: int
    last: int
    is_stored: bool
    turn: bool


@st.composite
def completions(draw: st.DrawFn) -> list[Step]:
    """Up to forty publishes, cut into batches that complete in any order."""
    count = draw(st.integers(1, PUBLISHES_MAX))
    cuts = sorted(draw(st.sets(st.integers(1, count), max_size=count)) | {count})
    ranges = list(zip([1, *(cut + 1 for cut in cuts[:-1])], cuts, strict=True))
    order = draw(st.permutations(ranges))
    fates = st.tuples(st.integers(0, 3).map(bool), st.booleans())
    return [Step(*each, *draw(fates)) for each in order]


def turns_of(steps: list[Step], confirms: Confirms) -> Iterator[tuple[list[Frame], list[Step]]]:
    """Frames of each turn, and what was done in it."""
    since: list[Step] = []
    for place, step in enumerate(steps, 1):
        since.append(step)
        if step.is_stored:
            confirms.done(step.first, step.last)
        else:
            for number in range(step.first, step.last + 1):
                confirms.failed(number)
        if step.turn or place == len(steps):
            yield frames_in(confirms.take(1)), since
            since = []


@given(completions())
def test_every_publisher_hears_once_and_the_truth(steps: list[Step]) -> None:
    confirms = Confirms()
    count = max(step.last for step in steps)
    confirms.published = count
    clients = (Aiormq(count), Amqplib(count))
    truth = {n: step.is_stored for step in steps for n in range(step.first, step.last + 1)}
    finished: set[int] = set()
    for frames, done in turns_of(steps, confirms):
        finished.update(n for step in done for n in range(step.first, step.last + 1))
        for client in clients:
            client.take(frames)
            # Nothing is kept for a later turn, and nothing said of what is still open.
            assert client.told == {number: truth[number] for number in finished}
    assert confirms.floor == count
    assert (confirms.acked, confirms.nacked) == (
        sum(truth.values()),
        count - sum(truth.values()),
    )


@given(completions())
def test_a_number_that_is_named_was_never_answered_before(steps: list[Step]) -> None:
    answered: set[int] = set()
    for frames, done in turns_of(steps, Confirms()):
        new = {n for step in done for n in range(step.first, step.last + 1)}
        new_nacked = {frame.number for frame in frames if not frame.is_ack}
        for is_ack, number, multiple in frames:
            assert number in new - answered
            reach = set(range(1, number + 1)) if multiple else {number}
            assert is_ack or not multiple
            # A multiple speaks for what is done; of nacks, for those of earlier turns only.
            assert reach <= answered | new
            assert not is_ack or reach.isdisjoint(new_nacked)
            answered |= reach


def test_what_is_in_order_is_one_frame() -> None:
    confirms = Confirms()
    for number in range(1, 1001, 10):
        confirms.done(number, number + 9)
    assert frames_in(confirms.take(1)) == [Frame(is_ack=True, number=1000, multiple=True)]
    assert confirms.take(1) == b""


def test_a_nack_between_acks_is_not_covered_by_a_multiple_of_its_turn() -> None:
    confirms = Confirms()
    confirms.done(1, 1)
    confirms.failed(2)
    confirms.done(3, 4)
    assert frames_in(confirms.take(1)) == [
        Frame(is_ack=False, number=2, multiple=False),
        Frame(is_ack=True, number=1, multiple=False),
        Frame(is_ack=True, number=3, multiple=False),
        Frame(is_ack=True, number=4, multiple=False),
    ]
