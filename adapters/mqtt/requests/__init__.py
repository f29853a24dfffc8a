"""What a client asks of the kernel, and how it is carried out.

- `publishing`: PUBLISH on its way into the kernel
- `subscribe`: SUBSCRIBE and UNSUBSCRIBE: the kernel first, then the answer, then messages
- `session_subscriptions`: the subscriptions of one session: made, replaced, served again, ended
"""
