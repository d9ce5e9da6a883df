import pytest

from kip30_conformance.servers import Ensemble
from tests.unit.crowd import expect_recovery, needs_root

pytestmark = pytest.mark.large


@needs_root
@pytest.mark.timeout(300)
def test_a_crowded_machine_breaks_nothing_for_good(ensemble: Ensemble) -> None:
    expect_recovery(ensemble.settings())
