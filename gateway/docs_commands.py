"""Makes the man page and the shell completions of `weir` out of its commands:
`python -m gateway.docs_commands`.

deploy/share/ is laid out as PREFIX/share, where the wheel puts it. A test holds the files to what
this module would write. The completions ask `weir` itself what may follow.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # not in `typer`
from typer.core import TyperGroup

import gateway
from gateway.cli import COMMANDS, tree
from gateway.commands.common.output import ExitCode
from gateway.config.source import default_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typer._click.core import Command, Context

SHARE: Final = Path("deploy", "share")
"""Relative to the top of the source tree."""

PAGE: Final = "man/man1/weir.1"

COMPLETIONS: Final[Mapping[str, str]] = {
    "bash": "bash-completion/completions/weir",
    "zsh": "zsh/site-functions/_weir",
    "fish": "fish/vendor_completions.d/weir.fish",
}
"""Where each shell looks, below PREFIX/share."""

_ZSH_END: Final = "compdef _weir_completion weir"

_ZSH_FIRST_TAB: Final = f"""\
# zsh reads this as the function _weir when TAB is first pressed behind weir, and that TAB counts.
if [[ $funcstack[1] == _weir ]]; then
  _weir_completion
else
  {_ZSH_END}
fi"""
"""In place of `_ZSH_END`, which only does for who sources the file."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "WEIR_SECTION__KEY": "A setting: the path, with __ for each dot (weir config show).",
    "WEIR_URL": "Admin address, instead of --url.",
    "WEIR_NODE__DATA": "Data directory, instead of --data.",
    "WEIR_TENANT": "The tenant, instead of --tenant.",
    "WEIR_CONTEXT": "A context (weir context), instead of the one in use; none: none.",
    "WEIR_LOGIN, WEIR_PASSWORD": "Whom to sign in as at the admin API; without a password it is "
    "asked for.",
    "WEIR_TOKEN": "The admin token of another machine, without a login.",
    "WEIR_NODE__INSECURE__PLAIN_TEXT": "true: sign in at another machine's address without TLS.",
    "WEIR_ADMIN_PASSWORD": "Makes the user admin at the first start of a server without users.",
    "WEIR_CLUSTER_SECRET": "What the processes of a cluster share (node.cluster.secret_file).",
    "SSL_CERT_FILE": "Authorities to be trusted when the admin address begins with https.",
}

FILES: Final[Mapping[str, str]] = {
    "DATA/admin.url": "Where the server of a data directory has its admin API.",
    "DATA/admin.token": "The token that opens it.",
    "~/.config/weir/contexts.json": "What weir context keeps; below XDG_CONFIG_HOME if it is set.",
}


def render() -> dict[str, str]:
    """The text of every file, by its path below `SHARE`."""
    scripts = {
        place: get_completion_script(prog_name="weir", complete_var="_WEIR_COMPLETE", shell=shell)
        + "\n"
        for shell, place in COMPLETIONS.items()
    }
    zsh = COMPLETIONS["zsh"]
    assert _ZSH_END in scripts[zsh]
    scripts[zsh] = scripts[zsh].replace(_ZSH_END, _ZSH_FIRST_TAB)
    return {PAGE: _page(), **scripts}


def main() -> None:
    """Write the files."""
    for place, text in render().items():
        file = default_file().resolve().parent / SHARE / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _page() -> str:
    """The man page: every command, its options, and what all of them have in common."""
    top = typer.main.get_command(tree(COMMANDS))
    above = top.context_class(top, info_name="weir")
    parts = [
        '.\\" Made from the commands by `make docs`.',
        f'.TH WEIR 1 "" "weir {gateway.__version__}" "Weir"',
        ".SH NAME",
        f"weir \\- {_text(top.help or '')}",
        ".SH SYNOPSIS",
        f".B weir\n{_text(' '.join(top.collect_usage_pieces(above)))}",
        ".SH OPTIONS",
        *_parameters(top, above),
        ".SH COMMANDS",
        *_commands(top, above),
        *_terms("ENVIRONMENT", ENVIRONMENT),
        *_terms("FILES", FILES),
        *_terms(
            "EXIT STATUS",
            {str(code.value): code.name.lower().replace("_", " ") for code in ExitCode},
        ),
    ]
    return "\n".join(parts) + "\n"


def _commands(group: Command, above: Context) -> Iterator[str]:
    """A section for each command below a group, and those below it, by name."""
    assert isinstance(group, TyperGroup)
    for name, command in sorted(group.commands.items()):
        context = command.context_class(command, info_name=name, parent=above)
        if isinstance(command, TyperGroup):
            yield from _commands(command, context)
            continue
        yield f'.SS "{_text(context.command_path)}"'
        yield f".B {_text(context.command_path)}"
        yield _text(" ".join(command.collect_usage_pieces(context)))
        for paragraph in re.split(r"\n\s*\n", command.help or ""):
            yield ".PP"
            yield _text(" ".join(paragraph.split()))
        yield from _parameters(command, context)


def _parameters(command: Command, context: Context) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield from _term(*record)


def _terms(heading: str, terms: Mapping[str, str]) -> Iterator[str]:
    yield f".SH {heading}"
    for term, meaning in terms.items():
        yield from _term(term, meaning)


def _term(term: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(term)}"
    yield _text(" ".join(meaning.split()))


def _text(text: str) -> str:
    """Text that roff takes as it stands."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


if __name__ == "__main__":
    main()
