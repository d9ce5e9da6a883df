"""Recorded histories, and whether they are linearizable.

A suite records what its clients did with `recorder.HistoryRecorder`, asks
`evidence.missing_evidence` whether that proves anything, and `linearizability.check` whether some
order of it explains every answer. `linearizability.check_key` is a function over the rows of one
key and nothing else, so that it can run wherever the rows are.

A workload to be judged should write every value once and record versions: then judging takes time
in proportion to the rows. Otherwise it is exponential in the number of concurrent operations, and
bounded by a budget.
"""
