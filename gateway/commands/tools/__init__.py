"""Commands about files of this machine, and load testers.

- `config`: the settings, and where each comes from
- `context`: servers by name
- `backup`: backups of a server that runs
- `doctor`: what is in a data directory; repairs
- `bill`: bills out of an archive
- `bench`, `bench_sqs`: load testers
"""
