"""``kip30 completion``: the code that makes a shell complete ``kip30``."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_KIP30_COMPLETE"


@click.command("completion")
@click.argument("shell", metavar="SHELL", required=False, type=click.Choice(_SHELLS))
@click.pass_context
def command(context: click.Context, shell: str | None) -> None:
    """Print the code that makes SHELL complete kip30.

    For bash: eval "$(kip30 completion bash)" in ~/.bashrc. For zsh the same in ~/.zshrc. For fish:
    kip30 completion fish > ~/.config/fish/completions/kip30.fish
    """
    if shell is None:
        raise click.UsageError("name a shell: bash, zsh or fish", context)
    completion = get_completion_class(shell)
    if completion is not None:
        program = context.find_root().command
        click.echo(completion(program, {}, "kip30", _VARIABLE).source())
