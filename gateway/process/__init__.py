"""What a process of the operating system needs, whatever it serves.

- `running`: takes its data directory, runs until told to stop, ends
- `service_manager`: what systemd is told
- `data_lock`: one process a data directory
- `open_files`: how many files, and so connections, it may have open
- `slices`: long work in pieces that keep the event loop for a bounded time
- `giving_way`: work that may take longer, beside a server
- `garbage`: when Python's cycle collector runs
"""
