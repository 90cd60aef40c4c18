import difflib

import pytest

from shoal.catalog.names import check_name, name_of_folder, near, slug
from shoal.protocol.errors import InvalidInput


@pytest.mark.parametrize("name", ["mine", "org/name", "BAAI/bge-small-en-v1.5", "a/b_c", "x1"])
def test_usual_names_are_taken_as_they_are(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "..",
        "../x",
        "a/..",
        "a__b",
        "org/a__b",
        "a@1",
        "a:int8",
        "a b",
        "a\n",
        "é",
        "-a",
        "a.",
    ],
)
def test_a_name_that_could_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a model"):
        check_name(name)


def test_a_refused_length_names_the_limit_and_the_length() -> None:
    with pytest.raises(InvalidInput, match=r"at most 128 characters, this one 129"):
        check_name("a" * 129)


def test_different_names_never_share_a_file() -> None:
    assert slug("a/b") == "a__b"
    with pytest.raises(InvalidInput):
        check_name("a__b")


def test_a_folder_lends_its_name() -> None:
    assert name_of_folder("My fine_tune (2)") == "My-fine-tune-2"
    with pytest.raises(InvalidInput):
        name_of_folder("…")


def test_a_mistyped_name_finds_the_one_that_was_meant() -> None:
    known = ["sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5"]
    assert near("sentence-transformer/all-minilm-l6-v2", known) == known[0]
    assert near("bge-small-en-v1.5", known) == known[1]
    assert near("gpt-9", known) == ""
    assert near("x" * 100_000, known) == ""


def test_of_thousands_of_names_those_that_begin_or_end_alike_are_compared_and_no_more(monkeypatch) -> None:
    compared = []
    matches = difflib.get_close_matches
    monkeypatch.setattr(
        "shoal.catalog.names.difflib.get_close_matches",
        lambda word, of, **how: compared.append(len(of)) or matches(word, of, **how),
    )
    known = [f"contracts-of-the-team/Finder-of-documents-v{number}" for number in range(5000)]
    known += ["sentence-transformers/all-MiniLM-L6-v2"]
    assert near("contracts-of-the-team/finder-of-dokuments-v4711", known) == known[4711]
    assert near("contracts-of-the-taem/finder-of-documents-v4711", known) == known[4711]
    assert near("contracts-of-the-team/finder-of-documents-v12345", known).startswith("contracts")
    assert near("sentence-transformer/all-minilm-l6-v2", known) == known[-1]
    assert near("y" * 100, known) == ""
    assert max(compared) <= 128
