"""What a bench leaves and how two of them compare. Runs are made up here; real ones are in tests/cluster."""

import random

import msgspec
import pytest

from shoal.lab import report
from shoal.lab.compare import compare, differences
from shoal.lab.knee import knee
from shoal.lab.plot import plot
from shoal.lab.report import Asked, Report, level
from shoal.lab.run import Answer, Run
from shoal.protocol.errors import InvalidInput

ASKED = Asked("shoal bench", "http://x", "openai", "m", "short", "texts", 1, "words", "connections", 10, 1, 1)


def run(rate, latency_s, seed=1, seconds=10.0, failing=0.0, spread=0.2):
    """`rate` answers a second whose latency varies by `spread`, from before the window until after it."""
    rng = random.Random(seed)
    answers = []
    for number in range(-rate, int(rate * (seconds + 1))):
        wait = latency_s * rng.uniform(1 - spread, 1 + spread)
        status = 503 if rng.random() < failing else 200
        answers.append(Answer(number / rate, wait, status, items=2, tokens=20))
    return Run(seconds, answers, cpu_s=3.0, own_cpu_s=1.0, complaint="full" if failing else "")


def report_of(levels, asked=ASKED):
    points = [entry.point for entry in levels]
    return Report(report.FORMAT, "now", asked, levels, knee(points), report.versions(), report.machine())


def ratios(a, b):
    return {ratio.what: ratio for ratio in compare(report_of([level(8, a)]), report_of([level(8, b)]))}


def test_rates_count_what_came_in_the_window_and_latencies_what_began_in_it():
    made = level(8, [run(100, 0.05)])
    assert made.per_second == pytest.approx(100, rel=0.01)
    assert made.items_per_second == pytest.approx(200, rel=0.01)
    assert made.tokens_per_second == pytest.approx(2000, rel=0.01)
    assert made.offered == pytest.approx(100, rel=0.01)
    assert made.p50_ms == pytest.approx(50, rel=0.05)
    assert made.p50_ms <= made.p95_ms <= made.p99_ms <= 60
    assert made.cpu_ms_per_item == pytest.approx(3000 / 2000, rel=0.01)
    assert made.generator_share == pytest.approx(0.1)


def test_failures_are_no_throughput_and_no_latency():
    made = level(8, [run(100, 0.05, failing=0.5)])
    assert made.failed == pytest.approx(0.5, abs=0.06)
    assert made.per_second == pytest.approx(50, rel=0.15)
    assert set(made.errors) == {"503"}
    assert made.complaint == "full"


def test_a_load_that_nobody_answered_can_be_written_and_has_no_latency(tmp_path):
    silent = Run(1.0, [Answer(0.5, 3.0, 0, fault="connection lost")])
    made = level(8, [silent])
    assert (made.per_second, made.p99_ms, made.failed) == (0, 0, 1)
    assert made.point.p50_s == float("inf")
    report.write(report_of([made]), tmp_path / "r.json")
    assert report.read(tmp_path / "r.json").levels == [made]


def test_rounds_are_one_level_and_their_slices_know_them():
    made = level(8, [run(100, 0.05), run(200, 0.05, seed=2)])
    assert made.per_second == pytest.approx(150, rel=0.01)
    assert {entry.round for entry in made.slices} == {0, 1}
    assert sum(entry.seconds for entry in made.slices) == pytest.approx(20)
    assert sum(entry.items for entry in made.slices) == pytest.approx(20 * made.items_per_second)


def test_slices_keep_enough_to_find_the_percentiles_again():
    made = level(8, [run(3000, 0.05)])
    assert max(len(entry.latencies_ms) for entry in made.slices) == report.KEPT
    (_, p50, p99) = compare(report_of([made]), report_of([made]))
    assert p50.a == pytest.approx(50, rel=0.02)
    assert p50.low <= 1 <= p50.high
    assert p99.low == pytest.approx(1, rel=0.02)


def test_a_report_is_written_and_read_again(tmp_path):
    made = report_of([level(1, [run(100, 0.01)]), level(2, [run(110, 0.02)])])
    report.write(made, tmp_path / "report.json")
    assert report.read(tmp_path / "report.json") == made
    assert made.versions["shoal"]
    assert made.machine["cores"] >= 1


def test_a_file_that_is_no_report_is_refused_by_its_name(tmp_path):
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(InvalidInput, match=r"other\.json is no report"):
        report.read(tmp_path / "other.json")


def test_two_runs_of_the_same_server_show_no_difference():
    for ratio in ratios([run(100, 0.05, seed=1)], [run(100, 0.05, seed=2)]).values():
        assert ratio.verdict == "no difference resolved"
        assert ratio.low <= 1 <= ratio.high


def test_a_server_that_is_faster_and_later_is_said_to_be_both():
    found = ratios([run(100, 0.05)], [run(130, 0.08, seed=2)])
    assert found["items/s"].ratio == pytest.approx(1.3, rel=0.02)
    assert found["items/s"].verdict == "B is better"
    assert found["p50"].ratio == pytest.approx(1.6, rel=0.05)
    assert found["p50"].low > 1.4
    assert found["p50"].verdict == found["p99"].verdict == "B is worse"


def test_rounds_that_differ_widen_the_interval():
    """Both sides are 100 on average, but B was 60 in one round and 140 in the other."""
    steady = ratios([run(100, 0.05, seed=s) for s in (1, 2)], [run(100, 0.05, seed=s) for s in (3, 4)])
    drifting = ratios([run(100, 0.05, seed=s) for s in (1, 2)], [run(60, 0.05, seed=3), run(140, 0.05, seed=4)])
    widths = [found["items/s"].high - found["items/s"].low for found in (steady, drifting)]
    assert widths[1] > 5 * widths[0]


def test_reports_without_a_load_in_common_cannot_be_compared():
    a, b = (report_of([level(load, [run(100, 0.05)])]) for load in (1, 8))
    with pytest.raises(InvalidInput, match="A has 1, B 8"):
        compare(a, b)


def test_what_else_differs_is_named():
    a = report_of([level(1, [run(100, 0.05)])])
    b = report_of(a.levels, msgspec.structs.replace(ASKED, mix="batch", model="n"))
    assert differences(a, a) == []
    assert differences(a, b) == ["model: m against n", "mix: short against batch"]


def test_a_plot_is_a_picture_with_or_without_a_knee(tmp_path):
    curve = ((1, 50), (2, 99), (4, 100), (8, 101), (16, 99))
    levels = [level(load, [run(rate, load / rate)]) for load, rate in curve]
    for name, some in (
        ("knee", levels),
        ("none", levels[:1]),
        ("refused", [level(4, [run(50, 0.1, failing=0.3)])]),
    ):
        plot(report_of(some), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert report_of(levels).knee.place == 1


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("a.JPG", b"\xff\xd8\xff"),
        ("a.jpeg", b"\xff\xd8\xff"),
        ("a.svg", b"<?xml"),
        ("a.pdf", b"%PDF"),
    ],
)
def test_a_plot_is_what_its_name_says(tmp_path, name, start):
    plot(report_of([level(1, [run(100, 0.05)])]), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.gif", "a.json", "a"])
def test_a_plot_whose_name_says_nothing_is_refused_with_what_can_be_drawn(tmp_path, name):
    with pytest.raises(InvalidInput, match=r"\.png, \.jpg"):
        plot(report_of([level(1, [run(100, 0.05)])]), tmp_path / name)
    assert not (tmp_path / name).exists()
