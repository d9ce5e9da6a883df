from tests.unit.stores.descriptor_limit import DescriptorLimitCases


class TestDescriptorLimit(DescriptorLimitCases):
    pass
