"""VacancyTimes that last, and those of an election."""

from kip30.operations.directory import ServiceStatus
from kip30.operations.overview import VacancyTimes

SECONDS = 10.0


def vacant(*names: str, epoch: int | None = None) -> list[ServiceStatus]:
    return [ServiceStatus(name, None, epoch, 1) for name in names]


def names(found: list[ServiceStatus]) -> list[str]:
    return [one.service for one in found]


def test_a_vacancy_lasts_when_it_is_seen_after_the_time() -> None:
    vacancies = VacancyTimes(SECONDS)
    assert vacancies.note(vacant("a"), 0.0, 1.0) == []
    assert vacancies.decided_at() == 11.0
    assert vacancies.note(vacant("a", "b"), 10.9, 12.0) == []
    assert vacancies.decided_at() == 22.0
    assert names(vacancies.note(vacant("a", "b"), 11.0, 12.0)) == ["a"]
    assert names(vacancies.note(vacant("a", "b"), 22.0, 23.0)) == ["a", "b"]


def test_a_leader_in_between_begins_it_again() -> None:
    vacancies = VacancyTimes(SECONDS)
    vacancies.note(vacant("a", "b", epoch=1), 0.0, 1.0)
    vacancies.note(vacant("b", epoch=1), 5.0, 6.0)
    again = [*vacant("a", epoch=1), *vacant("b", epoch=2)]
    assert vacancies.note(again, 20.0, 21.0) == []
    assert names(vacancies.note(again, 31.0, 32.0)) == ["a", "b"]


def test_an_outage_begins_it_again() -> None:
    vacancies = VacancyTimes(SECONDS)
    vacancies.note(vacant("a"), 0.0, 1.0)
    vacancies.forget()
    assert vacancies.decided_at() == 0.0
    assert vacancies.note(vacant("a"), 20.0, 21.0) == []
