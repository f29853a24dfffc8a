"""Index of a queue: where its messages lie in the log, and what is special about them
(ADR 4). Pure.

- `runs`: the index, made of runs; `run_page`: a run, and 256 of them in columns
- `features`: what messages may have beyond the plain
- `sizes`: sums of bytes, for queues limited by them
- `origin_index`: messages that got their offset long after their bytes
"""
