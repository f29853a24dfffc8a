"""Space on the disk.

- `housekeeper`: checkpoints, removal, disk marks, in the background
- `pinning`: files of a moment kept for a backup; `pin_keeper` says for how long
- `room`: room in the journal, made sure of before anything is proposed
- `disk_watch`: how much the volume has left
"""
