import inspect
import pickle

import pytest

from kip30 import errors

KINDS = (
    errors.UsageError,
    errors.UnsupportedError,
    errors.DefiniteError,
    errors.OutcomeUnknownError,
)
CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.Kip30Error) and cls is not errors.Kip30Error
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_error_is_of_exactly_one_kind(cls: type[errors.Kip30Error]) -> None:
    assert sum(issubclass(cls, kind) for kind in KINDS) == 1


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_error_pickles(cls: type[errors.Kip30Error]) -> None:
    arguments = ({"a": "1"}, {}) if cls is errors.PartialWriteError else ("what to do",)
    copy = pickle.loads(pickle.dumps(cls(*arguments)))  # noqa: S301  our own bytes
    assert type(copy) is cls
    assert copy.args == arguments


def test_a_partial_write_error_names_the_first_failed_key() -> None:
    error = errors.PartialWriteError({"a": "1"}, {"b": errors.KeyExistsError("is there")})
    assert str(error) == "1 of 2 keys not written; first: 'b': is there"
