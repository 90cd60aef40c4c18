"""How much of a line a node asks the queue for, and when."""

from shoal.node.pulling import HELD_BYTES, Hand, pull_size


def hand(held=0, size=0) -> Hand:
    return Hand(2, 32, 384, held_jobs=held, held_bytes=size, held_tokens=held * 12)


def test_the_queue_is_asked_for_as_many_jobs_as_a_window_for_every_stream_has_items():
    assert pull_size(hand(held=10), good_batch_tokens=100) == (54, 2 * 384)
    assert pull_size(hand(held=64), good_batch_tokens=100) == (0, 0.0)


def test_a_request_of_ten_thousand_texts_in_hand_does_not_keep_others_from_being_pulled():
    assert pull_size(hand(held=1), good_batch_tokens=100)[0] == 63


def test_nothing_more_is_pulled_while_very_much_text_waits_here():
    assert pull_size(hand(held=1, size=HELD_BYTES), good_batch_tokens=100) == (0, 0.0)


def test_a_costly_start_asks_for_larger_windows_within_bounds():
    assert pull_size(hand(), good_batch_tokens=1000)[1] == 2000
    assert pull_size(hand(), good_batch_tokens=1e9)[1] == 2 * 8 * 384
