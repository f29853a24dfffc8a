"""From files to a journal that can be written.

- `scan`: what is on disk, proven or damaged, read only
- `evidence`: what follows a record that does not read
- `kept`: what installs that a crash has ended left behind
- `recovery`: makes a journal of it
"""
