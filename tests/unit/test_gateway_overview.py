"""What a gateway counts of its own traffic."""

from shoal.gateway.overview import Counts


def test_a_client_that_left_is_neither_answered_nor_refused():
    counts = Counts(clock=lambda: 1.0)
    for status in (200, 200, 499, 503, 400):
        counts.over(status)
    traffic = counts.traffic({})
    assert (traffic.answered, traffic.refused) == (2, 2)
