"""The metrics of kip30; `docs/metrics.md` promises them to users."""

from kip30.metrics.instruments import Definition

LEADER = Definition(
    "kip30_leader",
    "gauge",
    "Whether a candidate of this process leads, by the lease clock.",
    ("service",),
)
HAS_LEADER = Definition(
    "kip30_has_leader",
    "gauge",
    "Whether the service has a leader, as this process knows.",
    ("service",),
)
LEADER_EPOCH = Definition(
    "kip30_leader_epoch",
    "gauge",
    "Epoch of the newest term that this process knows.",
    ("service",),
)
PAUSED = Definition(
    "kip30_paused",
    "gauge",
    "Whether a pause keeps candidates of this process from being elected.",
    ("service",),
)
LEADER_CHANGES_SEEN = Definition(
    "kip30_leader_changes_seen_total",
    "counter",
    "Terms that this process saw begin or found, of any candidate.",
    ("service",),
)
TERMS = Definition(
    "kip30_terms_total",
    "counter",
    "Ended terms of candidates of this process.",
    ("service", "ended"),
)
ELECTION_DURATION = Definition(
    "kip30_election_duration_seconds",
    "histogram",
    "Time from a vacancy that this process saw until it knew a leader.",
    ("service",),
)
OPERATION_DURATION = Definition(
    "kip30_operation_duration_seconds",
    "histogram",
    "Time from a request to the store until its answer.",
    ("operation", "outcome"),
)
SESSIONS_LOST = Definition("kip30_sessions_lost_total", "counter", "Lost sessions.", ("reason",))
LEASE_REMAINING = Definition(
    "kip30_lease_remaining_seconds",
    "gauge",
    "Time until the session ends by the lease clock unless it is renewed.",
    combined=min,
)
RENEWAL_DURATION = Definition(
    "kip30_renewal_duration_seconds",
    "histogram",
    "Time from a renewal of the session until its answer.",
)
STORE_LAST_SEEN = Definition(
    "kip30_store_last_seen_timestamp_seconds",
    "gauge",
    "Time of the last answer or notification of the store, since the epoch of Unix.",
)
CALLBACK_DURATION = Definition(
    "kip30_callback_duration_seconds",
    "histogram",
    "Time that callbacks and listeners of the program took.",
    ("kind",),
)
UNREADABLE_RECORDS = Definition(
    "kip30_unreadable_records",
    "gauge",
    "Records that this kip30 cannot read, in all that this process watches.",
)
MEMBERS = Definition(
    "kip30_members", "gauge", "Members of a group that this process listens to.", ("group",)
)
BUILD_INFO = Definition("kip30_build_info", "gauge", "1 for each open locator.", ("version",))

DEFINITIONS = (
    LEADER,
    HAS_LEADER,
    LEADER_EPOCH,
    PAUSED,
    LEADER_CHANGES_SEEN,
    TERMS,
    ELECTION_DURATION,
    OPERATION_DURATION,
    SESSIONS_LOST,
    LEASE_REMAINING,
    RENEWAL_DURATION,
    STORE_LAST_SEEN,
    CALLBACK_DURATION,
    UNREADABLE_RECORDS,
    MEMBERS,
    BUILD_INFO,
)
"""All of them, in the order in which exporters show them."""
