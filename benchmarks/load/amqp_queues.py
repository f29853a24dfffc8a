"""The queues of a run on the broker: declared before, counted, deleted after. Blocking calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.load.amqp_client import Identity, SetupConnection
from benchmarks.load.amqp_plan import LoadOptions, Mode

if TYPE_CHECKING:
    from benchmarks.load.amqp_wire import AmqpUrl


def set_up(options: LoadOptions, url: AmqpUrl) -> tuple[Identity, int]:
    """Declare the queues; return who the broker is and how many messages wait in them."""
    setup = SetupConnection(url)
    try:
        setup.open_channel(1)
        fresh = options.mode is not Mode.CONSUME
        if fresh and options.fanout:
            setup.delete_exchange(options.queue_name)
            setup.declare_fanout(options.queue_name, durable=options.durable)
        arguments = {} if options.queue_type == "classic" else {"x-queue-type": options.queue_type}
        backlog = 0
        for queue in options.queue_names():
            if fresh:
                setup.delete_queue(queue)
            backlog += setup.declare_queue(queue, durable=options.durable, arguments=arguments)
            if fresh and options.fanout:
                setup.bind(queue, options.queue_name)
        return setup.identity, backlog
    finally:
        setup.close()


def clean_up(options: LoadOptions, url: AmqpUrl) -> None:
    setup = SetupConnection(url)
    try:
        setup.open_channel(1)
        for queue in options.queue_names():
            setup.delete_queue(queue)
        if options.fanout:
            setup.delete_exchange(options.queue_name)
    finally:
        setup.close()


def queue_depths(options: LoadOptions, url: AmqpUrl) -> list[int]:
    setup = SetupConnection(url)
    try:
        setup.open_channel(1)
        return [setup.queue_depth(queue) for queue in options.queue_names()]
    finally:
        setup.close()
