"""``kip30 help``: the help of a command."""

import click

from kip30.cli._groups import no_such_command


def _complete(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """Offer the commands of the group that the words so far lead to."""
    found = _found(context.find_root(), context.params.get("words") or ())
    if found is None or not isinstance(found.command, click.Group):
        return []
    return [name for name in found.command.list_commands(found) if name.startswith(typed)]


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Print the help of a command, as its --help does.

    Several words name a command of a command, as in `kip30 help kv put`; without any this is the
    help of kip30 itself.
    """
    root = context.find_root()
    found = root
    for word in words:
        inner = _inner(found, word)
        if inner is None:
            raise click.UsageError(_no_such_command(found, word), found)
        found = inner
    click.echo(found.get_help())


def _no_such_command(context: click.Context, word: str) -> str:
    if isinstance(context.command, click.Group):
        return no_such_command(word, context.command.list_commands(context))
    return f"`{context.command_path}` has no commands, so there is no {word!r}"


def _found(context: click.Context, words: tuple[str, ...]) -> click.Context | None:
    """Return a context of the command that *words* lead to, None if there is none."""
    found: click.Context | None = context
    for word in words:
        found = _inner(found, word) if found else None
    return found


def _inner(context: click.Context, word: str) -> click.Context | None:
    """Return a context of the command *word* of a group, None if there is none."""
    group = context.command
    inner = group.get_command(context, word) if isinstance(group, click.Group) else None
    return click.Context(inner, info_name=word, parent=context) if inner else None
