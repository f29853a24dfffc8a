"""Space of what nobody needs any more.

- `checkpointing`: what the next checkpoint says
- `space`: location files, removal, rewrites
- `rewrite`: live slots of a sparse segment go to the end of the journal
- `survey`: how much of an old entry is still needed
"""
