"""`kip30 run`: a command on exactly one of many machines, never on two.

The runner holds the election; a guard process, started before it is needed, holds the command.

* Runner killed: the kernel kills the command's process group at once, the guard everything else
  descends from it, and only then is the lease let go that runner and guard share. In the grace
  the guard lets the grace go on instead, until the lease, as the guard last saw it, can end.
* Guard killed: the kernel does the same, the runner inherits the rest and kills it.
* Runner stopped, store unreachable: the guard ends the command before the lease can end.
* Guard stopped: the runner kills it if the command has to end, else the kernel does before
  the lease, as the guard last saw it, can end.
* Both stopped, or both killed: the kernel kills the command and its process group.

The command and its descendants are ended with a grace: by a signal first, by SIGKILL at the end.
`kip30.runner.guard.shutdown` says which process gets which signal.

What is *not* promised:

* When both are stopped or killed at once, descendants that left the command's process group
  go on. So does what a runner that is stopped inherits from a guard that is killed.
* A process that cannot be killed holds the term as long as the runner lives: one in
  uninterruptible sleep, or one that changed to a user the runner may not signal.
* Leadership that a store takes away before the lease's end can be with another already when
  the runner hears of it. Fence what must not be written then (`KIP30_EPOCH`).
* Job control. The command can read and write the terminal, but it has no controlling one;
  Ctrl-C reaches it through the runner alone, and so once. Ctrl-Z stops the runner alone: the guard
  ends the command before the lease can end, and the runner waits again once it is continued.
"""

from kip30.runner.descriptors import inherited_descriptors
from kip30.runner.job import GRACE_SECONDS, LOST_STATUS, WAITED_STATUS, Ending, Job, RunOutcome
from kip30.runner.protocols import Contest, Term
from kip30.runner.runner import Say, run

__all__ = [
    "GRACE_SECONDS",
    "LOST_STATUS",
    "WAITED_STATUS",
    "Contest",
    "Ending",
    "Job",
    "RunOutcome",
    "Say",
    "Term",
    "inherited_descriptors",
    "run",
]
