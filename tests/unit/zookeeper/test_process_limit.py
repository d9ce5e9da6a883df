from tests.unit.stores.process_limit import ProcessLimitCases


class TestProcessLimit(ProcessLimitCases):
    pass
