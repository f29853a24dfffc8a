"""Topic names as PUBLISH carries them, validated once and remembered.

Publishers repeat their names, and validating one costs ten times what finding it in a dictionary
does. A name that is found again is also the same string object, whose hash is already known to
every table behind the codec.
"""

from __future__ import annotations

from adapters.mqtt.codec.data_types import text_of
from adapters.mqtt.codec.errors import MqttError, malformed
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import (
    TOPIC_LEVELS_MAX,
    TOPIC_NAME_REMEMBERED_BYTES_MAX,
    TOPIC_NAMES_REMEMBERED_MAX,
)


def validated_name(raw: bytes, levels_max: int = TOPIC_LEVELS_MAX) -> str:
    """The topic name in `raw` (MQTT5 4.7).

    Raises MqttError: 0x81 for bad UTF-8, U+0000 or a wildcard ([MQTT-3.3.2-2]); 0x90 for a name of
    more than `levels_max` levels, which is well formed but not accepted.
    """
    name = text_of(raw)
    if "+" in name or "#" in name:
        raise malformed("a topic name contains a wildcard")
    if name.count("/") >= levels_max:
        raise MqttError(
            ReasonCode.TOPIC_NAME_INVALID, f"a topic name has more than {levels_max} levels"
        )
    return name


class TopicNames(dict[bytes, str]):
    """`names[raw]` is the validated name; see `validated_name` for what it raises.

    One instance serves all connections of a process. The empty name is in it: whether a PUBLISH
    may have one depends on its topic alias. Nothing is evicted singly: a full table starts afresh,
    which costs each live name one validation.
    """

    def __init__(self, levels_max: int = TOPIC_LEVELS_MAX) -> None:
        super().__init__({b"": ""})
        self._levels_max = levels_max

    def __missing__(self, raw: bytes) -> str:
        name = validated_name(raw, self._levels_max)
        if len(raw) <= TOPIC_NAME_REMEMBERED_BYTES_MAX:
            if len(self) >= TOPIC_NAMES_REMEMBERED_MAX:
                self.clear()
                self[b""] = ""
            self[raw] = name
        return name
