"""Mutants of what is read of other programs, and of the keys that it becomes."""

from .mutant import Mutant, mutant

_IMPORT = "tests/pipeline/test_import.py::test_a_tree_is_taken_over_wave_by_wave"
_KAFKA = "tests/pipeline/test_kafka_tree.py"
_MAPPING = "tests/unit/pipeline/test_path_mapping.py"
_NODES = "tests/unit/zookeeper/test_scanning.py"
_SCANNING = "kip30_backends/zookeeper/scanning.py"
_LAYOUTS = "kip30_backends/zookeeper/row_decoding.py"

TAKING_OVER: dict[str, Mutant] = {
    "P40-no-data-is-empty-data": mutant(
        f"{_KAFKA}::test_all_nodes_as_another_client_sees_them[7]",
        (
            _LAYOUTS,
            "_row(self.shown(path), node.data, node.stat)",
            '_row(self.shown(path), node.data or b"", node.stat)',
        ),
    ),
    "P41-ephemeral-nodes-are-copied": mutant(
        _IMPORT,
        (
            "stores/path_mapping.py",
            "if kind_of(row) is Lifetime.EPHEMERAL:",
            "if kind_of(row) is None:",
        ),
    ),
    "P41-children-in-other-waves-are-not-seen": mutant(
        _IMPORT,
        (
            "transfer/restore_and_migrate.py",
            "(source.rows(spans), source.rows(), self",
            "(source.rows(spans), source.rows(spans), self",
        ),
    ),
    "P41-a-part-of-a-snapshot-keeps-its-path": mutant(
        "tests/pipeline/test_import.py::test_a_part_of_a_tree_begins_where_it_is_cut",
        (
            "transfer/snapshot_files.py",
            'endpoint.under or self.manifest.source["prefix"]',
            'self.manifest.source["prefix"]',
        ),
    ),
    "P41-directories-become-keys": mutant(
        f"{_MAPPING}::test_a_tree_like_that_of_kafka",
        (
            "stores/path_mapping.py",
            "if self._is_tree and not row.data and (",
            "if self._is_tree and row.data is None and (",
        ),
    ),
    "P42-a-node-without-acl-is-left-out": mutant(
        f"{_NODES}::test_unreadable_nodes_are_rejected[3.6]",
        (_SCANNING, "                self.refuse([path])\n", "                continue\n"),
    ),
    "P42-an-unreadable-child-is-no-child": mutant(
        _IMPORT,
        (
            "transfer/mapped_view.py",
            "everything.where(f.length(name) > 0)",
            'everything.where((f.length(name) > 0) & f.col("rejected").isNull())',
        ),
    ),
    "P43-paths-are-ordered-by-their-bytes": mutant(
        f"{_NODES}::test_all_nodes_as_another_client_sees_them",
        ("kip30_backends/zookeeper/scan_reader.py", 'path.replace("/", _BELOW)', "path"),
    ),
    "P43-a-span-begins-after-what-is-below-its-first-node": mutant(
        f"{_KAFKA}::test_a_directory_has_its_children_in_other_spans[1]",
        (
            "kip30_backends/zookeeper/scan_reader.py",
            "if first and self.begin.startswith(",
            "if not names and self.begin.startswith(",
        ),
    ),
    "P44-a-node-of-a-session-stays": mutant(
        f"{_KAFKA}::test_nodes_of_every_kind",
        (
            _LAYOUTS,
            "owner_of(stat) if stat.owner else None",
            "owner_of(stat) if stat.owner < 0 else None",
        ),
    ),
    "P44-a-container-ends-with-a-session": mutant(
        f"{_NODES}::test_kinds_of_owners",
        (_LAYOUTS, "stat.owner in {0, _CONTAINER} or", "stat.owner == 0 or"),
    ),
    "P45-what-is-no-text-is-replaced": mutant(
        f"{_MAPPING}::test_rejected_for_a_reason[-\\xff/t1-not UTF-8: byte 0xff at 0]",
        (
            "stores/path_mapping.py",
            "return path.decode()\n",
            'return path.decode(errors="replace")\n',
        ),
    ),
    "P45-a-prefix-that-ends-within-a-name": mutant(
        f"{_MAPPING}::test_rejected_for_a_reason[a-ab/c-not below 'a/']",
        ("stores/path_mapping.py", 'top + b"/" if under', "top if under"),
        (
            "stores/path_mapping.py",
            "_decoded(path[len(self._above) :])",
            '_decoded(path[len(self._above) :].removeprefix(b"/"))',
        ),
    ),
    "P46-slashes-too-many-are-dropped": mutant(
        f"{_MAPPING}::test_two_paths_are_never_one_key",
        (
            "stores/path_mapping.py",
            'if f"/{rest}/".count("//"):',
            'rest = "/".join(filter(None, rest.split("/")))\n        if not rest:',
        ),
    ),
}
