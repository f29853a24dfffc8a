"""The journal's files, byte by byte (docs/formats.md).

- `record`, `entry`: a record's header; the body of an entry
- `segment`, `segment_reader`: a segment; its records one by one
- `location_file`: the headers of a sealed segment
- `checkpoint`, `mark`, `meta`: `ckpt`, `synced` and `store.meta`
- `files`: whole files through the Disk port
"""
