"""Who belongs to a cluster, and how stores come and go (docs/design/replication.md#membership).

- `records`: the register of stores, in group 0; `roster`: whom a store takes for its peers
- `admission`: who is let in, and who may leave
- `manager`: what the leader of group 0 does about all of it
- `features`: what older builds do not understand, and whether it can be turned on (ADR 26)
- `local_features`: the same where there is no cluster
- `membership_steps`: one group's way to other members, or to another leader
- `placement`: which stores are to hold which group's replicas, and which is to lead (ADR 30)
- `replica_moves`: replicas of a group that are to be in other stores
- `replica_count`: in how many stores each group is to be; `placing`: what a manager does about it
- `copy_rate`: how fast stores take in copies of groups
- `added_groups`: data groups that came while it ran; `births`: what a store does about them;
  `growing`: what a manager does
- `short_groups`: those that have fewer, as every store is told
- `placement_view`, `group_loads`: what the planner is given, made of what stores report
- `outsiders`: who has something of a group that it does not belong to any more
- `leader_balance`, `kept_leaders`: leaders, evenly spread; those that an operator has moved
- `gateway_balance`: the gateways, and which of their clients are to move (ADR 16)
- `limit_shares`: what each gateway may use of limits (ADR 27)
- `cluster_cut`: all stores at one moment, for a backup; `store_cut`: each store's part in it
- `cluster_admin`: wishes of operators; `cluster_service`, `messages`: what is asked of a store
"""
