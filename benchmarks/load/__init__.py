"""Load testers: `weir bench amqp` and `weir bench sqs`, one module family per protocol.

A load tester here is a second implementation of its protocol's client side, made of prebuilt
frames, and imports nothing of `adapters`: it runs against any broker of that protocol, and a
mistake in our codec cannot hide behind the same mistake in the tester.

    stats      histogram of durations            verify     loss, duplicates, order
    procfs     CPU and memory of processes       worker     generator processes and their pipe
    report     the result, as table and JSON     amqp_*     the AMQP 0-9-1 generator
                                                 sqs_*      the SQS generator

Clocks, sockets and child processes are used directly in this package: a benchmark measures the
real ones.
"""
