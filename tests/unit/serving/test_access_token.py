"""Tokens: compared, generated, read from files that others may not read."""

import os
from pathlib import Path

import pytest

from kip30 import UsageError
from kip30.serving.access_token import AccessToken, read_token

TEXT = "0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "token"
    made.write_text(f"{TEXT}\n")
    made.chmod(0o600)
    return made


def test_random_tokens_differ_and_have_24_bytes() -> None:
    texts = {AccessToken().text for _ in range(100)}
    assert len(texts) == 100
    assert {len(text) for text in texts} == {32}


@pytest.mark.parametrize("field", [f"Bearer {TEXT}", f"bearer  {TEXT}", f"BEARER {TEXT} "])
def test_the_token_is_found(field: str) -> None:
    assert AccessToken(TEXT).is_in(field)


@pytest.mark.parametrize(
    "field",
    [
        *(None, "", TEXT, "Bearer", "Bearer ", f"Basic {TEXT}", f"Bearer\t{TEXT}", "Bearer \xff"),
        *(f"Bearer {text}" for text in (f"{TEXT}x", TEXT[:-1], TEXT.upper(), f"{TEXT} {TEXT}")),
    ],
)
def test_another_field_is_refused(field: str | None) -> None:
    assert not AccessToken(TEXT).is_in(field)


def test_a_token_is_not_in_its_repr() -> None:
    assert TEXT not in repr(AccessToken(TEXT))


def test_a_file_has_the_token(file: Path) -> None:
    assert read_token(file).text == TEXT


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_file_that_others_may_use_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        read_token(file)


@pytest.mark.parametrize(
    "text", ["", "short", "a" * 257, f"{TEXT} {TEXT}", f"{TEXT}/", f"{TEXT}é", "a" * 100_000]
)
def test_a_file_without_a_token_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match="holds no token"):
        read_token(file)


def test_pipes_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", ""):
        with pytest.raises((UsageError, IsADirectoryError)):
            read_token(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_token(tmp_path / "missing")
