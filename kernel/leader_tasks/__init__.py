"""What the leader of a Raft group looks after beside serving it: once in the cluster.

- `leader_tasks`: the tasks of every group that is led here, and when they run
- `unused_topics`: topics are deleted when nobody has used them for so long
- `unused_groups`: consumer groups that nobody uses stop holding data
- `level_follower`: features that group 0 has turned on
- `predecessors`: successors wait no longer than for what is left in other Raft groups
- `retiring`: sealed queues go when everybody is done with them
- `mover`: moves messages from topic to topic, as operators ask (`api.moves`)
"""
