"""The real disk, clock, randomness and threads, behind `common.ports`.

- `disk`, `write_ring`: system calls in a thread; io_uring beside the event loop
- `file_system`: which file system holds a path
- `system`: clock and random bits
- `worker`: one thread that runs jobs in order
"""
