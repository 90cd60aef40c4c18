"""Which size class a body is in, and which class of a line is pulled from next."""

import itertools

from shoal.protocol import subjects
from shoal.queue.classes import APART_S, BOUNDS, CLASSES, LIKELY, Apart, Served, size_class


def test_every_size_has_a_class_and_neighbours_differ_by_little_in_size():
    found = [size_class(size) for size in range(1, BOUNDS[-1])]
    assert [name for name, _ in itertools.groupby(found)] == list(CLASSES[1:])
    for low, high in itertools.pairwise(BOUNDS):
        assert high / low < 1.43
        assert size_class(low) == size_class(high - 1)


def test_what_is_beyond_the_largest_size_is_not_kept_apart():
    assert size_class(BOUNDS[-1]) == size_class(10**9) == ""


def test_a_class_has_a_subject_and_a_consumer_of_its_own():
    assert len({subjects.work("p", "interactive", "m", each) for each in CLASSES}) == len(CLASSES)
    assert len({subjects.consumer("interactive", "m", each) for each in CLASSES}) == len(CLASSES)
    assert [subjects.class_of(subjects.work("p", "batch", "m", each)) for each in CLASSES] == list(CLASSES)


def test_a_line_is_kept_apart_for_a_while_after_it_was_last_asked_for():
    apart = Apart()
    assert apart.class_of("m", 100, 0.0) == ""
    apart.keep("m", 0.0)
    assert (apart.class_of("m", 100, 1.0), apart.lines(1.0)) == (size_class(100), ["m"])
    assert apart.class_of("other", 100, 1.0) == ""
    assert (apart.class_of("m", 100, APART_S), apart.lines(APART_S)) == ("", [])


def all_empty(served: Served, newest: int = 1000) -> None:
    served.took("", newest, 0)
    for each in CLASSES:
        served.found_empty(each)


def test_the_class_that_was_served_least_far_is_next():
    served = Served()
    for place, each in enumerate(CLASSES, 1):
        served.took(each, 100 * place, 40)
    assert served.next() == CLASSES[0]
    served.took(CLASSES[0], 250, 40)
    assert served.next() == CLASSES[1]
    served.took(CLASSES[1], 150, 0)  # it holds no more: nobody waits in it yet
    assert served.next() == CLASSES[0]


def test_a_class_that_was_just_seen_empty_is_not_asked_alone():
    served = Served()
    assert served.next() is None
    all_empty(served)
    assert served.next() is None
    served.took("7", 1000 + LIKELY, 5)
    assert served.next() != "7"


def test_what_other_nodes_served_counts_as_served_here():
    one, other = Served(), Served()
    for served in (one, other):
        all_empty(served)
        served.took("1", 1100, 9)
    one.took("2", 1200, 0)
    for each in set(CLASSES) - {"1"}:
        one.found_empty(each)
    assert one.next() == "1"
    other.took("1", 1300, 0)
    one.heard(*other.told(["1"]))
    assert one.next() != "1"


def test_a_job_delivered_again_does_not_put_its_class_back():
    served = Served()
    all_empty(served)
    for each in CLASSES:
        served.took(each, 2000, 3)
    served.took("4", 5, 3)
    assert served.next() is None
