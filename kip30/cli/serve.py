"""``kip30 serve``: a page in the browser that shows the store."""

from pathlib import Path

import click

from kip30.cli import _parameters
from kip30.cli._failures import say
from kip30.cli._follow import stay
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.serving.access_token import AccessToken, read_token
from kip30.serving.listen_address import LOOPBACK, ListenAddress
from kip30.serving.page_server import PageServer

_ALL_ADDRESSES = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104  nothing listens here


@click.command("serve")
@click.option(
    "--listen",
    "address",
    metavar="ADDR",
    default=f"{LOOPBACK}:8030",
    show_default=True,
    help="Serve at HOST:PORT, or at PORT of 127.0.0.1.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name by which browsers ask for this server; IP addresses need not be given.",
)
@click.option("--no-values", is_flag=True, help="Show keys, and not their values.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=_parameters.FilePath(),
    help="File with the token to ask for, which only its owner may read; else a random token.",
)
@opens_store
def command(
    choice: StoreChoice,
    *,
    address: str,
    hosts: tuple[str, ...],
    no_values: bool,
    token_file: Path | None,
) -> int:
    """Serve a page that shows the store, until interrupted, and print its address.

    The page shows the services with their leaders, lines and pauses, the terms of each, the
    members of groups, the tree of keys, the servers, and what wants attention. It changes nothing.
    While a browser shows it, the store is read every 2 s, and every 30 s on Cassandra; otherwise
    the store is asked nothing.

    The address contains a token. Without it the server tells nothing about the store. The token
    of a file is not printed. The server speaks no TLS: see docs/serve.md for a proxy before it.
    """
    token = AccessToken() if token_file is None else read_token(token_file)
    properties = choice.properties()
    with PageServer(properties, address, token, hosts=hosts, shows_values=not no_values) as server:
        host, port = server.address
        shown = ListenAddress(hosts[0] if hosts else _ALL_ADDRESSES.get(host, host), port)
        click.echo(f"http://{shown}/#token={'' if token_file else token.text}")
        if token_file:
            say(f"the token is that of {str(token_file)!r}; Ctrl-C ends the server")
        else:
            say("this address shows the store to all who have it; Ctrl-C ends the server")
        return stay(None, lambda _: None, lambda _: None)
