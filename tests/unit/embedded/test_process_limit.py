import tempfile
from pathlib import Path

import pytest

from tests.unit.stores.process_limit import expect_recovery, needs_root

pytestmark = pytest.mark.large


@needs_root
@pytest.mark.timeout(300)
def test_a_crowded_machine_breaks_nothing_for_good() -> None:
    # pytest keeps its own folders from all other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        expect_recovery(
            {"plugin.backend": "embedded", "plugin.embedded.directory": f"{folder}/state"}
        )
