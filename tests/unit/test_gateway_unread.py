"""Whose connection ends when too much is owed to clients that do not read."""

from shoal.gateway.unread import PATIENCE_S, Unread


class Reader:
    def __init__(self, owed: int = 40) -> None:
        self.owed, self.is_gone = owed, False

    def owed_bytes(self) -> int:
        return self.owed

    def let_go(self) -> None:
        self.is_gone = True


def noted(count: int) -> tuple[Unread, list[Reader]]:
    """`count` readers, owed 40 each, where 100 may be owed."""
    unread, readers = Unread(100), [Reader() for _ in range(count)]
    for reader in readers:
        unread.note(reader, 0.0)
    return unread, readers


def gone(readers: list[Reader]) -> list[bool]:
    return [reader.is_gone for reader in readers]


def test_whoever_has_read_nothing_for_the_longest_goes_first_and_no_more_than_need_be():
    unread, readers = noted(4)
    unread.make_room(PATIENCE_S)
    assert gone(readers) == [True, True, False, False]


def test_nobody_goes_who_had_no_time_to_read():
    unread, readers = noted(4)
    unread.make_room(0.9 * PATIENCE_S)
    assert gone(readers) == [False] * 4


def test_one_that_reads_stays_however_slowly_and_goes_once_it_reads_no_more():
    unread, (slow, *others) = noted(4)
    slow.owed -= 1
    unread.make_room(PATIENCE_S)
    assert (slow.is_gone, gone(others)) == (False, [True, True, False])
    more = Reader()
    unread.note(more, PATIENCE_S)
    others[2].owed -= 1
    unread.make_room(2 * PATIENCE_S)
    assert (slow.is_gone, others[2].is_gone, more.is_gone) == (True, False, False)


def test_who_has_all_he_was_owed_is_forgotten():
    unread, readers = noted(3)
    unread.forget(readers[0])
    unread.make_room(PATIENCE_S)
    assert gone(readers) == [False, False, False]


def test_an_answer_larger_than_all_may_be_is_given_to_one_who_reads_it_alone():
    unread, reader = Unread(100), Reader(1000)
    unread.note(reader, 0.0)
    unread.make_room(100.0)
    assert not reader.is_gone
