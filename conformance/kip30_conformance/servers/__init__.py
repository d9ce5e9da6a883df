"""Real servers for tests, and faults between them and their clients.

A process of its own, the supervisor, holds the servers and the proxies before them. Whatever
happens to the process that requested them, none of them is left running.
"""

from kip30_conformance.servers.ensemble import Ensemble
from kip30_conformance.servers.installed import ServerMissingError
from kip30_conformance.servers.link import Counts, Link
from kip30_conformance.servers.node import Node
from kip30_conformance.servers.starting import SIZES, STORES, attach, start

__all__ = [
    "SIZES",
    "STORES",
    "Counts",
    "Ensemble",
    "Link",
    "Node",
    "ServerMissingError",
    "attach",
    "start",
]
