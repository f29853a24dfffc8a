"""docs/reference/rights.md: the matrix as a page, made from the rows that the tests try.

`python -m tests.rights.page` writes it; `make docs` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.config.loading import load
from tests.rights import amqp_rows, mqtt_rows, rocketmq_rows, sqs_rows
from tests.rights.rows import Row

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"

PROTOCOLS: Final = {
    "amqp": amqp_rows,
    "sqs": sqs_rows,
    "mqtt": mqtt_rows,
    "rocketmq": rocketmq_rows,
}
TITLES: Final = {"amqp": "AMQP", "sqs": "SQS", "mqtt": "MQTT", "rocketmq": "RocketMQ"}
ENDS: Final = {
    "amqp": "`basic.cancel`, or `channel.close` 403",
    "sqs": "`AccessDenied`",
    "mqtt": "DISCONNECT 0x87",
    "rocketmq": "40300 FORBIDDEN",
}
"""How what goes on ends when one of its rights is gone."""

HEAD: Final = """# Rights

<!-- Made from tests/rights by `make docs`. Change the rows there, not this page. -->

What each operation of each protocol takes of its user's policies: exactly this, in every row. Each
is tried with each of its rights missing, with all of them and no others, with each denied beside
everything allowed, by a user of another tenant with all rights there, and once more on the same
connection after the rights were taken away (`tests/rights`). `NAME` is the queue, exchange, topic
or name that the operation is about, `NAME-2` another one that it names, `GROUP` the consumer group.
What is asked for after a right is withdrawn is refused ("next time"; "-": it is done once only);
what goes on ends within 2 s as the last column says.

A topic is part of the topic tree if it was made so (`weir topic create`, unless `--tree off`). The
admin API and the commands of `weir` take `administer tenant:TENANT` or `administer node:admin`:
[tenants.md](../tenants.md#who-may-administer-what). What users can do to each other's MQTT
sessions, which is nothing, and who may use which client id: [mqtt.md](../mqtt.md#who-may-do-what).
"""


def _shown(need: str) -> str:
    return f"`{need.replace('{n}-g', 'GROUP').replace('{n}', 'NAME')}`"


def _line(protocol: str, row: Row) -> str:
    needs = ", ".join(map(_shown, row.needs)) or "a login of the tenant"
    if row.also_by:
        needs += f"; or {' or '.join(map(_shown, row.also_by))}"
    stranger = "refused" if row.names_tenant else "cannot name it"
    next_time = "next time" if row.again else "-"
    gone = ENDS[protocol] if row.hold is not None else next_time if row.needs else ""
    way = f", {row.way}" if row.way else ""
    return f"| {row.operation}{way} | {needs} | {stranger} | {gone} |"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for protocol, rows in PROTOCOLS.items():
        operations = load(environ={}).settings.protocols[protocol].operations
        parts.append(f"\n## {TITLES[protocol]}\n")
        parts.append("| operation | takes | another tenant's user | withdrawn while connected |")
        parts.append("| --- | --- | --- | --- |")
        for operation, entry in operations.items():
            parts += [_line(protocol, row) for row in rows.ROWS if row.operation == operation]
            why = rows.NO_RIGHT_OF_ITS_OWN.get(operation)
            if entry.status == "refused":
                why = "refused to everybody"
            if why is not None:
                parts.append(f"| {operation} | no right of its own: {why} | | |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
