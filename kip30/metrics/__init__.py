"""The metrics of kip30: counters, gauges and histograms of a locator, and their exporters.

The setting ``plugin.metrics`` switches them on; `kip30.PluginLocator.metrics` returns them.
`docs/metrics.md` has their names, labels and promises.
"""

from kip30.metrics.opentelemetry import observe
from kip30.metrics.prometheus import collector
from kip30.metrics.registry import Metrics, text
from kip30.metrics.text_format import CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics", "collector", "observe", "text"]
