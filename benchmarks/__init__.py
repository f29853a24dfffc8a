"""Measurements beside other brokers: `python benchmarks/compare.py`, written to RESULTS.md.

How a comparison runs:

- `load`: the load testers, which `weir bench` runs too
- `compare`: the command: which rows, how often, and the page
- `session`: runs the load tester against brokers in turn; which runs count
- `samples`: medians, spreads, ratios
- `results`: RESULTS.md, a section a row
- `disk`: what the disk itself can do; counting fdatasyncs from outside

Rows of the protocols, and what they are held against:

- `amqp_rows`: AMQP, beside RabbitMQ
- `mqtt_rows`: MQTT, beside Mosquitto and amqtt's broker
- `rocketmq_rows`: RocketMQ, beside gRPC itself (`empty_grpc`)
- `sqs_rows`: SQS, beside the services in `sqs_peers`
- `peers`: brokers as child processes: Weir, RabbitMQ
- `gateway_rows`, `cluster_rows`, `resize_row`: clusters; `cluster_peers`: how one is started

Rows without a protocol:

- `kernel_rows`: the command of the kernel's rows; `kernel_speed`, `kernel_latency`: its parts;
  `kernel_load`: what they share
- `raft_rows`: the Raft core alone; `placement_rows`: where replicas go, in a large cluster
- `stream_rows`: a gateway beside a client in the process of the store
- `many_rows`: very many queues; a restart with very many messages
- `scrape_row`, `console_row`: metrics, and pages of the console, of very many topics
- `size_rows`: topics with a size, which are looked at every second
- `metering_rows`, `trace_row`: what metering, and a trace, cost a message
- `micro`: what each stage of the hot path costs

Runs by hand:

- `builds`: two builds of Weir side by side, CPU a message
- `neighbour`: what one tenant's flood costs another's messages
- `backup`: backup and restore of a node under load
- `soak`: whether memory stays where it is under steady traffic
- `hostile`: what strangers make a node hold
"""
