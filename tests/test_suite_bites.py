"""A suite that nothing fails proves nothing: every mutant is convicted by the case named here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kip30_conformance.polling import time_scale

pytestmark = pytest.mark.large

SOUND = "kip30_backends.embedded:EmbeddedBackend"
SUITES = Path(__file__).parent / "mutants" / "suites.py"

CONVICTIONS = {
    "broken_storage:PutOverwrites": "TestStorage::test_S03_put_existing",
    "broken_storage:UpdateCreates": "TestStorage::test_S04_update_missing",
    "broken_storage:StaleReads": "TestStorage::test_S14_cross_client_freshness",
    "broken_storage:LostUpdate": "TestStorageRaces::test_S11_one_update_of_a_version",
    "broken_storage:FenceIgnored": "TestFencing::test_L10_stale_leader_fenced[update]",
    "broken_storage:SetCreatesOnly": "TestStorageSet::test_S40_set_replaces",
    "broken_storage:SetUpdatesOnly": "TestStorageSet::test_S40_set_creates",
    "broken_storage:SetIgnoresFence": "TestFencing::test_S41_set_by_a_former_leader",
    "broken_storage:SetIsRepeated": "TestStorageSet::test_S42_newer_value_stays",
    "broken_storage:MinorIgnored": (
        "TestStorageVersions::test_S43_version_of_present_key[compare_and_set]"
    ),
    "broken_storage:ZeroMeansAbsent": (
        "TestStorageVersions::test_S43_version_of_absent_key[compare_and_set]"
    ),
    "broken_storage:EpochZeroMeansNobody": "TestFencing::test_S44_epoch_never_issued[set]",
    "broken_storage:RefusesAtRandom": "TestStorageHistories::test_S48_no_refusal_without_cause",
    "broken_claims:TwoWinners": "TestElection::test_L03_candidates_of_one_client",
    "broken_claims:EpochReset": "TestTerms::test_L08_epoch_outlives_all_clients",
    "broken_claims:LeaderForEver": "TestElectionFaults::test_L14_zombie_leader",
    "broken_claims:MembersAllAsOld": "TestVacancies::test_L41_claims_at_a_vacancy",
    "broken_claims:MemberForEver": "TestMembershipFaults::test_M08_crash_leave",
    "broken_claims:LeavesLate": "TestMembership::test_M05_leave_visible",
    "broken_listeners:DropsLastEvent": "TestValueListeners::test_R05_last_of_a_burst",
    "broken_listeners:Duplicates": "TestValueListeners::test_R07_no_duplicate_version",
    "broken_listeners:Reorders": "TestValueListeners::test_R04_order_per_key",
    "broken_listeners:SubscribesAfterReading": (
        "TestValueListeners::test_R28_change_while_subscribing"
    ),
    "broken_listeners:KeySetMissesRemove": "TestKeySetListeners::test_R09_keyset_add_remove",
    "broken_views:OrderStandsStill": "TestMembershipViews::test_M28_orders_of_one_after_the_other",
    "broken_views:LosesUpdates": "TestMembership::test_M01_update_visible",
    "broken_members:CountsEachIdForItself": "TestIncarnations::test_M21_order_of_joins",
    "broken_members:KeepsThePlace": "TestIncarnations::test_M21_order_of_joins_again",
    "broken_members:JoinsAllAgain": "TestWithoutRejoin::test_M24_lost_for_good",
    "broken_members:KeepsTheId": "TestWithoutRejoin::test_M24_id_is_free",
    "broken_neighbours:OneHidesAll": "TestNeighbour::test_N11_rolling_upgrade",
    "broken_neighbours:OneSilencesWatch": "TestNeighbour::test_N04_unreadable_record[member]",
    "broken_neighbours:NeverReadableAgain": "TestNeighbour::test_N09_value_readable_again",
    "broken_forks:RefusesForks": "TestFork::test_G14_forking",
    "broken_scanning:SkipsCuts": "TestScanning::test_P02_keys_around_cuts[7]",
    "broken_scanning:RepeatsSpans": "TestScanning::test_P02_multiples_of_a_span[7]",
    "broken_scanning:ReadsOnePage": "TestScanning::test_P02_many_pages",
    "broken_scanning:ShowsNewest": "TestScanning::test_P05_writes_meanwhile[3]",
    "broken_scanning:PositionStands": "TestScanning::test_P05_acknowledged_writes_are_seen",
    "broken_scanning:TakesPrefixForNamespace": "TestScanning::test_P02_part_of_a_store[2-a-keys0]",
    "broken_scanning:AcceptsForeignPositions": "TestScanning::test_P06_foreign_position",
    "broken_scanning:KeepsCopiesOpen": "TestScanning::test_P47_nothing_is_left",
    "broken_scanning:MixesClaimsIn": "TestScanning::test_P02_claims_are_apart",
    "broken_rules:PutManyReplaces": "TestDriver::test_S45_put_many_existing",
    "broken_rules:StaleReadsOfMany": "TestDriver::test_S46_fetch_many_is_fresh",
    "broken_rules:ListsTenThousand": "TestDriver::test_S47_list_beyond_a_bound",
    "broken_rules:EpochsToCome": "TestDriver::test_L33_epoch_to_come[1]",
    "broken_rules:ReleasesByName": "TestDriver::test_L34_release_of_a_former_claim[same]",
    "broken_rules:ClaimsOnce": "TestDriver::test_M32_claim_again",
    "broken_rules:IncarnationMoves": "TestDriver::test_M33_incarnation_stays",
    "broken_rules:OrderNeverMoves": "TestDriver::test_G27_order_moves[Kind.VALUE]",
    "broken_rules:UpdatedForEver": "TestDriver::test_M34_crash_after_update",
    "broken_rules:WatchEndsWithSession": "TestDriver::test_R27_group_watch_outlives_session",
    "broken_rules:NeverSentUnlessWaitedFor": "TestDriver::test_G29_unwaited_future[write]",
    "broken_rules:ForeignErrors": "TestDriver::test_G28_errors_while_closing",
    "broken_rules:SaysNotDone": "TestDriver::test_G28_errors_of_refusals",
    "broken_leases:FenceComparedFirst": "TestFenceRace::test_L38_race_with_the_next_leader",
    "broken_leases:LastsLonger": "TestLease::test_L39_margin",
    "broken_leases:WithoutMargin": "TestLease::test_L39_margin",
    "broken_leases:DatesLeaseFromAnswer": "TestLease::test_L40_late_answer_to_a_claim",
    "broken_leases:DatesRenewalFromAnswer": "TestLease::test_L40_late_answer_to_a_renewal",
    "broken_guards:GuardComparedFirst": "TestGuardRace::test_S39_guard_race",
    "broken_guards:GuardComparedLast": "TestGuards::test_S37_guard_before_condition[update]",
    "broken_guards:GuardsForgottenByMany": "TestGuards::test_S34_stale_guard[put_many-0]",
    "broken_guards:FirstGuardOnly": "TestGuards::test_S34_stale_guard[update-3]",
    "broken_guards:GuardOfAnyVersion": "TestGuards::test_S35_guard_made_again[set]",
    "broken_close:CloseLeaksThread": "TestLifecycle::test_G10_no_leak",
}

CONVICTIONS_ALONE = {
    "broken_storage:FenceIgnored": "TestStorageHistories::test_S48_no_refusal_without_cause",
    "broken_boundaries:FenceOfAnyNamespace": "TestIsolation::test_G30_fence[put_many]",
    "broken_boundaries:FenceInAnyCase": "TestLookalike::test_G31_services[case]",
    "broken_boundaries:GuardOfAnyNamespace": "TestIsolation::test_G30_guard[put]",
    "broken_boundaries:LeavesEverywhere": "TestIsolation::test_G30_what_ends[leave]",
    "broken_boundaries:PrunesEverywhere": "TestIsolation::test_G30_prune",
    "broken_boundaries:ReleasesBySession": (
        "TestNonce::test_M50_release_of_a_former_claim[release-same]"
    ),
    "broken_boundaries:ManyReleasedBySession": (
        "TestNonce::test_M50_release_of_a_former_claim[release_many-same]"
    ),
    "broken_boundaries:JoinsGroupAndId": "TestLookalike::test_M51_group_and_id",
    "broken_boundaries:ListsLike": "TestLookalike::test_G31_namespaces[wildcard]",
    "broken_boundaries:KeysInAnyCase": "TestLookalike::test_G31_keys[case]",
    "broken_boundaries:ReadsAThousand": "TestPageBound::test_S49_many_keys",
    "broken_boundaries:WritesAThousand": "TestPageBound::test_S49_many_keys",
    "broken_boundaries:ShowsAThousandKeys": "TestPageBound::test_S49_many_keys",
    "broken_boundaries:ShowsAThousandMembers": "TestPageBound::test_M52_many_members",
    "broken_boundaries:ReleasesAThousand": "TestPageBound::test_M52_many_members",
    "broken_leases:DatesLeaseFromAnswer": "TestLease::test_L45_no_lease_outlasts_the_stores",
    "broken_leases:DatesRenewalFromAnswer": "TestLease::test_L45_no_lease_outlasts_the_stores",
    "broken_leases:WholeSecondsInStore": "TestLease::test_L45_no_lease_outlasts_the_stores",
    "broken_leases:WholeSecondsGranted": "TestLease::test_L46_what_was_asked_for",
    "broken_rules:SaysItDoesNotBlock": "TestEventLoop::test_G32_calls_that_do_not_block",
    "broken_rules:WatchEndsWithSession": (
        "TestListenerFault::test_R30_group_listener_after_a_pause"
    ),
    "broken_listeners:ManyNotifyNobody": "TestVerbEvent::test_R29_created[put_many]",
    "broken_listeners:SetsNotifyNobody": "TestVerbEvent::test_R29_changed[set]",
    "broken_nonces:ReleasesByNonce": "TestNonce::test_M62_release_of_a_replaced_record[release]",
    "broken_nonces:ReleasesLaterClaim": (
        "TestNonce::test_M50_release_of_a_former_claim[release-same_nonce]"
    ),
    "broken_nonces:ClaimsServiceOnce": "TestNonce::test_L44_claim_again",
    "broken_nonces:UpdateKeepsNonce": "TestNonce::test_S50_record_of_each_write[write]",
    "broken_nonces:ManyShareANonce": "TestNonce::test_S50_record_of_each_write[write_many]",
}
"""Those of a store that is known by its configuration alone, as another program's backend is."""


