"""How a listening socket is closed."""

from __future__ import annotations

import asyncio


async def stop_listening(server: asyncio.Server) -> None:
    """Take no new connection; the protocol of each that was taken has had its `connection_made`,
    but for those in a TLS handshake. Idempotent.

    asyncio takes a connection in one turn of the loop and makes its transport in the next. If its
    server is closed in between, that fails without a word, and the socket stays open until it is
    collected (CPython 3.11, 3.12). So the sockets are left alone first, and closed two turns later.
    """
    loop = server.get_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):  # uvloop takes connections in one turn
        for each in server.sockets:
            loop.remove_reader(each)
    for _ in range(2):
        await asyncio.sleep(0)
    server.close()
