"""A health endpoint over HTTP for programs that take part in elections.

`Health` answers load balancers and probes; `kip30 run --listen` is made of the same parts. It tells
no values, no keys, and no data of candidates. All answers but the metrics come from memory: no
request waits for the store, or sends it anything.

* ``/leader``: 200 while a candidate of this process leads, by the clock of its lease at that very
  moment; else 503. Of two processes that are asked at one moment no two answer 200, provided that
  their clocks run at the same rate, within the lease margin.
* ``/replica``: 200 while one is nominated, none leads, and the store has answered within a session
  timeout. ``/readiness``: 200 if either holds.
* ``/liveness``: 200 while the loop of the program is not stuck, whatever the store does.
* ``/service``: always 200. Its body, which the others above but ``/liveness`` have as well, is a
  JSON object for each candidate, on a line of its own.
* ``/metrics``, if there are any. ``/`` lists the paths.

Of several services all must fulfil a condition; ``?service=NAME`` asks about one.

What is *not* promised: a balancer learns of a change when it asks next, and an answer is as old as
its way. So a former leader may still be sent requests, and its writes need a fence.

`kip30 serve` is another set of paths over the same server, `kip30.serving.page_server`.

The server is hardened for a network that is not hostile: see `kip30.serving.http_server`. Put a
proxy before it where it is.
"""

from kip30.serving.health import Health

__all__ = ["Health"]
