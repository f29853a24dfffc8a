"""What the codec and the session cost: CPU microseconds a message, and bytes a connection.

    python -m tests.adapters.mqtt.microbench

QoS 1, a topic of 20 bytes, a payload of 256. `codec` is the decoder and the encoder alone;
`session` is everything between the bytes of a publisher and those of its subscriber and back, as a
driver would call it, without a kernel. Process CPU time, the best of nine rounds.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

from adapters.mqtt.codec.data_types import U16
from adapters.mqtt.codec.encoder import PUBACK_WORD, encode, encode_words, publish_frame
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Publish
from tests.adapters.mqtt.support import LEVELS, NOW_MS, connected, server_decoder

TOPIC = "bench/site7/0042/tlm"
PAYLOAD = bytes(256)
ROUNDS = 9
MESSAGES = 20_000
CONNECTIONS = 2_000


def cost_us(work: Callable[[], None], messages: int) -> float:
    """CPU microseconds a message of the fastest round."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - started)
    return best / messages / 1_000


def codec(level: int, chunk: int) -> dict[str, float]:
    publishes = b"".join(
        encode(Publish(TOPIC, PAYLOAD, 1, packet_id=number + 1), level) for number in range(chunk)
    )
    acks = b"".join(encode(Ack(PacketType.PUBACK, number + 1), level) for number in range(chunk))
    words = [PUBACK_WORD | number + 1 for number in range(chunk)]
    raw_topic = TOPIC.encode()
    decoder = server_decoder(level)
    rounds = range(max(1, MESSAGES // chunk))

    def publish_in() -> None:
        for _ in rounds:
            decoder.receive(publishes, [])

    def puback_in() -> None:
        for _ in rounds:
            decoder.receive(acks, [])

    def publish_out() -> None:
        for _ in rounds:
            parts: list[bytes] = []
            for number in range(chunk):
                head, tail = publish_frame(level, 2, raw_topic, b"", PAYLOAD)
                parts += (head, U16.pack(number + 1), tail)
            b"".join(parts)

    def puback_out() -> None:
        for _ in rounds:
            encode_words(words)

    steps = (publish_in, puback_out, publish_out, puback_in)
    return {step.__name__: cost_us(step, len(rounds) * chunk) for step in steps}


def session(level: int, chunk: int) -> float:
    publisher, subscriber = connected(level), connected(level)
    publishes = b"".join(
        encode(Publish(TOPIC, PAYLOAD, 1, packet_id=number + 1), level) for number in range(chunk)
    )
    rounds = range(max(1, MESSAGES // chunk))

    def there_and_back() -> None:
        for _ in rounds:
            [run] = publisher.receive_data(publishes, NOW_MS)
            publisher.publish_committed(run.tokens)
            publisher.data_to_send()
            columns = zip(run.topics, run.properties, run.payloads, strict=True)
            frames = [
                publish_frame(level, 2, topic.encode(), block, payload)
                for topic, block, payload in columns
            ]
            subscriber.send_frames(frames, run.tokens)
            delivered = subscriber.data_to_send()
            step = len(delivered) // chunk
            at = step - len(PAYLOAD) - (3 if level == 5 else 2)
            ids = [delivered[n * step + at : n * step + at + 2] for n in range(chunk)]
            events = subscriber.receive_data(b"".join([b"\x40\x02" + id_ for id_ in ids]), NOW_MS)
            assert len(events[0].tokens) == chunk

    return cost_us(there_and_back, len(rounds) * chunk)


def connection_bytes(level: int) -> float:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    held = [connected(level) for _ in range(CONNECTIONS)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(held)


def main() -> None:
    write = sys.stdout.write
    for level in LEVELS:
        for chunk in (1, 10, 220):
            costs = codec(level, chunk)
            shown = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
            write(f"MQTT {level} chunks of {chunk:3}: codec {sum(costs.values()):.2f} ({shown}); ")
            write(f"session {session(level, chunk):.2f} us a message\n")
        write(f"MQTT {level}: {connection_bytes(level):.0f} bytes an idle accepted session\n")


if __name__ == "__main__":
    main()
