"""HTTP, whatever is asked for: who may reach the API, what a request holds, errors as answers.

- `server`: uvicorn, listeners, what strangers may hold
- `guard`: who may reach it
- `callers`: who calls, and which rights there are (ADR 17)
- `operations`: what an operation is; routes made of them
- `inside`: the API asked from inside the process
- `streaming`: answers made while they are sent
- `requests`: bodies, names in paths, pages
- `errors`: errors as answers
"""
