"""Random faults: a store and its clients in a storm, and judges who look at what came of it."""

from kip30_conformance.storm.finding import Conclusion, Finding
from kip30_conformance.storm.running import run
from kip30_conformance.storm.summary import Summary

__all__ = ["Conclusion", "Finding", "Summary", "run"]
