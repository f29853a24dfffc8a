"""HTTP, whatever is asked for: who may reach the API, what a request holds, errors as answers.

- `server`: uvicorn, listeners, what strangers may hold
- `guard`: who may reach it
- `callers`: who calls; a table of who may use which route (ADR 17)
- `requests`: bodies, names in paths, pages
- `errors`: errors as answers
"""
