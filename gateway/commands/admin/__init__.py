"""Commands for whoever administers a server that runs, by its admin API.

- `topic`, `group`, `route`, `message`, `session`: what is in it
- `user`, `tenant`: who may use it
- `cluster`, `node`, `health`: its processes
"""
