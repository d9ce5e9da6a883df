"""Mutants of restoring and repairing: records written once, by one driver, and their counts."""

from .mutant import Mutant, mutant

_APPLIER = "tests/unit/pipeline/test_applier.py"
_REPLACE = "tests/unit/pipeline/test_applier_replace.py"
_STORES = "tests/pipeline/test_applier_stores.py"
_RESTORE = "tests/pipeline/test_restore.py"
_WRITES = "tests/pipeline/test_restore_writes.py"
_FENCES = "tests/pipeline/test_fences.py::test_tasks_of_a_former_driver_write_nothing"
_RATE = "tests/pipeline/test_rate.py::test_no_second_has_more_than_the_rate[4]"
_REPAIR = "tests/pipeline/test_repair.py"
_RAW = "tests/pipeline/test_raw_feed.py"
_FRAMES = "tests/pipeline/test_frame_writer.py"

_IN_CONFLICT = 'Decision(WriteOutcome.CONFLICT, None, "it is there")'

WRITING: dict[str, Mutant] = {
    "P08-writes-carry-no-fence": mutant(
        f"{_APPLIER}::test_a_former_driver_writes_nothing_and_asks_nothing_more",
        ("write/applier.py", "one.expected, fence)", "one.expected)"),
    ),
    "P08-tasks-get-no-fence": mutant(
        f"{_FENCES}[migrated]",
        ("spark/bulk_write.py", "fence=self.fence, rate=self._share", "rate=self._share"),
    ),
    "P08-a-repair-has-no-fence": mutant(
        f"{_FENCES}[repaired]",
        ("compare/repair.py", "            fence=fence,\n", "            fence=None,\n"),
    ),
    "P08-a-feed-has-no-fence": mutant(
        f"{_FENCES}[fed]", ("follow/feed_sinks.py", "fence=fence,", "fence=None,")
    ),
    "P08-batches-go-on-after-a-refused-fence": mutant(
        f"{_APPLIER}::test_a_driver_that_is_superseded_meanwhile_stops",
        ("write/batch_writer.py", "while unsent and not self._fenced and", "while unsent and"),
    ),
    "P08-the-next-call-forgets-the-refused-fence": mutant(
        f"{_APPLIER}::test_a_former_driver_writes_nothing_and_asks_nothing_more",
        (
            "write/batch_writer.py",
            "        batch = _Batch(writes)\n",
            '        batch = _Batch(writes)\n        self._fenced = ""\n',
        ),
    ),
    "P08-any-driver-has-a-fence": mutant(
        "tests/unit/pipeline/test_run_leader.py::test_a_second_driver_is_refused",
        (
            "write/run_leader.py",
            "self._election.leadership(self._name)",
            "self._election.get_leader()",
        ),
        (
            "write/run_leader.py",
            "Fence(term.service, term.epoch)",
            "Fence(service_of(self._run), term.epoch)",
        ),
    ),
    "P09-a-rerun-writes-before-it-looks": mutant(
        f"{_APPLIER}::test_it_looks_before_it_writes_only_where_something_is",
        ("write/batch_writer.py", "self._looks_first = batch.met", "self._looks_first = False"),
    ),
    "P09-a-nonce-of-the-attempt": mutant(
        f"{_STORES}::test_a_rerun_writes_nothing[embedded]",
        ("write/applier.py", "Nonces(run)", 'Nonces(f"{run}-{id(self)}")'),
    ),
    "P09-replaces-without-a-look": mutant(
        f"{_REPLACE}::test_a_batch_that_is_replayed_writes_nothing",
        (
            "write/batch_writer.py",
            "return self._looks_first or any(",
            "return self._looks_first and any(",
        ),
    ),
    "P10-a-conflict-is-overwritten": mutant(
        f"{_RESTORE}::test_other_values_stay_and_are_named",
        ("write/outcomes.py", "return Condition.ABSENT", "return Condition.ANY"),
    ),
    "P10-same-counts-as-written": mutant(
        f"{_RESTORE}::test_other_values_stay_and_are_named",
        (
            "write/decisions.py",
            "WriteOutcome.WRITTEN if is_own else WriteOutcome.SAME",
            "WriteOutcome.WRITTEN",
        ),
    ),
    "P11-the-limit-itself-is-too-large": mutant(
        f"{_APPLIER}::test_data_over_the_limit_is_rejected_alone",
        ("write/change_selection.py", "len(data) > limit:", "len(data) >= limit:"),
    ),
    "P10-a-conflict-of-a-write-is-lost-in-silence": mutant(
        f"{_FRAMES}::test_another_value_stays_and_is_named_when_all_else_is_written",
        (
            "spark/frame_writer.py",
            "_TO_LOOK_AT = (WriteOutcome.CONFLICT.value, ",
            "_TO_LOOK_AT = (",
        ),
    ),
    "P11-what-was-rejected-is-no-finding": mutant(
        f"{_WRITES}::test_a_rejected_record_of_a_snapshot_is_a_finding_and_is_not_written",
        (
            "transfer/restore_and_migrate.py",
            '_TO_LOOK_AT = ("conflict", "rejected")',
            '_TO_LOOK_AT = ("conflict",)',
        ),
    ),
    "P11-what-was-rejected-is-written": mutant(
        f"{_WRITES}::test_a_rejected_record_of_a_snapshot_is_a_finding_and_is_not_written",
        ("spark/bulk_write.py", "WriteOutcome.REJECTED.value, rejected)", "None, rejected)"),
    ),
    "P12-what-is-equal-is-never-its-own": mutant(
        f"{_STORES}::test_a_task_that_is_killed_is_counted_right_when_repeated[embedded]",
        ("write/decisions.py", "is_own = found.nonce == write.nonce", "is_own = False"),
    ),
    "P12-each-attempt-of-a-write-is-a-run-of-its-own": mutant(
        f"{_FRAMES}::test_a_task_that_is_repeated_writes_the_same",
        ("spark/frame_writer.py", "run=self._run, fence", "run=uuid4().hex, fence"),
    ),
    "P12-a-nonce-without-the-version": mutant(
        f"{_APPLIER}::test_nonces_are_of_run_key_and_source",
        ("write/outcomes.py", '{len(key)}:{key}{len(source)}:{source}"', '{len(key)}:{key}"'),
    ),
    "P12-of-a-key-given-twice-the-last-is-written": mutant(
        f"{_APPLIER}::test_of_a_key_with_two_values_one_is_written_whatever_the_order[1]",
        ("write/applier.py", "list(records), prefers_smallest)", "list(records), prefers_last)"),
    ),
    "P13-what-was-looked-at-needs-no-condition": mutant(
        f"{_STORES}::test_a_raced_key_conflicts_alone[embedded]",
        (
            "write/batch_writer.py",
            "self._futures([*writes.values()])",
            (
                "self._futures([one._replace(condition=Condition.ANY) if self._looks_first else one"
                " for one in writes.values()])"
            ),
        ),
    ),
    "P13-all-of-a-batch-conflicts": mutant(
        f"{_STORES}::test_a_raced_key_conflicts_alone[embedded]",
        (
            "write/batch_writer.py",
            "                batch.refused[number] = writes[number]",
            f"                batch.decide(number, {_IN_CONFLICT})",
        ),
    ),
    "P15-each-task-has-the-whole-rate": mutant(
        _RATE,
        ("spark/bulk_write.py", "self.rate / sharers(self.rate, self.slots)", "self.rate"),
    ),
    "P15-a-burst-of-a-second": mutant(
        "tests/unit/pipeline/test_rate_limit.py::test_an_applier_keeps_its_rate",
        ("write/rate_limit.py", "_BURST_SECONDS = 0.05", "_BURST_SECONDS = 1.0"),
    ),
    "P16-every-batch-waits-for-a-store-that-is-silent": mutant(
        f"{_APPLIER}::test_a_store_that_does_not_answer_is_not_asked_for_the_rest",
        ("write/batch_writer.py", "self.silence = failures[0]", "self.silence = None"),
    ),
    "P16-a-term-outlives-unknown-outcomes": mutant(
        f"{_WRITES}::test_writes_without_an_answer_are_decided_again",
        ("write/run_leader.py", "            self._end_term()\n", ""),
    ),
    "P16-unknown-counts-as-done": mutant(
        f"{_WRITES}::test_writes_without_an_answer_are_decided_again",
        (
            "transfer/restore_and_migrate.py",
            'if counts["unknown"]:',
            'if counts["unknown"] and not sum(counts.values()):',
        ),
    ),
    "P20-the-left-side-is-not-compared": mutant(
        f"{_REPAIR}::test_keys_that_changed_since_the_diff_are_conflicts",
        (
            "compare/repair_writes.py",
            "if entry.version != expected:",
            "if entry.version < expected:",
        ),
    ),
    "P20-the-right-side-is-not-compared": mutant(
        f"{_REPAIR}::test_keys_that_changed_since_the_diff_are_conflicts",
        ("compare/repair_writes.py", "Version(**version)))", "Condition.ANY))"),
        ("compare/repair_writes.py", "import Entry, Version", "import Condition, Entry, Version"),
    ),
    "P20-a-raw-left-side-is-not-compared": mutant(
        f"{_RAW}::test_a_change_at_the_source_since_its_scan_is_a_conflict",
        ("compare/repair_writes.py", ".when(has & ~is_same,", ".when(has & wanted.isNull(),"),
    ),
    "P20-what-is-hidden-by-now-is-deleted": mutant(
        f"{_RAW}::test_a_key_that_is_hidden_since_the_diff_is_not_deleted",
        ("compare/repair_writes.py", ".when(~has & is_unknown,", ".when(has & is_unknown,"),
    ),
    "P09-keys-that-become-one-are-written": mutant(
        f"{_RESTORE}::test_keys_that_would_become_one_key_are_rejected",
        ("spark/bulk_write.py", "moved in self.doubles", "moved != key and moved in self.doubles"),
    ),
    "P20-extra-keys-are-deleted-unasked": mutant(
        f"{_REPAIR}::test_a_dry_run_and_what_it_planned",
        (
            "compare/repair.py",
            "        if not self._options.delete_extra:",
            "        if self._options.plan is None and False:",
        ),
    ),
    "P20-a-dry-run-writes": mutant(
        f"{_REPAIR}::test_a_dry_run_and_what_it_planned",
        (
            "compare/repair.py",
            "job.apply() if options.apply else",
            "job.apply() if not options.plan else",
        ),
    ),
}
