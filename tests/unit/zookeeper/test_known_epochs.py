"""What a client remembers of services with names that are used once, as those of locks may be."""

from typing import Any

from kip30_backends.zookeeper.target_states import TargetStates


class Tree:
    """No node is read here."""

    paths = None


def test_the_epochs_of_used_up_names_do_not_add_up() -> None:
    tree: Any = Tree()
    states = TargetStates(tree)
    for number in range(10_000):
        states.note_epoch(f"s{number}", number)
        assert states.epochs[f"s{number}"] == number
        assert len(states.epochs) <= 1_000
