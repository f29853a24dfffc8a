"""Queues: how requests find them, and what their attributes mean.

- `ready_queues`: found by URL, with rights checked, kept in ready form
- `queue_attributes`: names, ranges and defaults of attributes, and which may be set when
- `queue_settings`: attributes as kernel settings, and back
- `declaration`: what SQS keeps of a queue beside the kernel's settings
- `policies`: the JSON documents among them: Policy, RedrivePolicy, RedriveAllowPolicy
- `recents`: what happened a moment ago (a purge, a deletion), in this process
"""
