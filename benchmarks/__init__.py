"""Measurements beside other brokers: `python benchmarks/compare.py`, written to RESULTS.md.

load        the load testers, which `weir bench` runs too
compare     the command: which rows, how often, and the page
session     runs the load tester against brokers in turn; which runs count
samples     medians, spreads, ratios
peers       brokers as child processes: Weir, RabbitMQ
disk        what the disk itself can do; counting fdatasyncs from outside
results     RESULTS.md, a section a row
amqp_rows   the rows of AMQP
sqs_rows    the rows of SQS                sqs_peers   the SQS services they are held against
"""
