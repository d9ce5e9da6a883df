"""Plausible mistakes in the pipeline, each with the test that has to notice it.

A mistake is a change of one place in the source. So it also acts in the workers of Spark.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        case: The case of the contract that it breaks.
        file: Where it is, from the root of the checkout.
        sound: What is written there, once.
        broken: What would be there instead.
        test: The node that fails with it, from ``tests``.
    """

    case: str
    file: str
    sound: str
    broken: str
    test: str


_JOBS = "kip30/pipeline"
_STORES = "pipeline/test_applier_stores.py"

MUTANTS = {
    "digest_without_key": Mutant(
        "P03",
        f"{_JOBS}/frames.py",
        "else f.xxhash64(key, value)",
        "else f.xxhash64(value)",
        "pipeline/test_snapshot.py::test_how_it_is_cut_changes_nothing[7-1]",
    ),
    "resume_repeats_finished_spans": Mutant(
        "P04",
        f"{_JOBS}/wave_runner.py",
        "waves = Waves(spans, manifest.finished_spans, manifest.run, slots)",
        "waves = Waves(spans, frozenset(), manifest.run, slots)",
        "pipeline/test_snapshot.py::test_a_resume_after_a_crash[manifest]",
    ),
    "resume_takes_a_new_position": Mutant(
        "P04",
        f"{_JOBS}/view_reader.py",
        "if self._run.manifest.planned is not None:",
        "if self._run.manifest.waves:",
        "pipeline/test_snapshot.py::test_a_resume_after_a_crash[claims]",
    ),
    "lost_position_is_tried_again": Mutant(
        "P06",
        f"{_JOBS}/wave_runner.py",
        "_FINAL = (PositionLostError, AuthenticationError,",
        "_FINAL = (AuthenticationError,",
        "pipeline/test_snapshot_stores.py::test_a_compaction_ends_the_run",
    ),
    "fence_is_left_out": Mutant(
        "P08",
        f"{_JOBS}/applier.py",
        "one.data, one.expected, fence)",
        "one.data, one.expected, None)",
        f"{_STORES}::test_a_stopped_driver_writes_nothing_after_its_successor_began[embedded]",
    ),
    "rerun_writes_before_it_looks": Mutant(
        "P09",
        f"{_JOBS}/batch_writer.py",
        "self._looks_first = batch.met",
        "self._looks_first = False",
        f"{_STORES}::test_a_rerun_leaves_the_revision_of_etcd[etcd]",
    ),
    "conflict_counts_as_same": Mutant(
        "P10",
        f"{_JOBS}/decisions.py",
        "    return Decision(Outcome.CONFLICT, version, why)",
        "    return Decision(Outcome.SAME, version, why)",
        "pipeline/test_restore.py::test_other_values_stay_and_are_named",
    ),
    "large_value_is_sent": Mutant(
        "P11",
        f"{_JOBS}/admission.py",
        "len(data) > limit:",
        "len(data) > 2 * limit:",
        f"{_STORES}::test_every_record_has_the_outcome_it_deserves[embedded]",
    ),
    "nonce_of_the_attempt": Mutant(
        "P12",
        f"{_JOBS}/outcomes.py",
        "        nonce = self._run.copy()",
        '        nonce = self._run.copy()\n        nonce.update(__import__("os").urandom(8))',
        f"{_STORES}::test_a_task_that_is_killed_is_counted_right_when_repeated[embedded]",
    ),
    "refused_key_fails_its_batch": Mutant(
        "P13",
        f"{_JOBS}/batch_writer.py",
        "                batch.refused[number] = writes[number]",
        "                batch.refused = dict(batch.left)",
        f"{_STORES}::test_a_raced_key_conflicts_alone[embedded]",
    ),
    "epochs_are_not_noted": Mutant(
        "P14",
        f"{_JOBS}/view_reader.py",
        '_EPOCH = "epoch"',
        '_EPOCH = "epochs"',
        "pipeline/test_snapshot_stores.py::test_claims_are_not_copied[embedded]",
    ),
    "each_task_has_the_whole_rate": Mutant(
        "P15",
        f"{_JOBS}/bulk_write.py",
        "self.rate / sharers(self.rate, self.slots)",
        "self.rate",
        "pipeline/test_rate.py",
    ),
    "silence_counts_as_conflict": Mutant(
        "P16",
        f"{_JOBS}/batch_writer.py",
        "self.decide_all(failed_now, Outcome.UNKNOWN, str(error))",
        "self.decide_all(failed_now, Outcome.CONFLICT, str(error))",
        f"{_STORES}::test_a_target_that_stands_still_leaves_unknown_and_a_rerun_completes[etcd]",
    ),
    "diff_compares_sizes": Mutant(
        "P17",
        f"{_JOBS}/comparison.py",
        'if full else ("bytes", "digest")',
        'if full else ("bytes",)',
        "pipeline/test_diff.py::test_planted_differences_are_found_and_no_others",
    ),
    "diff_of_one_side": Mutant(
        "P18",
        f"{_JOBS}/comparison.py",
        '"key", "full_outer"',
        '"key", "left"',
        "pipeline/test_diff.py::test_snapshots_mirrored_and_whole_values",
    ),
    "full_diff_compares_nothing": Mutant(
        "P19",
        f"{_JOBS}/comparison.py",
        'compared = ("value",) if full',
        'compared = ("bytes",) if full',
        "pipeline/test_diff.py::test_snapshots_mirrored_and_whole_values",
    ),
    "repair_of_any_version": Mutant(
        "P20",
        f"{_JOBS}/repair_writes.py",
        "Replacement(key, value, source, Version(**version))",
        "Replacement(key, value, source, __import__('kip30').records.Condition.ANY)",
        "pipeline/test_repair.py::test_what_changed_since_is_refused",
    ),
    "segment_after_its_mark": Mutant(
        "P21",
        f"{_JOBS}/tail.py",
        "        self._journal.append(self._entries, mark)\n        states =",
        "        self._journal.note(mark)\n        self._journal.append(self._entries, mark)\n"
        "        states =",
        "pipeline/test_tail.py::test_p21_killed_at_each_point[embedded-noted]",
    ),
    "batch_is_committed_before_it_is_written": Mutant(
        "P21",
        f"{_JOBS}/journal_consumer.py",
        "        written = self._write(segments, rows) if rows else Written()\n",
        "        self._commit(segments, 0, Written())\n"
        "        written = self._write(segments, rows) if rows else Written()\n",
        "pipeline/test_feed.py::test_p21_killed_after_a_batch[written-store]",
    ),
    "repeated_batch_is_another_one": Mutant(
        "P22",
        f"{_JOBS}/journal_consumer.py",
        "        return range(self._committed, self._run.manifest.counts[_BEGUN])",
        "        return range(self._committed, self._journal.segment + 1)",
        "pipeline/test_feed.py::test_p21_killed_after_a_batch[written-store]",
    ),
    "once_goes_on": Mutant(
        "P23",
        f"{_JOBS}/tail_thread.py",
        "            if self._once:\n                return\n",
        "",
        "pipeline/test_feed.py::test_p23_once_ends_while_writers_go_on",
    ),
    "gap_is_kept_secret": Mutant(
        "P24",
        f"{_JOBS}/tail.py",
        "[Entry(None, None, None, Kind.GAP)], 0",
        "[], 0",
        "pipeline/test_tail.py::test_p24_an_overrun_log",
    ),
    "gap_is_not_repaired": Mutant(
        "P24",
        f"{_JOBS}/tail.py",
        "self._flush(replace(self._mark, order=-1, listing=True))",
        "self._flush(replace(self._mark, at=None, order=-1))",
        "pipeline/test_tail.py::test_p24_an_overrun_log",
    ),
    "deletions_are_not_fed": Mutant(
        "P25",
        f"{_JOBS}/feed_sinks.py",
        '    return found.select("key", "last.value", source)',
        '    return found.where("last.value IS NOT NULL").select("key", "last.value", source)',
        "pipeline/test_feed.py::test_p25_a_store_into_another",
    ),
    "secrets_are_expanded": Mutant(
        "P35",
        "kip30/config/shipping.py",
        "kept = {key: one.text for",
        "kept = {key: one.value for",
        "pipeline/test_store_config.py",
    ),
    "packages_are_resolved": Mutant(
        "P37",
        f"{_JOBS}/session.py",
        "settings = {**_DEFAULTS,",
        'settings = {"spark.jars.packages": "org.example:none:1", **_DEFAULTS,',
        "pipeline/test_engine.py::test_no_jar_is_resolved",
    ),
    "newer_manifest_is_read": Mutant(
        "P38",
        f"{_JOBS}/manifest.py",
        "if number == FORMAT:",
        "if number >= FORMAT:",
        "unit/pipeline/test_manifest.py::test_a_newer_format",
    ),
    "node_without_data_is_empty": Mutant(
        "P40",
        "backends/kip30_backends/zookeeper/scan_layouts.py",
        "return _row(self.shown(path), node.data, node.stat)",
        'return _row(self.shown(path), node.data or b"", node.stat)',
        "pipeline/test_kafka_tree.py::test_all_nodes_as_another_client_sees_them",
    ),
    "ephemeral_nodes_are_copied": Mutant(
        "P41",
        f"{_JOBS}/mapping.py",
        "        if kind_of(row) is Kind.EPHEMERAL:\n            return Skipped.EPHEMERAL\n",
        "",
        "unit/pipeline/test_mapping.py",
    ),
    "unreadable_nodes_are_left_out": Mutant(
        "P42",
        "backends/kip30_backends/zookeeper/scan_spans.py",
        "                    refused.append(path)",
        "                    continue",
        "pipeline/test_kafka_tree.py::test_what_may_not_be_read_is_rejected",
    ),
    "paths_in_the_order_of_text": Mutant(
        "P43",
        "backends/kip30_backends/zookeeper/scan_spans.py",
        '_BELOW = "\\0"',
        '_BELOW = "/"',
        "unit/zookeeper/test_scanning.py",
    ),
    "damaged_text_is_replaced": Mutant(
        "P45",
        f"{_JOBS}/mapping.py",
        "        return path.decode()\n",
        '        return path.decode(errors="replace")\n',
        "pipeline/test_foreign_keys.py::test_keys_of_etcd",
    ),
    "empty_parts_are_dropped": Mutant(
        "P46",
        f"{_JOBS}/mapping.py",
        '        if f"/{rest}/".count("//"):',
        '        rest = "/".join(filter(None, rest.split("/")))\n        if not rest:',
        "unit/pipeline/test_mapping.py",
    ),
}
