"""Mutants of snapshots: records read once and as of one moment, and runs that are resumed."""

from .mutant import Mutant, mutant

_SNAPSHOT = "tests/pipeline/test_snapshot.py"
_STORES = "tests/pipeline/test_snapshot_stores.py"
_WAVES = "tests/unit/pipeline/test_wave_runner.py"

_PUSH = '''
    _wanted = None

    def pushFilters(self, filters):
        """Take over the comparison of one key."""
        for one in filters:
            if type(one).__name__ == "EqualTo" and one.attribute == ("key",):
                self._wanted = one.value
            else:
                yield one

    @override
    def partitions('''
_ALL = "        return self._options.batches(partition.at, partition.spans)"
_SOME = """
        for batch in self._options.batches(partition.at, partition.spans):
            keys = batch.column(0).to_pylist()
            wanted = [self._wanted in {None, key} for key in keys]
            yield batch.filter(pa.array(wanted))
"""

READING: dict[str, Mutant] = {
    "P01-empty-values-are-left-out": mutant(
        "tests/pipeline/test_five_stores.py"
        "::test_a_snapshot_of_one_store_is_restored_in_another[embedded-embedded]",
        (
            "spark/bulk_write.py",
            "if self._is_inside(key if",
            "if value and self._is_inside(key if",
        ),
    ),
    "P03-digest-without-the-key": mutant(
        f"{_SNAPSHOT}::test_digests_tell_values_and_keys_apart",
        ("run/scan_files.py", "[hashed(key, _SEED) for key in keys]", "[_SEED for _ in keys]"),
    ),
    "P03-digest-with-the-version": mutant(
        f"{_SNAPSHOT}::test_the_cut_into_spans_does_not_change_a_snapshot[7-1]",
        (
            "run/scan_files.py",
            "digests(keys,",
            'digests(list(map(str.encode, map(str, batch["version"]))),',
        ),
    ),
    "P03-a-slot-without-spans-loses-them": mutant(
        f"{_SNAPSHOT}::test_the_cut_into_spans_does_not_change_a_snapshot[1-16]",
        ("run/waves.py", "for group in groups]", "for group in groups[: len(spans) - 1 or 1]]"),
    ),
    "P04-done-waves-are-read-again": mutant(
        f"{_SNAPSHOT}::test_a_resume_after_a_crash[manifest]",
        ("run/wave_runner.py", "Waves(spans, manifest.finished_spans,", "Waves(spans, (),"),
    ),
    "P04-damaged-waves-count-as-done": mutant(
        f"{_WAVES}::test_a_wave_whose_file_is_damaged_is_run_again",
        ("run/wave_runner.py", "in run.drop_damaged_waves():", "in ():"),
    ),
    "P04-a-resume-plans-anew": mutant(
        f"{_SNAPSHOT}::test_a_resume_after_a_crash[files]",
        (
            "transfer/view_reader.py",
            "if self._run.manifest.planned is not None:",
            "if self._run.manifest.waves:",
        ),
    ),
    "P04-files-of-a-killed-attempt-count": mutant(
        "tests/unit/pipeline/test_run_directory.py::test_files_of_former_attempts_are_removed",
        ("run/directory.py", "shutil.rmtree(folder, ignore_errors=True)", "pass"),
    ),
    "P05-each-task-reads-the-present": mutant(
        f"{_STORES}::test_writers_between_the_plan_and_the_waves[etcd]",
        (
            "spark/source.py",
            "for page in store.scan(span, at):",
            "for page in store.scan(span, store.position()):",
        ),
    ),
    "P05-moving-is-not-marked": mutant(
        f"{_STORES}::test_writers_between_the_plan_and_the_waves[zookeeper]",
        ("spark/source.py", "store.changed_since(page, at)", "[False] * len(page.keys)"),
    ),
    "P06-a-lost-position-is-tried-again": mutant(
        f"{_STORES}::test_a_compaction_ends_the_run",
        ("run/wave_runner.py", "_FINAL = (PositionLostError, ", "_FINAL = ("),
    ),
    "P06-what-is-compacted-is-read-as-it-is-now": mutant(
        f"{_STORES}::test_a_compaction_ends_the_run",
        (
            "kip30_backends/etcd/scanning.py",
            "raise _lost(at, error) from error",
            "return self._read(self.position(), start, end, limit=limit, names_only=names_only)",
        ),
    ),
    "P14-epochs-are-those-of-leaders": mutant(
        f"{_SNAPSHOT}::test_claims_are_for_people",
        ("transfer/view_reader.py", 'if one["kind"] == _EPOCH', 'if one["kind"] != "member"'),
    ),
    "P14-claims-are-shown-unasked": mutant(
        f"{_SNAPSHOT}::test_claims_are_not_shown_unasked",
        ("transfer/view_reader.py", "if show:", "if claims or show:"),
    ),
    "P35-a-secret-is-expanded-before-it-is-shipped": mutant(
        "tests/pipeline/test_store_config.py::test_settings_travel_as_they_are_written",
        ("kip30/config/worker_settings.py", "import only_refers", "import expand, only_refers"),
        (
            "kip30/config/worker_settings.py",
            "return kept\n",
            "return {key: expand(properties[key], key) for key in kept}\n",
        ),
    ),
    "P35-a-written-secret-is-shipped": mutant(
        "tests/pipeline/test_command_checks.py::test_a_secret_that_is_written_out_stays_here",
        (
            "kip30/config/worker_settings.py",
            "rows[key].secret and not",
            "not rows[key].secret and not",
        ),
    ),
    "P37-a-jar-of-our-own": mutant(
        "tests/pipeline/test_engine.py::test_no_jar_is_resolved",
        (
            "spark/session.py",
            '"spark.ui.enabled": "false",',
            '"spark.ui.enabled": "false", "spark.jars": str(_LOGGING),',
        ),
        ("spark/session.py", '_LOGGING = Path(__file__).with_name("log4j2.properties")\n', ""),
        (
            "spark/session.py",
            "_DEFAULTS = {",
            '_LOGGING = Path(__file__).with_name("log4j2.properties")\n_DEFAULTS = {',
        ),
    ),
    "P38-a-changed-manifest-is-read": mutant(
        "tests/unit/pipeline/test_manifest.py::test_any_change_of_a_manifest_is_found",
        ("run/manifest.py", "                _verify_checksum(text)\n", ""),
    ),
    "P38-a-changed-plan-is-followed": mutant(
        "tests/unit/pipeline/test_run_directory.py::test_a_damaged_plan",
        ("run/directory.py", "if checksum(text) != manifest.plan_checksum:", "if not text:"),
    ),
    "P38-files-are-compared-by-size-alone": mutant(
        "tests/unit/pipeline/test_run_directory.py::test_damaged_files",
        ("run/directory.py", "if checksum_of(path) == file.checksum", "if file.checksum"),
    ),
    "P38-a-changed-segment-is-applied": mutant(
        "tests/pipeline/test_damage.py::test_a_segment_of_a_feed_is_not_applied_if_it_is_damaged",
        ("follow/journal.py", 'if checksum(data) != file.stem.partition("-")[2]:', "if not data:"),
    ),
    "P38-newer-manifests-are-read": mutant(
        "tests/unit/pipeline/test_manifest.py::test_another_format",
        ("run/manifest.py", "if number == FORMAT:", "if number >= FORMAT:"),
    ),
    "P38-a-snapshot-that-is-not-done-is-read": mutant(
        f"{_SNAPSHOT}::test_manifests_of_another_time",
        ("transfer/snapshot_files.py", "if not self.manifest.done:", "if not self.manifest.waves:"),
    ),
    "P39-filters-are-pushed-down": mutant(
        f"{_SNAPSHOT}::test_a_notebook_reads_a_store",
        (
            "spark/session.py",
            '"spark.ui.enabled": "false",',
            '"spark.ui.enabled": "false", "spark.sql.python.filterPushdown.enabled": "true",',
        ),
        ("spark/source.py", "\n    @override\n    def partitions(", _PUSH),
        ("spark/source.py", _ALL, _SOME.strip("\n")),
    ),
}
