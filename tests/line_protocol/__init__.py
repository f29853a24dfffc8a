"""A whole protocol, as docs/adapter.md walks through it: lines of text over TCP.

    client                        server
    LOGIN guest guest             OK
    PUB orders "a message"        OK                        once it is on disk
    SUB orders                    OK
                                  MSG 1 orders "a message"
    ACK 1                         OK                        once that is on disk
                                  MOVE 127.0.0.1:7001       another gateway has room: connect there
                                  BYE                       the server is shutting down

What cannot be done is answered by `ERR CODE why`. Nothing outside this folder knows any of it.
"""
