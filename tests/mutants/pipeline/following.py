"""Mutants of the feed: each change once, in order, and gaps that are shown."""

from .mutant import Mutant, mutant

_FEED = "tests/pipeline/test_feed.py"
_TAIL = "tests/pipeline/test_tail.py"

FOLLOWING: dict[str, Mutant] = {
    "P21-keys-are-known-before-the-segment-is-there": mutant(
        f"{_TAIL}::test_p21_killed_at_each_point[zookeeper-written]",
        ("follow/tail.py", "        self._journal.append(self._entries, position)\n", ""),
        (
            "follow/tail.py",
            "        self._known.apply(self._journal.segment, states)\n",
            (
                "        self._known.apply(self._journal.segment + 1, states)\n"
                "        self._journal.append(self._entries, position)\n"
            ),
        ),
    ),
    "P21-a-segment-in-the-middle-has-the-last-position": mutant(
        f"{_TAIL}::test_p21_killed_at_each_point[embedded-appended]",
        (
            "follow/tail.py",
            "self._flush(replace(position, order=last))",
            "self._flush(JournalPosition(at=until))",
        ),
    ),
    "P21-the-rest-of-a-log-is-read-from-its-beginning": mutant(
        f"{_TAIL}::test_p21_killed_at_each_point[embedded-appended]",
        ("follow/tail.py", "if change.order <= position.order:", "if change.order < 0:"),
    ),
    "P21-a-killed-tail-catches-up-with-nothing": mutant(
        f"{_TAIL}::test_p21_killed_at_each_point[zookeeper-appended]",
        ("follow/tail.py", "if segment > 0:", "if segment > self._journal.segment:"),
    ),
    "P21-a-batch-is-committed-before-it-is-written": mutant(
        f"{_FEED}::test_p21_killed_after_a_batch[written-store]",
        (
            "follow/journal_consumer.py",
            "        written = self._write(segments, rows) if rows else Written()\n",
            (
                "        self._commit(segments, 0, Written())\n"
                "        written = self._write(segments, rows) if rows else Written()\n"
            ),
        ),
    ),
    "P22-a-batch-that-comes-again-is-written-again": mutant(
        f"{_FEED}::test_p22_a_batch_that_comes_again",
        (
            "write/batch_writer.py",
            "and (only_own or self._must_look(writes))",
            "and self._looks_first",
        ),
    ),
    "P22-a-batch-that-comes-again-is-of-another-run": mutant(
        f"{_FEED}::test_p22_a_batch_that_comes_again",
        (
            "follow/feed_sinks.py",
            "run=self._directory.manifest.run,",
            'run=__import__("uuid").uuid4().hex,',
        ),
        (
            "write/decisions.py",
            "    if found.data != write.data:\n",
            "    if found.data != write.data or found.nonce != write.nonce:\n",
        ),
    ),
    "P23-once-follows-a-moving-end": mutant(
        f"{_FEED}::test_p23_once_ends_while_writers_go_on",
        (
            "follow/tail_thread.py",
            "            if self._once:\n                return\n",
            "            if self._once and not self._tail.moved:\n                return\n",
        ),
        (
            "follow/tail.py",
            "        self._finish(JournalPosition(at=until, reached=reached))\n",
            (
                "        self._finish(JournalPosition(at=until, reached=reached))\n"
                "        self.moved = store.position() != until\n"
            ),
        ),
    ),
    "P23-the-end-moves-while-it-is-read": mutant(
        f"{_FEED}::test_p23_once_ends_while_writers_go_on",
        (
            "follow/tail.py",
            "store.changes(position.at, until)",
            "store.changes(position.at, store.position())",
        ),
    ),
    "P24-a-gap-is-swallowed": mutant(
        f"{_TAIL}::test_p24_another_store[embedded]",
        ("follow/tail.py", "[JournalRow(None, None, None, JournalRowKind.GAP)], 0", "[], 0"),
    ),
    "P24-a-gap-is-not-repaired": mutant(
        f"{_TAIL}::test_p24_another_store[embedded]",
        ("follow/tail.py", "order=-1, listing=True, listed", "order=-1, listing=False, listed"),
    ),
    "P24-what-was-deleted-in-a-gap-stays": mutant(
        f"{_TAIL}::test_p24_an_overrun_log",
        ("follow/tail.py", "for key in self._known.unseen():", "for key in ():"),
    ),
    "P24-another-store-is-followed": mutant(
        f"{_TAIL}::test_p24_another_store[embedded]",
        ("follow/tail.py", "if now not in self._settings.accepted_stores:", "if not now:"),
    ),
    "P56-another-namespace-is-followed": mutant(
        f"{_FEED}::test_p56_no_other_namespace_is_made_equal",
        (
            "follow/feed.py",
            "            check_same(self._run.manifest.source, place, source.text)\n",
            "",
        ),
        ("stores/identity.py", "    if noted is not None:\n", "    if noted == {}:\n"),
    ),
    "P56-the-source-is-compared-only-when-a-feed-begins": mutant(
        f"{_FEED}::test_p56_a_file_that_is_edited_before_the_first_change[source]",
        ("stores/identity.py", "    if noted is not None:\n", "    if noted == {}:\n"),
    ),
    "P56-the-target-is-compared-only-when-a-feed-begins": mutant(
        f"{_FEED}::test_p56_a_file_that_is_edited_before_the_first_change[target]",
        (
            "stores/identity.py",
            "if (now := _identity(resolve(properties))) != noted:",
            "if not (now := noted):",
        ),
    ),
    "P24-versions-of-two-stores-are-compared": mutant(
        f"{_TAIL}::test_p24_a_store_that_was_made_anew_with_equal_versions",
        ("follow/tail.py", "            self._known.forget_stamps()\n", ""),
    ),
    "P24-any-number-is-deleted": mutant(
        f"{_TAIL}::test_a_scan_that_finds_little_deletes_nothing[zookeeper]",
        ("follow/tail.py", "        self._check_deletions(known)\n", ""),
    ),
    "P24-the-number-of-all-is-of-the-beginning": mutant(
        f"{_TAIL}::test_a_tenth_of_the_keys_that_are_known_by_now_may_be_deleted",
        (
            "follow/tail.py",
            "            most = max(_LEAST_DELETIONS, known // _DELETED_PART)\n",
            (
                "            self._all = getattr(self, '_all', known)\n"
                "            most = max(_LEAST_DELETIONS, self._all // _DELETED_PART)\n"
            ),
        ),
    ),
    "P56-a-feed-follows-a-copy-in-another-store": mutant(
        f"{_FEED}::test_after_a_migration_to_other_keys_or_another_store",
        ("follow/feed_start.py", 'if manifest.target not in {"", now}:', "if not now:"),
    ),
    "P56-a-feed-follows-a-copy-under-other-keys": mutant(
        f"{_FEED}::test_after_a_migration_to_other_keys_or_another_store",
        ("follow/feed_start.py", 'if manifest.arguments.get("moves"):', "if False:"),
    ),
    "P55-a-change-before-makes-a-record-readable": mutant(
        f"{_TAIL}::test_a_record_that_changes_and_becomes_unreadable_in_one_pass[etcd-]",
        (
            "follow/tail.py",
            "        self._known.apply(self._journal.segment, states)\n",
            (
                "        self._known.apply(self._journal.segment, states)\n"
                "        for key, _ in states:\n"
                "            self._known.note_readable(key)\n"
            ),
        ),
    ),
    "P55-a-record-that-is-read-again-stays-rejected": mutant(
        f"{_TAIL}::test_a_record_that_changes_and_becomes_unreadable_in_one_pass[etcd-]",
        ("follow/tail.py", "        self._known.note_readable(change.key)\n", ""),
    ),
    "P55-a-foreign-key-that-is-gone-stays-rejected": mutant(
        f"{_TAIL}::test_a_key_that_can_be_no_record_is_rejected_while_it_is_there[None]",
        ("follow/tail.py", "            self._known.note_gone(change.key)\n", "            pass\n"),
    ),
    "P55-a-foreign-key-that-is-gone-is-a-deleted-record": mutant(
        f"{_TAIL}::test_a_key_that_can_be_no_record_is_rejected_while_it_is_there[copied]",
        ("stores/mapped_scanner.py", "refused, is_record=False)", "refused)"),
    ),
    "P21-known-keys-may-be-ahead-of-the-journal": mutant(
        f"{_TAIL}::test_files_that_were_copied_at_two_moments_are_refused",
        (
            "follow/tail.py",
            "if self._known.segment > self._journal.segment:",
            "if not self._journal:",
        ),
    ),
    "P21-a-run-may-be-ahead-of-its-journal": mutant(
        f"{_FEED}::test_a_journal_that_is_older_than_its_run_is_refused",
        ("follow/journal_consumer.py", "if self.backlog < 0:", "if not self._run:"),
    ),
    "P55-what-a-scan-cannot-read-is-gone": mutant(
        f"{_TAIL}::test_an_unreadable_record_is_not_reported_as_deleted[zookeeper]",
        ("follow/known_keys.py", "if one.record is not None:", "if one.record is None:"),
    ),
    "P55-what-is-below-the-unreadable-is-gone": mutant(
        f"{_TAIL}::test_a_record_that_an_acl_hides_is_not_reported_as_deleted[n]",
        ("follow/known_keys.py", "if one.prefix is not None:", "if one.prefix is None:"),
    ),
    "P55-what-a-log-cannot-read-is-gone": mutant(
        f"{_TAIL}::test_an_unreadable_record_is_not_reported_as_deleted[etcd]",
        ("follow/tail.py", "if change.rejected is not None:", "if not change:"),
    ),
    "P25-the-first-change-of-a-key-counts": mutant(
        f"{_FEED}::test_p25_a_store_into_another[etcd]",
        ("follow/feed_sinks.py", "f.max_by(state,", "f.min_by(state,"),
    ),
    "P25-deletions-are-left-out": mutant(
        f"{_FEED}::test_p25_a_store_into_another[embedded]",
        ("follow/feed_sinks.py", '== "change")', '== "change").where(f.col("value").isNotNull())'),
    ),
    "P59-a-feed-replaces-what-programs-wrote": mutant(
        f"{_FEED}::test_p59_what_programs_wrote_stays",
        ("write/decisions.py", "if is_of_pipeline(found.nonce):", "if True:"),
    ),
    "P59-a-conflict-is-no-finding": mutant(
        f"{_FEED}::test_p59_what_programs_wrote_stays",
        (
            "follow/feed.py",
            '"rejected_records", "conflict", "gaps")',
            '"rejected_records", "gaps")',
        ),
    ),
    "P60-a-report-counts-what-former-ones-did": mutant(
        f"{_FEED}::test_p59_what_programs_wrote_stays",
        ("follow/feed.py", "number - manifest.reported.get(name, 0)", "number"),
    ),
    "P60-a-report-that-ctrl-c-hides-is-given": mutant(
        f"{_FEED}::test_a_conflict_that_ctrl_c_hides_is_reported_again",
        (
            "follow/feed.py",
            "            save_report(directory.path, report)\n",
            (
                "            save_report(directory.path, report)\n"
                "            _note_given(directory, report)\n"
            ),
        ),
    ),
    "P60-a-report-that-is-not-written-is-given": mutant(
        f"{_FEED}::test_a_report_that_cannot_be_written_is_not_given",
        (
            "follow/feed.py",
            "            save_report(directory.path, report)\n",
            (
                "            _note_given(directory, report)\n"
                "            save_report(directory.path, report)\n"
            ),
        ),
    ),
    "P60-what-a-killed-feed-found-has-no-name": mutant(
        f"{_FEED}::test_a_conflict_that_a_killed_feed_met_is_named_by_the_next",
        (
            "follow/journal_consumer.py",
            "*map(dict, findings)][:MOST_FINDINGS]",
            "][:MOST_FINDINGS]",
        ),
    ),
    "P60-a-restore-is-done-before-its-report": mutant(
        "tests/pipeline/test_restore.py::test_a_run_is_done_once_its_report_is_written",
        ("run/report.py", "    save_report(directory.path, report)\n", ""),
    ),
}
