"""One channel: what its methods do, what it sends and what it is sent.

- `open_channel`: the state of a channel, and a handler for each method of an open one
- `publishing`: publish frames into the kernel (hot)
- `targets`: exchange and routing key to where a message goes, remembered per connection
- `confirms`: publisher confirms: numbers, acks and nacks
- `returns`: basic.return of messages that had nowhere to go
- `consuming`: deliveries to consumers, and acks back (hot)
- `patience`: `x-consumer-timeout`
- `revoking`: consumers that end because their user may not consume any more
- `direct_reply`: `amq.rabbitmq.reply-to`
- `transaction`: what a channel in tx mode holds back until tx.commit
- `committing`: tx.commit as a transaction of the kernel
"""
