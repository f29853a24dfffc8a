"""Claims: what consumers were handed by the last leader, and hold on to under the next one.

A new leader knows from the dispatch mark what may have been handed out, and not to whom. Until
those who may hold something have said so, or have had the time to, a queue with anything unacked
below its mark hands nothing out; what is claimed meanwhile stays leased to who claims it, and the
rest is handed out again (docs/adr/0009).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...api.client import ConsumerSink, ConsumerSpec
from .consumers import Credit, DispatchedConsumer, ServingDispatcher
from .dispatcher import AWAITS_CLAIMS, Dispatcher


def await_claims(dispatcher: Dispatcher) -> None:
    """Hand out nothing for now if consumers of the last leader may hold something."""
    index, progress = dispatcher.queue.index, dispatcher.queue.groups[dispatcher.group]
    below = min(max(progress.marks), index.tail)
    if next(progress.unacked(max(progress.floor, index.head), below), None) is not None:
        dispatcher.halt(AWAITS_CLAIMS)


def claims_over(dispatcher: Dispatcher) -> None:
    """Nobody claims any more: what was not claimed is handed out."""
    dispatcher.resume(AWAITS_CLAIMS)


def keeper(dispatcher: Dispatcher, spec: ConsumerSpec, sink: ConsumerSink) -> DispatchedConsumer:
    """A consumer that takes nothing: for what a cancelled one still holds."""
    consumer = DispatchedConsumer(dispatcher, spec, sink, Credit())
    consumer.ended = True
    return consumer


def claim(
    dispatcher: ServingDispatcher, consumer: DispatchedConsumer, offsets: Iterable[int]
) -> None:
    """Lease to `consumer` what it was handed by the last leader: all that is ready, and whose
    ordering key nobody else holds. The rest has been settled, or is another consumer's by now.
    """
    index, progress = dispatcher.queue.index, dispatcher.queue.groups[dispatcher.group]
    start, end = max(progress.floor, index.head), min(max(progress.marks), index.tail)
    wanted = {each for each in offsets if start <= each < end and not dispatcher.blocks(each)}
    if wanted:
        dispatcher.hold(consumer, dispatcher.ready.claim(wanted))
