"""``kip30 help``: the help of a command."""

import click

from kip30.config import did_you_mean


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
    found = _found(root, words)
    if found is None:
        known = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
        raise click.UsageError(
            f"no such command: {' '.join(words)}{did_you_mean(words[0], known)}", context
        )
    click.echo(found.get_help())


def _found(context: click.Context, words: tuple[str, ...]) -> click.Context | None:
    """Return a context of the command that *words* lead to, None if there is none."""
    for word in words:
        group = context.command
        inner = group.get_command(context, word) if isinstance(group, click.Group) else None
        if inner is None:
            return None
        context = click.Context(inner, info_name=word, parent=context)
    return context
