"""A command that consists of others."""

import click
from typing_extensions import override

from kip30.config import did_you_mean


class Commands(click.Group):
    """A group that names the nearest command when it is asked for one that it has not."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            ctx.fail(f"no such command: {name}{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)
