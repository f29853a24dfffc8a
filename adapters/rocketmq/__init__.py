"""The RocketMQ adapter: apache.rocketmq.v2 over gRPC, with pop consumption as the kernel's leases.

From the wire inwards:

- `server`: gRPC servers, the clock and tasks, and the adapter as a whole
- `transport/`: gRPC's handlers, the port, the telemetry stream, what waits
- `services/`: what each call does
- `clients/`: who calls, and whose leases are renewed
- `topics/`: topics, consumer groups and routes
- `messages/`: a stored message as RocketMQ sees it
- `codec/`: requests and answers as bytes

What all of them use:

- `environment`: what all calls share
- `names`: names of topics, groups and namespaces, and what the kernel calls them
- `errors`: status codes and the error tables
- `settings`: what an operator can set, and the bounds nobody can
"""
