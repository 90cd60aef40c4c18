"""What a node tells of its lines: of those at work what they did lately, of others nothing; no count is lost."""

from shoal.node.tally import TOLD_FOR_S, Tally


def test_a_line_is_told_of_for_a_while_after_its_last_work_and_what_it_counted_is_kept():
    tally = Tally()
    for number in range(2000):
        tally.took(f"m{number}", 0.1, now=0.0)
    tally.gave_back("m7", now=0.0, jobs=3)
    assert len(tally.lines({}, {}, now=1.0)) == 2000
    later = TOLD_FOR_S + 1
    assert set(tally.lines({"m1": 2}, {"m2": 1, "m3": 0}, now=later)) == {"m1", "m2"}
    tally.took("m7", 0.1, now=2 * later)
    told = tally.lines({}, {}, now=2 * later)
    assert {name: line.given_back for name, line in told.items()} == {"m7": 3}
