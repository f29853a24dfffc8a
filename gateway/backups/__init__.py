"""Backups: a directory of files by their sums, and which of them each backup is made of.

    DIR/objects/AB/ABCD...    a file's bytes, named by their SHA-256
    DIR/unfinished/           files of the backup that is being made
    DIR/maker                 a word of the directory, by which a node knows who has pinned files
    DIR/backups/NNNN-ID.json  a backup: names, lengths and sums of its files (`manifest`)

What was in the backup before is not copied again. Nothing is changed in place, and a backup counts
once its own file is there: whatever ends on the way leaves those before as they were.

- `manifest`: what a backup says of itself
- `repository`: the directory
- `creating`: makes a backup of a node that runs, of the files that it has pinned
- `verifying`: whether every byte is what was written, and a store can be made of it
- `restoring`: makes a data directory of it
"""
