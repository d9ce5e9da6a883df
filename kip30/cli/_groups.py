"""A command that consists of others."""

from collections.abc import Sequence

import click
from typing_extensions import override

from kip30.cli._help_texts import with_help
from kip30.config import did_you_mean


def no_such_command(name: str, known: Sequence[str]) -> str:
    """Return what is wrong with *name*, and the command that may be meant, else all *known*."""
    return f"no such command: {name}{did_you_mean(name, known) or f'; there are {_list(known)}'}"


def _list(known: Sequence[str]) -> str:
    return f"{', '.join(known[:-1])} and {known[-1]}"


class Commands(click.Group):
    """A group that names the nearest command when it is asked for one that it has not."""

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_help(command)

    @override
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.ctx is None:  # click does not say whose option lacks its value
                error.ctx = self._invoked(ctx)
            raise

    def _invoked(self, ctx: click.Context) -> click.Context | None:
        name = ctx.invoked_subcommand
        command = self.get_command(ctx, name) if name else None
        return click.Context(command, info_name=name, parent=ctx) if command else None

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            ctx.fail(no_such_command(name, known))
        return super().resolve_command(ctx, args)
