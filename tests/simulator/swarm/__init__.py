"""The deterministic cluster simulator: whole clusters under faults that a seed chooses.

levels      how unpleasant a run is, from its seed
machines    nodes, disks, clocks, the network between them, the way of clients to leaders
probe       observes the product's journal, members and writes
raft_rules  invariants of Raft, by name
queue_rules invariants of queues, by name
feature_rules  invariants of features of the log, by name
clients     producers and consumers
operator    replaces old builds, and turns features on
placed      places replicas where there are more machines than these, as a manager does
newborn     adds data groups there, and has them grow
faults      what happens to the machines
gateways    publish to topics that are resized, as every process does
resizer     resizes topics
run         one seed
__main__    many seeds, in several processes
"""
