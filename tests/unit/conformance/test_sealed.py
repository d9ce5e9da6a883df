from typing import Any

import pytest

from kip30_conformance._sealed import Sealed


def check(_: object) -> None:
    """Stand in for a check."""


def derive(*bases: type[Any], **members: object) -> type[Any]:
    """Return a subclass of *bases*, as a class statement would make it."""
    return type("Derived", bases, members)


ONE = derive(Sealed, test_S03_put_existing=check)
OTHER = derive(Sealed, test_S03_put_existing=check)


def test_a_subclass_may_add_a_check() -> None:
    assert issubclass(derive(ONE, test_of_its_own=check), Sealed)


def test_a_subclass_may_define_a_helper_again() -> None:
    suite = derive(Sealed, helper=check)
    assert issubclass(derive(suite, helper=check), suite)


@pytest.mark.parametrize("replacement", [check, None, property(check)])
def test_a_subclass_must_not_redefine_a_check(replacement: object) -> None:
    with pytest.raises(TypeError, match="Derived must not redefine the check test_S03"):
        derive(ONE, test_S03_put_existing=replacement)


def test_nor_may_the_subclass_of_a_subclass() -> None:
    with pytest.raises(TypeError):
        derive(derive(ONE), test_S03_put_existing=check)


def test_nor_may_a_mixture_of_suites() -> None:
    with pytest.raises(TypeError):
        derive(derive(ONE, OTHER), test_S03_put_existing=check)
