"""MessagingService: what each call does.

- `messaging_service`: one action for each call, and what becomes of its errors
- `sending`: SendMessage
- `receiving`: ReceiveMessage; `filters` reads its filter expressions
- `settling`: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue
- `offsets`: PullMessage, UpdateOffset, GetOffset, QueryOffset
- `recalling`: RecallMessage
- `transactions`: transactional messages: sent now, delivered if and when their producer says so
- `questions`: which producers are asked about what nobody has decided
- `call_counting`: every call is counted, for the bill; `charging`: and charged to limits
"""
