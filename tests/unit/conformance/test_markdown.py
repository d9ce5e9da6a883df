from kip30_conformance.report.markdown import WIDTH, item, table

HEAD = ("row", "one", "two")


def test_a_table_that_fits_is_one() -> None:
    assert table(HEAD, [("r", "1", "a|b\nc")]) == (
        "| row | one | two |\n| --- | --- | --- |\n| r | 1 | a\\|b c |\n"
    )


def test_a_wide_table_is_divided_and_the_parts_share_the_first_column() -> None:
    cell = "x" * (WIDTH // 2)
    first, second = table(HEAD, [("r", cell, cell)]).split("\n\n")
    assert first == f"| row | one |\n| --- | --- |\n| r | {cell} |"
    assert second == f"| row | two |\n| --- | --- |\n| r | {cell} |\n"


def test_a_table_that_just_fits_is_not_divided() -> None:
    row = ("r", "x" * 50, "y" * (WIDTH - 50 - len("| r |  |  |")))
    lines = table(HEAD, [row]).splitlines()
    assert len(lines) == 3
    assert len(lines[-1]) == WIDTH


def test_a_table_without_rows_has_its_head() -> None:
    assert table(HEAD, []) == "| row | one | two |\n| --- | --- | --- |\n"


def test_an_item_is_wrapped_between_words_and_never_in_code() -> None:
    code = "`a command with blanks`"
    lines = item(f"{'word ' * 22}{code} end").splitlines()
    assert lines == [f"* {'word ' * 22}".rstrip(), f"  {code} end"]
