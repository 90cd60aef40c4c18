"""`shoal bench` on real servers, as a person runs it: that it works. What it measures is for quiet machines."""

import itertools
import json
import subprocess
import sys

import pytest

from names import MINILM, RERANKER, VIRTUAL, VIRTUAL_RERANKER
from shoal.lab import report
from shoal.lab.bench import Plan, run
from shoal.lab.ramp import parse_loads
from shoal.lab.wires import Wire
from shoal.protocol.errors import ModelNotFound, NotFound, Unauthorized
from shoal.testing.server import free_port, serving

QUICK = ["--seconds", "0.4", "--warm-up", "0.1"]


def bench(*words):
    command = [sys.executable, "-m", "shoal", "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def plan(url, model, api="openai", connections="2", **others):
    fields = {"loads": parse_loads(connections, "connections"), "seconds": 0.4, "warm_up_s": 0.1} | others
    return Plan(url, Wire(api, model), **fields)


def test_a_bench_prints_a_table_and_leaves_a_report_and_a_plot(virtual_server, tmp_path):
    out, plot = tmp_path / "report.json", tmp_path / "report.png"
    words = ["--model", VIRTUAL, "--connections", "1,4", *QUICK, "--pid", virtual_server.process.pid]
    ran = bench(virtual_server.url, *words, "--api-key", "a-secret", "--out", out, "--plot", plot)
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()[:3]] == ["connections", "1", "4"]
    assert "8 to 16 tokens" in ran.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    made = report.read(out)
    assert [level.load for level in made.levels] == [1, 4]
    assert "a-secret" not in out.read_text()
    assert f"--model {VIRTUAL}" in made.asked.command
    assert made.asked.seed == 1
    assert made.server["id"] == VIRTUAL
    for level in made.levels:
        assert level.errors == {}
        assert 0 < level.p50_ms <= level.p95_ms <= level.p99_ms
        assert level.cpu_ms_per_item > 0
        assert level.memory.processes >= 2


def test_two_reports_are_set_side_by_side(virtual_server, tmp_path):
    for name in "ab":
        words = ["--model", VIRTUAL, "--connections", 2, *QUICK, "--out", tmp_path / name]
        assert bench(virtual_server.url, *words).returncode == 0
    ran = bench("compare", tmp_path / "a", tmp_path / "b")
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[-1] for line in ran.stdout.splitlines()[1:]] != []
    for what in ("items/s", "p50", "p99", "95 % interval"):
        assert what in ran.stdout


@pytest.mark.parametrize("mix", ["short", "lognormal", "batch"])
@pytest.mark.parametrize(
    ("api", "model"), [("openai", VIRTUAL), ("native", VIRTUAL), ("rerank", VIRTUAL_RERANKER)]
)
def test_every_mix_runs_over_every_api(virtual_server, api, model, mix):
    (level,) = run(plan(virtual_server.url, model, api, mix=mix)).levels
    assert level.errors == {}
    per_request = 32 if mix == "batch" else 1
    assert level.items_per_second == pytest.approx(per_request * level.per_second)
    assert level.tokens_per_second > level.items_per_second


def test_the_native_wire_scores_pairs_of_a_file(virtual_server, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"query": "a b", "documents": ["c d", "e", "f g h"]}))
    (level,) = run(plan(virtual_server.url, VIRTUAL_RERANKER, "native", input=path)).levels
    assert level.errors == {}
    assert level.items_per_second == pytest.approx(3 * level.per_second)


def test_whole_bodies_of_a_file_are_sent_as_they_are(virtual_server, tmp_path):
    path = tmp_path / "bodies.jsonl"
    good, bad = {"model": VIRTUAL, "input": ["a", "b"]}, {"model": VIRTUAL, "input": "a", "dimensions": -1}
    path.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    (level,) = run(plan(virtual_server.url, VIRTUAL, input=path)).levels
    assert set(level.errors) == {"400"}
    assert "dimensions" in level.complaint
    assert level.items_per_second == pytest.approx(2 * level.per_second)


