"""One candidate's nomination and the terms it leads."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import ClassVar

from typing_extensions import override

from kip30.dispatch import Delivery, Dispatcher
from kip30.errors import DefiniteError, Kip30Error, LeadershipLostError
from kip30.futures import fail, succeed
from kip30.records import Claim, new_nonce
from kip30.tenure import Tenure


class Leadership(Tenure):
    """One term of one candidate. It ends once, and for good; the next term is a new one."""

    lost_error: ClassVar[type[DefiniteError]] = LeadershipLostError

    def __init__(self, service: str, claim: Claim, data: bytes, wake: Callable[[], None]) -> None:
        """Lead *service* under *claim*; see `Tenure`."""
        super().__init__(claim, data, wake)
        self.service = service

    @property
    def candidate(self) -> str:
        """The candidate that leads."""
        return self.claim.name

    @property
    def epoch(self) -> int:
        """The fencing token: greater than that of every earlier term of the service."""
        return self.claim.entry.version.major

    @override
    def __repr__(self) -> str:
        return f"<leadership of {self.service!r} by {self.candidate!r}, epoch {self.epoch}>"


LeadershipListener = Callable[[Leadership], object]


class Candidacy:
    """One nomination, from nominate to resign, over any number of terms.

    Attributes:
        uncertain: Whether the newest claim was not answered.
        unheard: Whether any claim under the present nonce was not answered.
        held: What is to be given back when it leaves.
    """

    def __init__(
        self,
        candidate: str,
        data: bytes,
        dispatcher: Dispatcher,
        *,
        on_elected: LeadershipListener | None = None,
        on_lost: LeadershipListener | None = None,
    ) -> None:
        """Tell both listeners by *dispatcher*, neither waiting for the other."""
        self.candidate = candidate
        self.data = data
        self.elected: Delivery[Leadership] = Delivery(dispatcher, on_elected, "on_elected")
        self.lost: Delivery[Leadership] = Delivery(dispatcher, on_lost, "on_lost")
        self.nonce: str = new_nonce()
        self.leadership: Leadership | None = None
        self.tried: Future[None] = Future()
        self.resigned: Future[None] | None = None
        self.held: Claim | None = None
        self.uncertain = False
        self.unheard = False

    def leads(self) -> bool:
        """Say whether the candidate leads at this moment."""
        leadership = self.leadership
        return leadership is not None and leadership.is_valid()

    def silence(self) -> None:
        """Start no call of either listener any more."""
        self.elected.close()
        self.lost.close()

    def first_try_done(self, error: Kip30Error | None = None) -> None:
        """Let `nominate` return, or raise *error*."""
        if error is None:
            succeed(self.tried, None)
        else:
            fail(self.tried, error)
