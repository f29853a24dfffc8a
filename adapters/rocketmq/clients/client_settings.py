"""Settings: what a client says of itself, completed with what the server wants of it.

A client shows its settings when it opens its telemetry stream, and every five minutes after. The
answer must say OK, or clients wait for it for ever (docs/design/rocketmq.md). Which backoff a
client can read depends on its language: the Node client reads exponential ones only, for
other consumers the delays of the reference are listed. Nothing in here is needed to serve the
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..settings import BACKOFF_S

if TYPE_CHECKING:
    from ..codec.stubs import RetryPolicy, Settings, TelemetryCommand
    from ..settings import RocketmqSettings

NODE_JS: Final = 8
"""`enum Language`."""

PRODUCER_ATTEMPTS: Final = 3
"""How often the reference has producers try to send."""

_OK: Final = 20000


def answer_to(command: TelemetryCommand, settings: RocketmqSettings, shown: Shown) -> bytes:
    """The answer to settings that a client has sent. `command` is changed."""
    wanted = command.settings
    if wanted.HasField("subscription"):
        _subscriber(wanted, settings, shown)
    else:
        _publisher(wanted, settings)
    wanted.metric.on = False
    command.status.code = _OK
    command.status.message = "OK"
    return command.SerializeToString()


class Shown:
    """What decides over the answer beside the settings themselves."""

    __slots__ = ("attempts_max", "is_fifo", "is_node")

    def __init__(self, *, is_node: bool, is_fifo: bool, attempts_max: int) -> None:
        self.is_node = is_node
        self.is_fifo = is_fifo
        self.attempts_max = attempts_max


def _publisher(wanted: Settings, settings: RocketmqSettings) -> None:
    # 0 would have the client send nothing at all.
    wanted.publishing.max_body_size = settings.body_bytes_max
    wanted.publishing.validate_message_type = True
    wanted.ClearField("backoff_policy")
    policy = wanted.backoff_policy
    policy.max_attempts = PRODUCER_ATTEMPTS
    _exponential(policy, first_ms=10, last_ms=1_000)


def _subscriber(wanted: Settings, settings: RocketmqSettings, shown: Shown) -> None:
    subscription = wanted.subscription
    subscription.fifo = shown.is_fifo
    subscription.receive_batch_size = settings.receive_messages_max
    polling_s, rest_ms = divmod(settings.polling_ms_max, 1_000)
    subscription.long_polling_timeout.seconds = polling_s
    subscription.long_polling_timeout.nanos = rest_ms * 1_000_000
    wanted.ClearField("backoff_policy")
    policy = wanted.backoff_policy
    policy.max_attempts = shown.attempts_max
    if shown.is_node or wanted.user_agent.language == NODE_JS:
        _exponential(policy, first_ms=BACKOFF_S[0] * 1_000, last_ms=BACKOFF_S[-1] * 1_000)
    else:
        for delay_s in BACKOFF_S:
            policy.customized_backoff.next.add(seconds=delay_s)


def _exponential(policy: RetryPolicy, *, first_ms: int, last_ms: int) -> None:
    backoff = policy.exponential_backoff
    for moment, time_ms in ((backoff.initial, first_ms), (backoff.max, last_ms)):
        moment.seconds, rest_ms = divmod(time_ms, 1_000)
        moment.nanos = rest_ms * 1_000_000
    backoff.multiplier = 2.0
