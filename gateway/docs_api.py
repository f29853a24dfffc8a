"""Makes docs/reference/api.md out of the API's OpenAPI document: `python -m gateway.docs_api`.

A test holds the page to what this module would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.admin.http.callers import Right
from gateway.admin.openapi import TAKES, document
from gateway.admin.operations import API
from gateway.config.source import default_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.admin.http.operations import Operation

    Schema = Mapping[str, Any]

PAGE: Final = Path("docs", "reference", "api.md")

INTRODUCTION: Final = """\
# The admin API

<!-- Made from gateway/admin/operations.py by `make docs`. Change that file, not this page. -->

HTTP and JSON on `node.admin` (127.0.0.1:15673), below `/api/v1`. The same as a document of OpenAPI
3.1, of which tools make clients:

```
curl -H "Authorization: Bearer $(cat weir-data/admin.token)" \\
    http://127.0.0.1:15673/api/v1/openapi.json
```

A request shows the token of the data directory (`Authorization: Bearer`), or a user's login
(Basic: `USER`, or `TENANT:USER`). What is about a tenant takes `?tenant=NAME`; without it, it is
the caller's own. Names in paths are percent-encoded, a slash too. An empty body reads as an empty
object; an unknown field is an error. Every error is an [ErrorBody](#errorbody).

| right | what it takes |
| --- | --- |"""

HEAD: Final = (
    "",
    "| operation | what it does | right | takes | answers |",
    "| --- | --- | --- | --- | --- |",
)


def render() -> str:
    """The text of the page."""
    parts = [INTRODUCTION]
    parts += [f"| {each.name.lower()} | {TAKES[each]} |" for each in Right]
    for subject in dict.fromkeys(_subject(each) for each in API):
        parts += ["", f"## {subject}", *HEAD]
        parts += [_row(each) for each in API if _subject(each) == subject]
    parts += ["", "## Shapes", "", "`?`: may be left out, or is left out where it is not set."]
    for name, schema in sorted(document(API).components["schemas"].items()):
        parts += ["", f"### {name}", *_shape(schema)]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the page, relative to the top of the source tree."""
    (default_file().resolve().parent / PAGE).write_text(render())


def _subject(operation: Operation) -> str:
    return operation.path.split("/")[1].replace(".json", "")


def _row(operation: Operation) -> str:
    query = "".join(f" `{each.name}=`: {each.meaning}" for each in operation.query)
    statuses = ", ".join(map(str, operation.statuses))
    cells = (
        f"`{operation.name}`",
        f"{operation.says}{query}",
        operation.right.name.lower(),
        _named(operation.takes),
        f"{statuses} {_named(operation.answers)}".rstrip(),
    )
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


def _named(kind: type | None) -> str:
    return "" if kind is None else _spelled(msgspec.json.schema(kind))


def _shape(schema: Schema) -> Iterator[str]:
    if "description" in schema:
        yield ""
        yield " ".join(schema["description"].split())
    if "enum" in schema:
        yield ""
        yield ", ".join(f"`{each}`" for each in schema["enum"])
    fields = schema.get("properties", {})
    if fields:
        yield ""
        yield "| field | form |"
        yield "| --- | --- |"
    required = schema.get("required", ())
    for name, form in fields.items():
        left_out = "" if name in required else "?"
        default = f", {form['default']!r} unless told" if form.get("default") else ""
        yield f"| `{name}`{left_out} | {_spelled(form)}{default} |".replace("\n", " ")


def _spelled(form: Schema) -> str:
    """A form in words."""
    if "$ref" in form:
        name = form["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in form:
        return " or ".join(_spelled(each) for each in form["anyOf"])
    kind = form.get("type", "anything")
    if kind == "array":
        within = form.get("items") or (form["prefixItems"][0] if "prefixItems" in form else {})
        return f"list of {_spelled(within)}"
    if kind == "object":
        below = form.get("additionalProperties", {})
        return f"object of {_spelled(below)}" if isinstance(below, dict) else "object"
    bounds = [f"{form[key]}" for key in ("minimum", "maximum") if key in form]
    return f"{kind} ({' to '.join(bounds)})" if len(bounds) == 2 else str(kind)


if __name__ == "__main__":
    main()
