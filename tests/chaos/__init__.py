"""Real processes under faults: `make chaos ROUNDS=20 SEED=1`.

Three stores and two gateways on loopback, an unmodified client of every protocol for each of them,
and a plan of faults that a seed decides (`plan`). What the clients saw is a history (`history`),
and what they were promised is checked on it afterwards by code that knows no process (`checker`).

    plan -> campaign -> cluster: processes, proxy between them, disks that fail
                     -> load: a program for each lane -> history -> checker -> report
"""
