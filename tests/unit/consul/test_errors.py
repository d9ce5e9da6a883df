"""Certain and uncertain outcomes of failed requests."""

import pytest

from kip30 import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30_backends.consul.errors import (
    CUT_OFF,
    HUNG_UP,
    LATE,
    NO_ANSWER,
    UNSENT,
    UNTRUSTED,
    Failure,
    NodeMissingError,
    TooShortError,
    translate,
)

CERTAIN = [
    (UNSENT, "[Errno 111] Connection refused", UnavailableError),
    (500, "No cluster leader", UnavailableError),
    (500, "rpc error making call: node is not the leader", UnavailableError),
    (500, "Raft leader not found in server lookup mapping", UnavailableError),
    (500, "rpc error getting client: failed to get conn: dial tcp: refused", UnavailableError),
    (500, "No path to datacenter", UnavailableError),
    (429, "Your IP is issuing too many concurrent connections", UnavailableError),
    (UNTRUSTED, "certificate verify failed", AuthenticationError),
    (403, "Permission denied: token lacks permission 'key:write'", AuthenticationError),
    (403, "ACL not found", AuthenticationError),
    (500, "rpc error making call: ACL not found", AuthenticationError),
    (400, "Client sent an HTTP request to an HTTPS server.", AuthenticationError),
    (400, "Invalid Session TTL '5', must be between [10s=24h0m0s]", TooShortError),
    (500, "apply failed: Missing node registration", NodeMissingError),
    (413, "Request body too large", StoreError),
    (404, "page not found", StoreError),
    (HUNG_UP, "closed", ClosedError),
]
UNCERTAIN = [
    (NO_ANSWER, "no answer in time"),
    (NO_ANSWER, "the server hung up"),
    (500, "leadership lost while committing log"),
    (500, "rpc error making call: EOF"),
    (502, "from some proxy"),
    (302, "moved"),
]


def _translated(failure: Failure, *, wrote: bool) -> Kip30Error:
    return translate(failure, wrote=wrote, server="h:1")


@pytest.mark.parametrize(("status", "said", "error"), CERTAIN, ids=str)
def test_certainly_not_done(status: int, said: str, error: type[Kip30Error]) -> None:
    for wrote in (True, False):
        assert type(_translated(Failure(status, said), wrote=wrote)) is error


@pytest.mark.parametrize(("status", "said"), UNCERTAIN)
def test_an_uncertain_failure_of_a_write_leaves_its_outcome_unknown(status: int, said: str) -> None:
    assert type(_translated(Failure(status, said), wrote=True)) is OutcomeUnknownError
    assert type(_translated(Failure(status, said), wrote=False)) is UnavailableError


def test_only_what_was_sent_may_have_been_done_when_it_is_closed() -> None:
    sent = Failure(CUT_OFF, "closed")
    assert type(_translated(sent, wrote=True)) is OutcomeUnknownError
    assert type(_translated(sent, wrote=False)) is ClosedError


@pytest.mark.parametrize("said", [" ", "<html>Bad Gateway</html>"])
def test_an_error_without_a_message_names_the_server_and_the_status(said: str) -> None:
    assert str(_translated(Failure(502, said), wrote=False)) == "Consul at h:1: HTTP status 502"


def test_a_timeout_is_reported_with_the_failure_before_it() -> None:
    refused, late = Failure(429, "too many concurrent connections"), Failure(NO_ANSWER, LATE)
    told = late.after(refused)
    assert told.said == f"{LATE}; before that: {refused.said}"
    assert late.after(told) == told
    assert late.after(late) == late.after(None) == late
    assert Failure(NO_ANSWER, "closed").after(refused).said == "closed"
    assert "raise http_max_conns_per_client" in str(_translated(told, wrote=False))


@pytest.mark.parametrize(
    ("status", "said", "advice"),
    [
        (500, "No known Consul servers", "has this agent joined the cluster?"),
        (500, "Remote DC has no server currently reachable", "check plugin.consul.datacenter"),
        (503, "rate limit exceeded for operation that can only be", "limits.request_limits"),
        (UNTRUSTED, "certificate verify failed: certificate has expired", "has expired: renew it"),
        (403, "token lacks permission 'session:write' on", 'session "kip30-sessions" {'),
        (403, "token lacks permission 'node:write' on", 'node "kip30-sessions" {'),
        (413, "Request body(599) too large, max size: 512 bytes", "limits.txn_max_req_len"),
        (500, "ACL system must be bootstrapped", "`consul acl bootstrap`"),
        (403, "Permission denied: not all keys were in the answer", 'key_prefix "<plugin'),
    ],
)
def test_an_error_message_names_the_remedy(status: int, said: str, advice: str) -> None:
    told = str(_translated(Failure(status, said), wrote=True))
    assert told.startswith(f"Consul at h:1: {said}: ")
    assert advice in told
