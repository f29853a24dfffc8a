"""The SQS adapter: AWS JSON 1.0 and Query/XML over one shape table.

- `codec`: the shape table, and both protocols built from it
- `http`: a request and a response as plain values, made of bytes
- `actions`: what each of the 23 actions does, and their table
- `queues`, `ready_queue`: queues by URL; attributes as kernel settings; one in ready form
- `messages`, `received`: SQS's column of the message contract
  (docs/design/model.md#the-message-contract); what a receive brings
- `names`, `validation`, `gate`: names; what a request may say; who calls
- `errors`, `kernel_errors`: the error table; how the kernel's errors are worded
- `environment`, `settings`: what requests share; every bound
- `app`, `connection`, `waiting`, `server`: one request in, one response out; the drivers
"""
