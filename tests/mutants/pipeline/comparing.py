"""Mutants of the diff: which keys differ."""

from .mutant import Mutant, mutant

_DIFF = "tests/pipeline/test_diff.py"
_FORMS = "tests/pipeline/test_comparison_forms.py"
_UNREADABLE = "tests/pipeline/test_unreadable_records.py"

COMPARING: dict[str, Mutant] = {
    "P17-an-empty-value-is-none": mutant(
        f"{_DIFF}::test_planted_differences_are_found_and_no_others[frames]",
        (
            "compare/frame_comparison.py",
            "f.when(_has(LEFT) & _has(RIGHT), of_both)",
            'f.when(_has(LEFT) & (f.coalesce("right_bytes", f.lit(0)) > 0), of_both)',
        ),
    ),
    "P17-an-empty-value-is-none-in-one-task": mutant(
        f"{_DIFF}::test_planted_differences_are_found_and_no_others[one-task]",
        (
            "compare/table_comparison.py",
            "if reason is None",
            "if reason is None and sizes[number]",
        ),
    ),
    "P17-moving-keys-are-not-read-again": mutant(
        f"{_DIFF}::test_a_key_that_changed_after_it_was_read_is_unsettled[frames]",
        ("compare/diff.py", "return settled(found, self._stores())", "return found"),
    ),
    "P17-one-task-reads-no-moving-key-again": mutant(
        f"{_DIFF}::test_a_key_that_changed_after_it_was_read_is_unsettled[one-task]",
        ("compare/one_task.py", "settled_batches(batches, stores)", "batches"),
    ),
    "P17-the-second-reading-looks-at-one-side": mutant(
        f"{_DIFF}::test_a_key_that_changed_after_it_was_read_is_unsettled[one-task]",
        ("compare/rechecking.py", "if side in readers:", "if side in readers and side == LEFT:"),
    ),
    "P17-a-key-that-a-node-hides-is-missing": mutant(
        f"{_DIFF}::test_a_key_that_a_rejected_row_may_hide_is_unsettled[left]",
        (
            "compare/comparison.py",
            "number > 0 and key.startswith(prefixes[number - 1])",
            "number > 0 and key == prefixes[number - 1]",
        ),
    ),
    "P17-a-part-has-nothing-that-hides-it": mutant(
        f"{_UNREADABLE}::test_a_part_of_a_snapshot_has_the_nodes_that_hide_it",
        ("transfer/snapshot_files.py", "        f.startswith(begin, prefix),\n", ""),
    ),
    "P17-one-task-finds-moving-keys-different": mutant(
        f"{_FORMS}::test_both_forms_of_the_rule_agree[True]",
        ("compare/table_comparison.py", "for side in raw)", "for side in raw - {LEFT})"),
    ),
    "P17-one-task-takes-a-refused-key-for-missing": mutant(
        f"{_FORMS}::test_both_forms_of_the_rule_agree[False]",
        ("compare/table_comparison.py", "key in self.refused or ", ""),
    ),
    "P19-one-task-compares-sizes-alone": mutant(
        f"{_FORMS}::test_both_forms_of_the_rule_agree[False]",
        ("compare/table_comparison.py", "list(zip(sizes, hashes, strict=True))", "sizes"),
    ),
    "P18-what-only-the-right-side-has": mutant(
        f"{_DIFF}::test_snapshots_mirrored_and_whole_values",
        ("compare/frame_comparison.py", ".otherwise(ONLY_RIGHT)", ".otherwise(None)"),
    ),
    "P19-values-of-one-size-are-equal": mutant(
        f"{_DIFF}::test_digests_and_values_agree",
        ("compare/frame_comparison.py", 'else ("bytes", "digest")', 'else ("bytes",)'),
    ),
    "P17-no-data-is-equal-to-all": mutant(
        f"{_DIFF}::test_no_data_is_not_empty_data[True]",
        (
            "compare/frame_comparison.py",
            '.eqNullSafe(f.col(f"{RIGHT}_{one}"))',
            ' == f.col(f"{RIGHT}_{one}")',
        ),
    ),
}
