import subprocess
import sys

import pytest

from tests.unit.stores.descriptor_limit import CLIENT, DescriptorLimitCases

# A channel that is made later, for other certificates, or in a forked child.
WITHOUT_DESCRIPTORS = """
import sys
from kip30 import StoreError
from kip30_backends.etcd.client.private_grpc import GRPC
sys.path.append(sys.argv[1])
from descriptor_limit_client import descriptors_left

GRPC.plain_channel("127.0.0.1:1", ())
try:
    with descriptors_left(0):
        GRPC.plain_channel("127.0.0.1:1", ())
except StoreError as error:
    print(error)
"""


class TestDescriptorLimit(DescriptorLimitCases):
    pass


@pytest.mark.medium
def test_a_channel_without_descriptors_is_refused_before_grpc_aborts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, CLIENT.parent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "too few file descriptors left" in done.stdout, done.stderr
