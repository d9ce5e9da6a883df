"""Metrics as a Prometheus server reads them: a strict parser of the text format, version 0.0.4."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_COMMENT = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.+)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)", re.DOTALL)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\n])')
_PARTS = {"histogram": ("_bucket", "_sum", "_count")}
_NUMBER = re.compile(r"NaN|[+-]Inf|-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")

Labels = frozenset[tuple[str, str]]


class Samples(NamedTuple):
    """A family: its kind, its help, and the value of each series by the name of the sample."""

    kind: str
    about: str
    values: Mapping[str, Mapping[Labels, float]]

    def value(self, part: str = "", **labels: str) -> float:
        """Return the sum of the series that have *labels*; 0 if there is none.

        *part* is that of a histogram's samples, such as ``_count``.
        """
        wanted = set(labels.items())
        (found,) = [series for name, series in self.values.items() if name.endswith(part)][:1]
        return sum(value for has, value in found.items() if wanted <= has)

    def label_names(self) -> set[str]:
        """Return the names of the labels of all series."""
        return {name for series in self.values.values() for has in series for name, _ in has}


def parsed(text: str) -> dict[str, Samples]:
    """Return the families of *text*, by name.

    Raises:
        AssertionError: It is not of the format, as strictly as a Prometheus server reads it: a
            family is in two places, a series occurs twice, or a histogram does not add up.
    """
    assert not text or text.endswith("\n"), "the last line has no end"
    families: dict[str, Samples] = {}
    current = about = ""
    for line in text.split("\n")[:-1]:
        comment = _COMMENT.fullmatch(line)
        if comment and comment[1] == "HELP":
            about = comment[3]
        elif comment:
            current = comment[2]
            assert current not in families, f"{current} is in two places"
            names = _PARTS.get(comment[3], ("",))
            values: dict[str, dict[Labels, float]] = {f"{current}{part}": {} for part in names}
            families[current] = Samples(comment[3], about, values)
        else:
            _add(families[current].values, line)
    for family in families.values():
        if family.kind == "histogram":
            _check_histogram(family)
    return families


def _add(families: Mapping[str, Mapping[Labels, float]], line: str) -> None:
    found = _SAMPLE.fullmatch(line)
    assert found, f"no sample: {line!r}"
    series = families[found[1]]
    assert isinstance(series, dict)
    pairs = list(_labels(found[2] or ""))
    labels = frozenset(pairs)
    assert len(dict(pairs)) == len(pairs), f"a label occurs twice: {line!r}"
    assert labels not in series, f"a series occurs twice: {line!r}"
    assert _NUMBER.fullmatch(found[3]), f"no number: {line!r}"
    series[labels] = float(found[3])


def _labels(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text):
        found = _LABEL.match(text, place)
        assert found, f"no label: {text[place:]!r}"
        yield found[1], _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], found[2])
        place = found.end()


def _check_histogram(family: Samples) -> None:
    buckets, sums, counts = (dict(series) for series in family.values.values())
    assert sums.keys() == counts.keys()
    for labels, count in counts.items():
        bounds = sorted(
            (float(dict(has)["le"]), number)
            for has, number in buckets.items()
            if has - {("le", dict(has)["le"])} == labels
        )
        assert bounds, f"no buckets: {labels}"
        assert bounds[-1] == (inf, count), f"the last bucket has not all: {labels}"
        assert all(one <= more for (_, one), (_, more) in pairwise(bounds)), labels
    assert len(buckets) == sum(1 for _ in counts) * len({dict(has)["le"] for has in buckets})
