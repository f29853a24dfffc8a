"""Index of a queue: where its messages lie in the log, and what is special about them. Pure.

- `runs`: the index, made of runs; `run_page`: a run, and 256 of them in columns
- `features`: what messages may have beyond the plain
- `sizes`: sums of bytes, for queues limited by them
- `late`: messages that got their offset long after their bytes
"""
