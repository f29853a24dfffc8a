"""The SQS adapter: AWS JSON 1.0 and Query/XML over one shape table.

From the wire inwards:

- `server`: listeners, the clock, tasks, and the adapter as a whole
- `connection`: one HTTP connection: requests in, answers out, in order
- `http/`: HTTP requests and responses as values
- `app`: one request in, one response out
- `gate`: who calls: the signature, turned into a tenant, an account and rights
- `charging`: what a request costs its caller where limits are set
- `codec/`: both protocols over the table of shapes
- `actions/`: what each action does
- `validation`: what the members of a request may say
- `queues/`: queues and their attributes
- `messages/`: a stored message as SQS sees it
- `waiting`: publishing and long polls

What all of them use:

- `environment`: what all requests share, and what each has of its own
- `names`: queue names, queue URLs and ARNs
- `error_codes`: every error of the service; `error_mapping` words those of the kernel and of auth
- `settings`: what an operator can set, and the bounds nobody can
- `adapter`: what the rest of Weir knows of it, declared; `origin`: its number on disk
"""
