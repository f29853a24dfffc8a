"""The command line, one module per group of commands.

A command reads its arguments, asks something that does the work, and puts the answer out through
`gateway.commands.output`. Heavy imports stand inside commands, so that `weir --help` stays fast.

- processes: `serve`, `store`, `gateway`
- by the admin API (`api`): `topic`, `group`, `route`, `message`, `session`, `user`, `tenant`,
  `cluster`, `node`, `health`
- on this machine: `config`, `doctor`, `bill`, `bench`, `bench_sqs`
- what they share: `options`, `output`, `values`
"""
