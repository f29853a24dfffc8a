"""Commands for whoever administers a server that runs, by its admin API.

- `topic`, `group`, `route`, `message`, `session`: what is in it
- `consume`, `dead_letters`, `trace`: messages taken by hand, those that nobody could take, and
  what has become of one
- `user`, `tenant`, `limit`: who may use it, and how much
- `definitions`: all of both as a file
- `console`: the address that signs a browser in
- `connection`, `events`, `audit`: who is connected, what happens, who has changed what
- `cluster`, `node`, `health`: its processes
"""
