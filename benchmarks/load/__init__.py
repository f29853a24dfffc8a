"""Load testers: `weir bench amqp`, `mqtt`, `rocketmq` and `sqs`, one module family per protocol.

A load tester here is a second implementation of its protocol's client side, made of prebuilt
frames: it runs against any broker of that protocol. Those of AMQP and SQS import nothing of
`adapters`, so that a mistake in our codec cannot hide behind the same mistake in the tester; MQTT's
has our codec, and RocketMQ's what writes and reads protobuf.

What they share:

- `stats`: a histogram of durations; `verify`: loss, duplicates, order
- `report`: the result, as table and JSON; `errors`: how a run ends that cannot be carried through
- `measured_run`: a run of generator processes; `process`: one as its coordinator sees it; `worker`:
  from inside; `talk`: what the two say to each other
- `procfs`: CPU and memory of processes; `open_files`: the limit of connections
- `precise_timer`: a timer that fires within microseconds

AMQP:

- `amqp_plan`, `amqp_load`: the options, and the coordinator; `amqp_spec`: what it tells a generator
- `amqp_worker`: a generator; `amqp_producer`, `amqp_confirms`: its producers
- `amqp_consumer`, `amqp_deliveries`: its consumers
- `amqp_wire`: the protocol; `amqp_client`, `amqp_queues`: before and after the measured part

MQTT:

- `mqtt_plan`, `mqtt_load`: the options, and the loads; `mqtt_client`: one connection

RocketMQ:

- `rocketmq_load`: the coordinator; `rocketmq_spec`: what it tells a generator
- `rocketmq_worker`: a generator; `rocketmq_producer`, `rocketmq_consumer`: what is in it
- `rocketmq_wire`, `rocketmq_client`: the protocol, and a connection
- `rocketmq_report`: its figures

SQS:

- `sqs_plan`, `sqs_load`: the options, and the coordinator; `sqs_generator`: the loads
- `sqs_wire`, `sqs_client`: the protocol, and connections
- `sqs_report`: its figures

Clocks, sockets and child processes are used directly in this package: a benchmark measures the
real ones.
"""
