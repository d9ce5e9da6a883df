"""Keeps forks out of the moments in which a thread works inside gRPC.

gRPC mends its own state in a forked child, but only if no other thread changes that state at the
moment of the fork: otherwise the child crashes or its channels never connect. gRPC documents that
the application has to see to this. A thread that merely waits in gRPC for an answer does no harm,
so a fork waits for a short time only, whether or not the store answers.
"""

from kip30.forks import Uninterrupted

_FORK_WAITS_SECONDS = 1.0

inside_grpc = Uninterrupted(_FORK_WAITS_SECONDS)
"""Entered around everything that a thread of kip30 does in gRPC."""
