"""The command line, one module per group of commands.

A command reads its arguments, asks something that does the work, and puts the answer out through
`gateway.commands.output`. Heavy imports stand inside commands, so that `weir --help` stays fast.
"""
