"""The conformance suite as the command line uses it.

The core does not depend on the suite, so its modules are imported by name, when they are needed.
"""

from importlib import import_module
from typing import Any

from kip30.config.extras import how_to_install
from kip30.errors import ConfigError


def part(module: str, extra: str = "conformance") -> Any:
    """Return the module *module* of the suite, whose packages *extra* installs.

    Raises:
        ConfigError: A package that the suite needs is not installed.
    """
    try:
        return import_module(f"kip30_conformance.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the conformance suite needs {error.name}; {how_to_install(extra)}"
        ) from error
