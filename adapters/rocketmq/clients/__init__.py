"""Who calls, and who is there.

- `callers`: the headers of a call, turned into a client, a tenant and rights
- `registry`: the clients that are there, and the leases that are renewed for them
- `client_settings`: what a client says of itself, completed with what the server wants of it
"""
