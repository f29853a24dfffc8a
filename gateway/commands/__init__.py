"""The command line, one module per group of commands.

A command reads its arguments, asks something that does the work, and puts the answer out through
`gateway.commands.common.output`. Heavy imports stand inside commands, so that `weir --help` stays
fast.

- `processes`: `weir serve`, `weir store`, `weir gateway`
- `admin`: what asks the admin API
- `tools`: what works on this machine
- `common`: what they share
"""
