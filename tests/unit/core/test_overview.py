"""What lasts, such as a service without a leader, and what an election ends."""

from kip30.operations.overview import LastingTimes

SECONDS = 10.0


def test_a_vacancy_lasts_when_it_is_seen_after_the_time() -> None:
    vacancies = LastingTimes[str](SECONDS)
    assert vacancies.note("a", 0.0, 1.0) == set()
    assert vacancies.decided_at() == 11.0
    assert vacancies.note("ab", 10.9, 12.0) == set()
    assert vacancies.decided_at() == 22.0
    assert vacancies.note("ab", 11.0, 12.0) == {"a"}
    assert vacancies.note("ab", 22.0, 23.0) == {"a", "b"}


def test_an_end_in_between_begins_it_again() -> None:
    vacancies = LastingTimes[str](SECONDS)
    vacancies.note("ab", 0.0, 1.0)
    vacancies.note("b", 5.0, 6.0)
    assert vacancies.note("ab", 20.0, 21.0) == {"b"}
    assert vacancies.note("ab", 31.0, 32.0) == {"a", "b"}


def test_an_outage_begins_it_again() -> None:
    vacancies = LastingTimes[str](SECONDS)
    vacancies.note("a", 0.0, 1.0)
    vacancies.forget()
    assert vacancies.decided_at() == 0.0
    assert vacancies.note("a", 20.0, 21.0) == set()
