"""Mutants of the diff: which keys differ."""

from .mutant import Mutant, mutant

_DIFF = "tests/pipeline/test_diff.py"
_UNREADABLE = "tests/pipeline/test_unreadable_records.py"

COMPARING: dict[str, Mutant] = {
    "P17-an-empty-value-is-none": mutant(
        f"{_DIFF}::test_planted_differences_are_found_and_no_others",
        (
            "compare/comparison.py",
            "f.when(_has(LEFT) & _has(RIGHT), of_both)",
            'f.when(_has(LEFT) & (f.coalesce("right_bytes", f.lit(0)) > 0), of_both)',
        ),
    ),
    "P17-moving-keys-are-not-read-again": mutant(
        f"{_DIFF}::test_a_key_that_changed_after_it_was_read_is_unsettled",
        (
            "compare/diff.py",
            "settled(found.select(*COLUMNS), self._stores())",
            "found.select(*COLUMNS)",
        ),
    ),
    "P17-the-second-reading-looks-at-one-side": mutant(
        f"{_DIFF}::test_a_key_that_changed_after_it_was_read_is_unsettled",
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
    "P18-what-only-the-right-side-has": mutant(
        f"{_DIFF}::test_snapshots_mirrored_and_whole_values",
        ("compare/comparison.py", ".otherwise(ONLY_RIGHT)", ".otherwise(None)"),
    ),
    "P19-values-of-one-size-are-equal": mutant(
        f"{_DIFF}::test_digests_and_values_agree",
        ("compare/comparison.py", 'else ("bytes", "digest")', 'else ("bytes",)'),
    ),
    "P17-no-data-is-equal-to-all": mutant(
        f"{_DIFF}::test_no_data_is_not_empty_data[True]",
        (
            "compare/comparison.py",
            '.eqNullSafe(f.col(f"{RIGHT}_{one}"))',
            ' == f.col(f"{RIGHT}_{one}")',
        ),
    ),
}