@pytest.mark.parametrize(("mutant", "case"), CONVICTIONS.items())
def test_mutant_is_convicted(mutant: str, case: str, tmp_path: Path) -> None:
    assert verdicts(f"mutants.{mutant}", [case], tmp_path, patience=0.25) == {case: "convicted"}


@pytest.mark.parametrize(("mutant", "case"), CONVICTIONS_ALONE.items())
def test_mutant_is_convicted_by_its_configuration_alone(
    mutant: str, case: str, tmp_path: Path
) -> None:
    found = verdicts(f"mutants.{mutant}", [case], tmp_path, patience=0.25, alone=True)
    assert found == {case: "convicted"}


def test_the_sound_store_is_acquitted(tmp_path: Path) -> None:
    cases = list(CONVICTIONS.values())
    assert verdicts(SOUND, cases, tmp_path) == dict.fromkeys(cases, "passed")


def test_the_sound_store_is_acquitted_by_its_configuration_alone(tmp_path: Path) -> None:
    cases = list(CONVICTIONS_ALONE.values())
    assert verdicts(SOUND, cases, tmp_path, alone=True) == dict.fromkeys(cases, "passed")


def verdicts(
    backend: str, cases: list[str], folder: Path, *, patience: float = 1, alone: bool = False
) -> dict[str, str]:
    """Run *cases* against *backend* and return what became of each.

    *alone* leaves the suites nothing but the configuration.
    """
    report = folder / "verdicts"
    scale = time_scale() * patience
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *("-o", "deadlines=given"),
            *(f"--basetemp={folder / 'work'}", *(f"{SUITES}::{case}" for case in cases)),
        ],
        env={
            **os.environ,
            "KIP30_MUTANT": backend,
            "KIP30_TIME_SCALE": str(scale),
            "KIP30_VERDICTS": str(report),
            **({"KIP30_ALONE": "yes"} if alone else {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), ended.stdout + ended.stderr
    return dict(line.split() for line in report.read_text().splitlines())
