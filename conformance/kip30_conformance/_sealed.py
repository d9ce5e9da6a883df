"""Keeps a subclass of a suite from redefining what it inherits."""

from typing import Any

from typing_extensions import override

_CHECK = "test_"


class Sealed:
    """Base of all suites: a subclass may add checks, and must not replace one."""

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a subclass that redefines an inherited check.

        Raises:
            TypeError: It does; a store that cannot keep a promise declares so instead.
        """
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            inherited = any(name in vars(base) for base in cls.__mro__[1:])
            if name.startswith(_CHECK) and inherited:
                raise TypeError(f"{cls.__name__} must not redefine the check {name}")
