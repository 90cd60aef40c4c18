"""Whose connection ends when too much is owed to clients that do not read."""

from shoal.gateway.unread import Unread


class Reader:
    def __init__(self) -> None:
        self.is_gone = False

    def let_go(self) -> None:
        self.is_gone = True


def gone(readers: list[Reader]) -> list[bool]:
    return [reader.is_gone for reader in readers]


def test_whoever_has_read_nothing_for_the_longest_goes_first_and_no_more_than_need_be():
    unread, readers = Unread(100), [Reader() for _ in range(4)]
    for reader in readers:
        unread.note(reader, 40)
    assert gone(readers) == [True, True, False, False]


def test_one_that_read_on_is_owed_nothing_and_stands_last_when_it_stops_again():
    unread, readers = Unread(100), [Reader() for _ in range(3)]
    unread.note(readers[0], 40)
    unread.note(readers[1], 40)
    unread.forget(readers[0])
    unread.note(readers[0], 40)
    unread.note(readers[2], 40)
    assert gone(readers) == [False, True, False]


def test_an_answer_larger_than_all_may_be_is_given_to_one_who_reads_it_alone():
    unread, reader = Unread(100), Reader()
    unread.note(reader, 1000)
    assert not reader.is_gone
