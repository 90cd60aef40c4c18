"""When a gateway sends a job again: decided from plain facts."""

from shoal.queue.flights import (
    MOST_TRIES,
    Budget,
    Flight,
    Verdict,
    after_no_stream,
    after_reconnect,
    after_silence,
)

POOR = Budget(burst=0)


def test_a_job_that_was_never_sent_costs_no_budget():
    assert after_reconnect(Flight(), False, POOR) is Verdict.SEND


def test_after_a_lost_connection_an_unclaimed_job_is_sent_again_and_a_claimed_one_is_waited_for():
    sent = Flight(sent=True, tries=1)
    assert after_reconnect(sent, False, Budget(burst=1)) is Verdict.SEND
    claimed = Flight(sent=True, tries=1, claimed_at=5.0)
    assert after_reconnect(claimed, False, Budget(burst=1)) is Verdict.WAIT


def test_a_job_beyond_the_budget_is_refused():
    assert after_reconnect(Flight(sent=True, tries=1), False, POOR) is Verdict.REFUSE


def test_nothing_is_sent_again_once_its_answer_has_begun():
    silent = Flight(sent=True, tries=1, claimed_at=0.0)
    assert after_reconnect(silent, True, Budget()) is Verdict.WAIT
    assert after_silence(silent, True, Budget(), now=1.0, patience_s=6.0) is Verdict.WAIT


def test_an_answer_that_began_and_whose_node_fell_silent_is_broken_off():
    silent = Flight(sent=True, tries=1, claimed_at=0.0)
    assert after_silence(silent, True, Budget(), now=60.0, patience_s=6.0) is Verdict.REFUSE


def test_a_job_that_nobody_claimed_waits_in_its_line_however_long():
    assert after_silence(Flight(sent=True, tries=1), False, Budget(), now=1e9, patience_s=6.0) is Verdict.WAIT


def test_a_claimed_job_is_sent_again_when_its_node_has_been_silent_for_longer_than_the_patience():
    claimed = Flight(sent=True, tries=1, claimed_at=10.0)
    assert after_silence(claimed, False, Budget(burst=1), now=15.9, patience_s=6.0) is Verdict.WAIT
    assert after_silence(claimed, False, Budget(burst=1), now=16.0, patience_s=6.0) is Verdict.SEND


def test_no_job_is_sent_for_ever():
    worn = Flight(sent=True, tries=MOST_TRIES, claimed_at=0.0)
    assert after_silence(worn, False, Budget(), now=60.0, patience_s=6.0) is Verdict.REFUSE
    assert after_no_stream(worn) is Verdict.REFUSE
    assert after_no_stream(Flight(sent=True, tries=1)) is Verdict.SEND


def test_the_budget_is_a_share_of_the_traffic_saved_up_to_a_bound():
    budget = Budget(share=0.125, burst=0, most=2)
    for _ in range(8):
        budget.earn()
    assert (budget.spend(), budget.spend()) == (True, False)
    for _ in range(1000):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]
