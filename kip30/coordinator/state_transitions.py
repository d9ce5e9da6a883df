"""The five changes of a group's state; the phases are two, and no state at all is an empty group.

    from          by                                                    to
    (none)        the first leader of the group                         PREPARING
    STABLE        its leader, because a round has a cause               PREPARING
    PREPARING     its leader, once the shares are stored                STABLE
    PREPARING     another leader                                        PREPARING
    STABLE        another leader                                        STABLE

Only the commit changes the generation, by one. A new leader changes nothing but epoch and leader;
from then on the compare-and-set of its predecessor fails with a version conflict. And a leader that
finds its own epoch in the state after a lost answer knows that it wrote it, so the state needs no
nonce.
"""

from dataclasses import replace

from kip30.coordinator.records import GroupPhase, StateRecord
from kip30.errors import GroupError


def first(*, epoch: int, leader: str, history: str) -> StateRecord:
    """Return the state in which the first generation is formed; *history* is a random text."""
    return StateRecord(
        phase=GroupPhase.PREPARING, generation=0, epoch=epoch, leader=leader, history=history
    )


def begun(state: StateRecord) -> StateRecord:
    """Return *state* with a round in progress; the generation does not change."""
    return _checked(state, replace(state, phase=GroupPhase.PREPARING))


def taken_over(state: StateRecord, *, epoch: int, leader: str) -> StateRecord:
    """Return *state* under another leader."""
    return _checked(state, replace(state, epoch=epoch, leader=leader))


def committed(state: StateRecord, new: StateRecord) -> StateRecord:
    """Return *new*, which ends the round of *state*."""
    return _checked(state, new)


def check_transition(old: StateRecord | None, new: StateRecord) -> None:
    """Check that the table allows *new* after *old* (K08).

    Raises:
        GroupError: It does not. Nothing was sent.
    """
    if old is None:
        is_allowed = new.is_preparing and new.generation == 0
    elif new.epoch != old.epoch:
        is_allowed = new.epoch > old.epoch and _content(new) == _content(old)
    else:
        is_allowed = new.leader == old.leader and _is_begin_or_commit(old, new)
    if not is_allowed:
        raise GroupError(f"a state {_text(old)} cannot become {_text(new)}")


def _checked(old: StateRecord, new: StateRecord) -> StateRecord:
    check_transition(old, new)
    return new


def _is_begin_or_commit(old: StateRecord, new: StateRecord) -> bool:
    if old.is_preparing:
        is_next = not new.is_preparing and new.generation == old.generation + 1
        is_continued = new.history == old.history
        return is_next and is_continued and new.attempt not in {"", old.attempt}
    return new.is_preparing and replace(_content(new), phase=old.phase) == _content(old)


def _content(state: StateRecord) -> StateRecord:
    """Return *state* without what a change of leader changes."""
    return replace(state, epoch=0, leader="")


def _text(state: StateRecord | None) -> str:
    if state is None:
        return "that is not there"
    return f"{state.phase.value} of generation {state.generation} and epoch {state.epoch}"
