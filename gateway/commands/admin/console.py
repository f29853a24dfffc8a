"""`weir console`: the address that signs a browser in."""

from __future__ import annotations

from gateway.commands.common.options import FormatOption, ServerOptions, with_groups
from gateway.commands.common.output import Format, Table, put, put_line


@with_groups
def console(*, server: ServerOptions, output: FormatOption = Format.TABLE) -> None:
    """Say the address of the console, which signs a browser in, once, within the hour."""
    api = server.connect()
    url = f"{api.url}/#code={api.post('/console/codes', {})['code']}"
    if output is Format.JSON:
        put({"url": url}, Table(("console",), [(url,)]), output)
    else:
        put_line(url)