def test_an_open_loop_offers_what_it_is_told_to(virtual_server):
    loads = parse_loads("40,80", "rate")
    made = run(plan(virtual_server.url, VIRTUAL, loads=loads, seconds=1.0))
    assert [level.load for level in made.levels] == [40, 80]
    for level in made.levels:
        assert level.errors == {}
        assert level.offered == pytest.approx(level.load, rel=0.5)  # arrivals are random, though seeded


def test_a_ramp_ends_soon_after_the_knee_of_a_server_that_takes_few(virtual_home):
    """It lets four requests in and refuses the others, so that from eight connections on nothing is gained."""
    with serving(virtual_home, "--max-in-flight", "4") as server:
        made = run(plan(server.url, VIRTUAL, connections="1..256"))
    assert made.knee.place is not None, made.knee.why
    assert made.levels[-1].load < 256
    assert made.levels[-1].resting > 0.5
    assert made.levels[-1].errors.keys() <= {"429", "503"}


def test_rounds_measure_each_load_so_often(virtual_server):
    made = run(plan(virtual_server.url, VIRTUAL, connections="1,2", rounds=2))
    assert [sorted({entry.round for entry in level.slices}) for level in made.levels] == [[0, 1], [0, 1]]


def test_where_nothing_listens_the_bench_says_so():
    url = f"http://127.0.0.1:{free_port()}"
    ran = bench(url, "--model", VIRTUAL)
    assert ran.returncode == 1
    assert "nothing listens at 127.0.0.1" in ran.stderr
    with pytest.raises(NotFound):
        run(plan(url, VIRTUAL))


def test_an_unknown_model_is_said_to_be_unknown(virtual_server):
    for api in ("openai", "native"):
        with pytest.raises(ModelNotFound, match="no/such"):
            run(plan(virtual_server.url, "no/such", api))


def test_a_key_that_is_missing_or_wrong_is_asked_for(virtual_home):
    with serving(virtual_home, SHOAL_API_KEY="right") as server:
        with pytest.raises(Unauthorized, match="wants a key"):
            run(plan(server.url, VIRTUAL))
        with pytest.raises(Unauthorized, match="refuses the key"):
            run(plan(server.url, VIRTUAL, key="wrong"))
        (level,) = run(plan(server.url + "/v1/", VIRTUAL, key="right")).levels
    assert level.errors == {}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["http://x", "--model", "m", "--connections", "few"], "write 1,8,32"),
        (["http://x", "--model", "m", "--connections", "1", "--rate", "5"], "give one"),
        (["http://x", "--model", "m", "--input", "no-such-file"], "no-such-file"),
        (["http://x", "--model", "m", "--out", "no-such-folder/r.json"], "no folder"),
        (["http://x", "--model", "m", "--plot", "n.tiff"], ".png, .jpg"),
        (["ftp://x", "--model", "m"], "http://"),
        (["http://x:port", "--model", "m"], "port"),
        (["http://127.0.0.1:1", "--model", "m", "--pid", "999999999"], "999999999"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_load(words, complaint):
    ran = bench(*words)
    assert ran.returncode == 1
    assert complaint in ran.stderr
    assert "unexpected" not in ran.stderr


@pytest.mark.models
def test_a_real_encoder_and_a_real_reranker_are_measured_with_their_own_tokens(home, server, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(home))
    encoder = run(plan(server.url, MINILM, mix="lognormal", connections="4", seconds=1.0))
    reranker = run(plan(server.url, RERANKER, "rerank", connections="1", seconds=1.0, per_request=3))
    for made in (encoder, reranker):
        assert "own tokenizer" in made.asked.tokens
        for level in made.levels:
            assert level.errors == {}
            assert level.tokens_per_second > level.items_per_second > 0


def test_loads_grow_only_as_far_as_they_are_asked_for():
    assert list(itertools.islice(parse_loads("3..", "connections"), 3)) == [3, 6, 12]
