"""``kip30 run --listen``: the health endpoint of a runner."""

from collections.abc import Sequence
from functools import partial

from kip30.config import CommonSettings, Properties, Value, build
from kip30.errors import ClosedError, LifecycleError
from kip30.runner import Job
from kip30.runner.service_election import StoreContest
from kip30.serving.health import HealthServer
from kip30.serving.service_state import Nomination


def health_of(
    contest: StoreContest, job: Job, properties: Properties, address: str, hosts: Sequence[str]
) -> HealthServer:
    """Return a server at *address* that answers about the candidate of *contest*.

    Raises:
        UsageError: *address* or one of *hosts* cannot be used. Nothing was opened.
        OSError: The address is in use, or may not be used. Nothing is listening.
        UnavailableError: The system has no thread to spare. Nothing is listening.
    """
    settings = build(CommonSettings, metered(properties))

    def nominations() -> list[Nomination]:
        terms = contest.candidates()
        is_nominated = job.candidate in terms
        return [Nomination(job.service, job.candidate, is_nominated, terms.get(job.candidate))]

    return HealthServer(
        contest.locator,
        nominations,
        address,
        hosts=hosts,
        metrics=partial(_metrics, contest) if settings.is_metered else None,
        session_timeout_seconds=settings.session_timeout_seconds,
    )


def metered(properties: Properties) -> Properties:
    """Return *properties*, by which a locator measures what it does unless they forbid it."""
    return Properties({"plugin.metrics": Value("true", "--listen")}) | properties


def _metrics(contest: StoreContest) -> str:
    try:
        return contest.locator.metrics().text()
    except (LifecycleError, ClosedError):  # not started yet, or closed already
        return ""
