"""What each action does.

- `table`: which function serves which action
- `queues`: create, delete, purge, find and list queues; their attributes
- `tagging`: tags and permissions
- `sending`: SendMessage, SendMessageBatch
- `receiving`: ReceiveMessage
- `settling`: DeleteMessage, ChangeMessageVisibility, and their batches
- `moving`: StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask
- `paging`: NextToken: where a listing goes on
- `call_counting`: every call is counted, for the bill
"""
