"""Who may connect, and what a client may do.

- `sign_in`: user name and password, or a certificate, by the users of the store
- `plugins`: amqtt's authentication and topic plugins as a sign-in (extra `amqtt`)
- `rights`: what a client needs for what it asks
- `refusals`: how errors of the kernel and of the sign-in are told to clients, as tables
"""
