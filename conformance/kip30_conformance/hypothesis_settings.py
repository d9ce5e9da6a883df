"""Settings of the checks that search for counterexamples."""

from hypothesis import HealthCheck, settings

searching = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # examples share a client, and reset what they use
        HealthCheck.differing_executors,  # one check runs in the subclass of every store
        HealthCheck.too_slow,
    ],
)
"""Decorates a check that takes ``@given`` arguments."""
