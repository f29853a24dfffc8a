"""The admin side of a node over HTTP: health, metrics, and the API that `weir` and people use.

- `app`: the routes of a process, put together
- `http`: HTTP, and who may reach it
- `console`: pages for a browser, and who has signed in there
- `resources`: the API, by subject; `operations`: the table of all that may be done
- `openapi`: the document that tells of them
- `health`, `metrics`: how the process is; figures
- `shared_room`: places that one owner cannot take from all others
- `address`: where a data directory's server listens
"""
