"""docs/cases.md names tests that are there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PAGE = (TESTS.parent / "docs" / "cases.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| owed ")]


def defined() -> set[str]:
    return {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 100
    assert named - defined() == set()


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_row_says_what_is_owed_and_names_a_test(row: str) -> None:
    owed, tests = row.strip("| ").split(" | ")
    assert owed
    assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", tests)
