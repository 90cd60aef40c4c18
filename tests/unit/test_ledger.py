"""What a pushed name means after any changes, and which changes may be made."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.catalog import Card, Folder
from shoal.catalog.ledger import Aliased, Change, Entry, NameState, Pushed, Removed, RolledBack, fold
from shoal.catalog.verdicts import MAX_ALIASES, MAX_NOTE_CHARACTERS, MAX_VERSIONS, check_alias, judge
from shoal.protocol.errors import Conflict, InvalidInput, ModelNotFound, ShoalError
from shoal.protocol.facts import Facts

NAME = "team/contracts"
FACTS = Facts(tasks=("encode",), family="bert", files="safetensors", max_tokens=128)


def pushed(digest: str, **more) -> Pushed:
    card = Card(name=more.pop("name", NAME), source=Folder(path="x"))
    return Pushed(at=1.0, who="key-1", digest=digest, card=card, facts=FACTS, size_bytes=10, **more)


def aliased(alias: str, version: int = 0) -> Aliased:
    return Aliased(at=2.0, who="key-2", alias=alias, version=version)


def back(alias: str = "", version: int = 0) -> RolledBack:
    return RolledBack(at=3.0, who="key-3", alias=alias, version=version)


def removed(version: int = 0, alias: str = "") -> Removed:
    return Removed(at=4.0, who="key-4", version=version, alias=alias)


def after(*changes: Change, state: NameState | None = None) -> NameState:
    """The state when each change was judged and written."""
    state = state or NameState(name=NAME)
    for change in changes:
        judged = judge(state, change)
        if judged is not None:
            state = fold(state, [Entry(number=state.number + 1, change=judged)])
    return state


def test_a_push_is_the_next_version_and_becomes_current():
    state = after(pushed("a"), pushed("b"))
    assert (state.current, state.last, state.number) == (2, 2, 2)
    assert {number: version.digest for number, version in state.versions.items()} == {1: "a", 2: "b"}
    version = state.versions[2]
    assert (version.number, version.who, version.at, version.facts, version.size_bytes) == (
        2,
        "key-1",
        1.0,
        FACTS,
        10,
    )


def test_the_digest_that_is_current_pushed_again_changes_nothing():
    state = after(pushed("a", note="why"))
    assert judge(state, pushed("a")) is None
    assert judge(state, pushed("a", note="why")) is None, "a client asks again that did not hear the answer"


def test_a_note_to_the_digest_that_is_current_goes_into_the_history_once():
    state = after(pushed("a", note="why"), pushed("b"), pushed("a", note="back"), pushed("a", note="as asked"))
    assert (state.current, state.last, state.number) == (1, 2, 4)
    assert (state.history[-1].what, state.history[-1].note) == ("pushed version 1 again", "as asked")
    assert after(pushed("a", note="as asked"), state=state) == state
    assert after(back(), state=state).current == 2, "it was no step that one could go back"


def test_an_earlier_digest_pushed_again_is_the_same_version_and_becomes_current():
    state = after(pushed("a"), pushed("b"), pushed("a"))
    assert (state.current, state.last, sorted(state.versions)) == (1, 2, [1, 2])
    assert after(back(), state=state).current == 2


def test_an_adapter_that_was_proved_with_another_base_is_another_version():
    first = after(pushed("a", base="org/base", base_digest="b1"))
    assert after(pushed("a", base="org/base", base_digest="b1"), state=first) == first
    state = after(pushed("a", base="org/base", base_digest="b2"), state=first)
    assert (state.current, state.versions[2].base_digest) == (2, "b2")


def test_a_name_of_a_model_that_was_added_is_not_pushed_to():
    with pytest.raises(Conflict, match="added"):
        judge(NameState(name=NAME), pushed("a"), taken=True)


@pytest.mark.parametrize("change", [pushed("a", name="other"), pushed("a", base=NAME)])
def test_a_card_of_another_name_or_an_adapter_of_itself_is_refused(change):
    with pytest.raises(InvalidInput):
        judge(NameState(name=NAME), change)


def test_rolling_back_goes_further_back_each_time_until_there_is_nothing_before():
    state = after(pushed("a"), pushed("b"), pushed("c"), back())
    assert state.current == 2
    state = after(back(), state=state)
    assert state.current == 1
    with pytest.raises(Conflict, match="none before it"):
        judge(state, back())


def test_after_a_rollback_and_a_push_a_rollback_leads_to_what_it_was_before_that_push():
    state = after(pushed("a"), pushed("b"), pushed("c"), back(), pushed("d"))
    assert state.current == 4
    assert after(back(), state=state).current == 2


def test_a_rollback_to_a_version_forgets_what_came_after_it():
    state = after(pushed("a"), pushed("b"), pushed("c"), pushed("d"), back(version=2))
    assert state.current == 2
    assert after(back(), state=state).current == 1
    forward = after(back(version=4), state=state)
    assert forward.current == 4
    assert after(back(), state=forward).current == 2


def test_a_rollback_to_what_is_current_changes_nothing():
    assert judge(after(pushed("a"), pushed("b")), back(version=2)) is None


def test_an_alias_stays_where_it_is_when_others_are_pushed_and_rolls_back_on_its_own():
    state = after(pushed("a"), aliased("prod"), pushed("b"))
    assert (state.aliases, state.current) == ({"prod": 1}, 2)
    state = after(aliased("prod", 2), state=state)
    assert state.aliases == {"prod": 2}
    state = after(pushed("c"), back("prod"), state=state)
    assert (state.aliases, state.current) == ({"prod": 1}, 3)
    with pytest.raises(Conflict, match="team/contracts@prod is at version 1"):
        judge(state, back("prod"))


def test_an_alias_that_means_that_version_already_changes_nothing():
    state = after(pushed("a"), aliased("prod"))
    assert judge(state, aliased("prod", 1)) is None


def test_an_alias_that_was_removed_and_made_again_has_no_past():
    state = after(pushed("a"), pushed("b"), aliased("prod", 1), aliased("prod", 2), removed(alias="prod"))
    assert state.aliases == {}
    with pytest.raises(Conflict):
        judge(after(aliased("prod", 2), state=state), back("prod"))


@pytest.mark.parametrize("alias", ["prod", "a", "v2", "blue-green_2.x", "x" * 64])
def test_what_can_be_an_alias(alias):
    assert check_alias(alias) == alias


NO_ALIASES = ["1", "007", "1.0", "2nd", "current", "latest", "Prod", "a/b", "a@b", "a:b", "-a", "a-", "ü"]


@pytest.mark.parametrize("alias", ["", "a b", "x" * 65, "a\n", "a\x00", *NO_ALIASES])
def test_what_cannot_be_an_alias(alias):
    with pytest.raises(InvalidInput, match="alias"):
        check_alias(alias)
    with pytest.raises(InvalidInput, match="alias"):
        judge(after(pushed("a")), aliased(alias))


def test_a_version_is_not_removed_as_long_as_something_means_it():
    state = after(pushed("a"), pushed("b"), aliased("prod", 1))
    with pytest.raises(Conflict, match="what team/contracts means"):
        judge(state, removed(2))
    with pytest.raises(Conflict, match="team/contracts@prod"):
        judge(state, removed(1))
    state = after(removed(alias="prod"), removed(1), state=state)
    assert sorted(state.versions) == [2]


def test_nothing_rolls_back_to_a_version_that_was_removed():
    state = after(pushed("a"), pushed("b"), pushed("c"), removed(2))
    assert after(back(), state=state).current == 1
    with pytest.raises(ModelNotFound, match="no version 2"):
        judge(state, back(version=2))


def test_a_rollback_never_leads_to_the_version_that_is_current_already():
    state = after(pushed("a"), pushed("b"), pushed("a"), removed(2), pushed("c"))
    assert after(back(), state=state).current == 1
    with pytest.raises(Conflict):
        judge(after(back(), state=state), back())


def test_a_name_that_was_removed_means_nothing_and_counts_on_when_it_is_pushed_again():
    state = after(pushed("a"), pushed("b"), aliased("prod"), removed())
    assert (state.is_there, state.versions, state.aliases, state.last) == (False, {}, {}, 2)
    state = after(pushed("a"), state=state)
    assert (state.current, sorted(state.versions), state.aliases) == (3, [3], {})
    with pytest.raises(Conflict):
        judge(state, back())


@pytest.mark.parametrize("change", [aliased("prod"), back(), removed(), removed(1), removed(alias="prod")])
def test_of_a_name_that_is_not_there_nothing_is_changed(change):
    with pytest.raises(ModelNotFound, match="never pushed"):
        judge(NameState(name=NAME), change)
    with pytest.raises(ModelNotFound, match="was removed"):
        judge(after(pushed("a"), removed()), change)


@pytest.mark.parametrize("change", [aliased("prod", 7), back(version=7), removed(7)])
def test_a_version_that_is_not_there_is_named_beside_those_that_are(change):
    with pytest.raises(ModelNotFound, match="no version 7; the newest are 1, 2"):
        judge(after(pushed("a"), pushed("b")), change)


@pytest.mark.parametrize("change", [back("prod"), removed(alias="prod")])
def test_an_alias_that_is_not_there_is_named_beside_those_that_are(change):
    with pytest.raises(ModelNotFound, match="no alias 'prod'; it has beta"):
        judge(after(pushed("a"), aliased("beta")), change)


def test_a_version_and_an_alias_are_not_removed_at_once():
    with pytest.raises(InvalidInput):
        judge(after(pushed("a"), pushed("b"), aliased("prod")), removed(1, "prod"))


def test_versions_aliases_and_notes_are_bounded():
    full = after(*(pushed(f"{number}") for number in range(MAX_VERSIONS)))
    with pytest.raises(Conflict, match="remove some"):
        judge(full, pushed("more"))
    assert judge(full, pushed("0")) is not None
    state = after(pushed("a"), *(aliased(f"a{number}") for number in range(MAX_ALIASES)))
    with pytest.raises(Conflict, match="remove some"):
        judge(state, aliased("more"))
    with pytest.raises(InvalidInput, match="note"):
        judge(state, pushed("b", note="x" * (MAX_NOTE_CHARACTERS + 1)))


def test_history_says_what_was_done_when_and_by_whom():
    state = after(
        pushed("a" * 64), pushed("b" * 64, note="better"), aliased("prod"), aliased("prod", 1), back(),
        back("prod"), pushed("b" * 64), removed(alias="prod"), removed(1), removed(),
    )  # fmt: skip
    assert [(event.number, event.who, event.what) for event in state.history] == [
        (1, "key-1", "pushed version 1 (aaaaaaaaaaaa)"),
        (2, "key-1", "pushed version 2 (bbbbbbbbbbbb)"),
        (3, "key-2", "prod means version 2"),
        (4, "key-2", "prod means version 1, was 2"),
        (5, "key-3", "rolled the current version back from 2 to 1"),
        (6, "key-3", "rolled prod back from 1 to 2"),
        (7, "key-1", "pushed version 2 again"),
        (8, "key-4", "removed prod, which meant version 2"),
        (9, "key-4", "removed version 1"),
        (10, "key-4", "removed the name with all its versions"),
    ]
    assert [event.note for event in state.history[:3]] == ["", "better", ""]
    assert [event.change for event in state.history[:3]] == ["pushed", "pushed", "aliased"]
    assert state.history[1].digest == "b" * 64


changes = st.one_of(
    st.sampled_from("abcd").map(pushed),
    st.builds(aliased, st.sampled_from(["prod", "beta"]), st.integers(0, 5)),
    st.builds(back, st.sampled_from(["", "prod", "beta"]), st.integers(0, 5)),
    st.builds(removed, st.integers(0, 5)),
    st.builds(removed, st.just(0), st.sampled_from(["prod", "beta"])),
)


def written(asked: list[Change]) -> list[Entry]:
    """The entries that come of it; what is refused is not written."""
    state, entries = NameState(name=NAME), []
    for change in asked:
        try:
            judged = judge(state, change)
        except ShoalError:
            continue
        if judged is not None:
            entries.append(Entry(number=state.number + 1, change=judged))
            state = fold(state, entries[-1:])
    return entries


@settings(deadline=None, max_examples=50)
@given(st.lists(changes, max_size=40))
def test_whatever_is_asked_a_number_never_means_other_bytes_and_everything_means_something(asked):
    meant: dict[int, str] = {}
    state, last = NameState(name=NAME), 0
    for entry in written(asked):
        state = fold(state, [entry])
        for number, version in state.versions.items():
            assert meant.setdefault(number, version.digest) == version.digest
            assert version.number == number <= state.last
        assert state.last >= last
        last = state.last
        assert all(number in state.versions for number in state.aliases.values())
        assert all(number in state.versions for earlier in state.before.values() for number in earlier)
        assert state.is_there == bool(state.versions)
        assert not state.is_there or state.current in state.versions
        assert len(state.history) == state.number == entry.number


@settings(deadline=None, max_examples=50)
@given(st.lists(changes, max_size=30), st.integers(0, 30))
def test_entries_read_at_once_or_in_two_parts_or_from_json_come_to_the_same(asked, cut):
    entries = written(asked)
    whole = fold(NameState(name=NAME), entries)
    assert fold(fold(NameState(name=NAME), entries[:cut]), entries[cut:]) == whole
    read = [msgspec.json.decode(msgspec.json.encode(entry), type=Entry) for entry in entries]
    assert fold(NameState(name=NAME), read) == whole
    assert msgspec.json.decode(msgspec.json.encode(whole), type=NameState) == whole


@settings(deadline=None, max_examples=50)
@given(st.lists(changes, max_size=30), changes)
def test_what_was_just_done_is_not_done_again(asked, change):
    """A push, an alias or a rollback to a version that is asked for twice is one change."""
    state = after_all(asked)
    if isinstance(change, Removed) or (isinstance(change, RolledBack) and not change.version):
        return
    try:
        once = after(change, state=state)
    except ShoalError:
        return
    assert after(change, state=once) == once


def after_all(asked: list[Change]) -> NameState:
    return fold(NameState(name=NAME), written(asked))
