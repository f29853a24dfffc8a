"""Space on the disk.

- `housekeeper`: checkpoints, removal, disk marks, in the background
- `room`: room in the journal, made sure of before anything is proposed
- `disk_watch`: how much the volume has left
"""
