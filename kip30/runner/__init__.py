"""`kip30 run`: a command on exactly one of many machines, never on two.

`run` does it for the leader of a service; `run_shares` runs a command on each of many machines for
a share of the work that no other machine has, and `run_items` one for each item of such a share.
The following holds for all of them; `run_items` has a guard for each of its commands.

The runner holds the election; a guard process, started before it is needed, holds the command.

* Runner killed: the kernel kills the command's process group at once, the guard everything else
  descends from it, and only then releases the lease that runner and guard share. In the grace the
  guard extends the grace instead, until the lease, as the guard last saw it, can end.
* Guard killed: the kernel does the same, the runner inherits the rest and kills it.
* Runner stopped, store unreachable: the guard ends the command before the lease can end.
* Guard stopped: the runner kills it if the command must end, otherwise the kernel does before the
  lease, as the guard last saw it, can end.
* Both stopped, or both killed: the kernel kills the command and its process group.

The command and its descendants are ended with a grace: by a signal first, by SIGKILL at the end.
`kip30.runner.guard.shutdown` says which process gets which signal.

What is *not* promised:

* When both are stopped or killed at once, descendants that left the command's process group keep
  running. So do processes that a stopped runner inherits from a killed guard.
* A process that cannot be killed holds the term as long as the runner lives: one in
  uninterruptible sleep, or one that changed to a user the runner may not signal.
* Leadership that a store takes away before the lease's end may already belong to another candidate
  when the runner learns of it. Fence writes that must not happen then (`KIP30_EPOCH`).
* That a stopped job continues. `kip30.runner.terminal` describes the terminal of a command: Ctrl-Z
  stops command and runner, the guard ends the command before the lease can end, and the runner
  waits again once it is continued. A command of `run_items` has no terminal.
"""

from kip30.runner.descriptors import inherited_descriptors
from kip30.runner.item_runner import run_items
from kip30.runner.job import GRACE_SECONDS, LOST_STATUS, WAITED_STATUS, Ending, Job, RunOutcome
from kip30.runner.protocols import Contest, Term
from kip30.runner.runner import run
from kip30.runner.share_job import ShareJob
from kip30.runner.share_protocols import HeldItem, HeldShare, ItemWorkshare, Workshare
from kip30.runner.share_runner import run_shares
from kip30.runner.waiting import Say

__all__ = [
    "GRACE_SECONDS",
    "LOST_STATUS",
    "WAITED_STATUS",
    "Contest",
    "Ending",
    "HeldItem",
    "HeldShare",
    "ItemWorkshare",
    "Job",
    "RunOutcome",
    "Say",
    "ShareJob",
    "Term",
    "Workshare",
    "inherited_descriptors",
    "run",
    "run_items",
    "run_shares",
]
