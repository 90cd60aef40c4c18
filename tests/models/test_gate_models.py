"""The gate on models: of every family and head a tiny checkpoint, the real ones that are here, and the command."""

import re
from pathlib import Path

import pytest
from test_family_parity import CASES, encoder_facts, written

from names import BGE, MINILM, SPLADE
from shoal import cli
from shoal.catalog import Card, Folder, Model, Variant
from shoal.catalog.profiles import Profiles, all_shipped
from shoal.catalog.store import Store
from shoal.lab.gate_run import Verdict, judge
from shoal.lab.gate_texts import Pair, make_trial
from shoal.node import devices
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts
from shoal.runtimes.cpu import has_bf16
from shoal.testing import heads
from shoal.testing.checkpoints import tiny_encoder, tiny_reranker

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(
        not has_bf16(), reason="this processor does not compute bf16, so there is nothing to decide"
    ),
]
HEADS = {
    "dense": heads.tiny_dense, "sparse": heads.tiny_sparse, "looked up": heads.tiny_looked_up,
    "multivector": heads.tiny_multivector, "score": tiny_reranker, "labels": heads.tiny_classifier,
}  # fmt: skip


def judged(folder: Path, facts: Facts, dtype="bf16") -> Verdict:
    card = Card(name="acme/m", source=Folder(str(folder)))
    model = Model(card=card, facts=facts, folder=folder, digest="ab" * 32, size_bytes=1)
    return judge(model, dtype, make_trial(facts), lambda words: None)


def figures(verdict: Verdict) -> dict[str, float]:
    return {figure.what: figure.value for figure in verdict.figures}


@pytest.mark.parametrize("case", CASES)
def test_an_encoder_of_every_family_is_near_in_bf16_and_is_decided_by_the_bar(tmp_path, case):
    written(tmp_path, case, "AutoModel")
    verdict = judged(tmp_path, encoder_facts(case))
    assert verdict.near >= 0.999
    assert verdict.kept("a test").dtype == ("bf16" if verdict.near >= 0.9999 else "fp32")


@pytest.mark.parametrize("head", HEADS)
def test_each_head_is_compared_by_what_it_gives(tmp_path, head):
    verdict = judged(tmp_path, HEADS[head](tmp_path))
    said = " ".join(figures(verdict))
    assert ("worst cosine" in said) == (head not in ("score", "labels"))
    assert ("share in order" in said) == (head != "dense")
    assert 0 < verdict.near <= 1
    kept = verdict.kept("a test")
    assert kept.dtype == ("bf16" if verdict.passed else "fp32")
    if verdict.passed:
        assert kept.tolerance <= verdict.near


def test_what_is_compared_with_itself_passes_every_bar_and_eight_bits_are_no_profile(tmp_path):
    facts = tiny_encoder(tmp_path)
    light = judged(tmp_path, facts, "int8")
    with pytest.raises(InvalidInput, match="variant"):
        light.kept("a test")
    same = judged(tmp_path, facts, "fp32")
    assert same.passed
    assert same.near == pytest.approx(1.0)


@pytest.mark.parametrize("name", [MINILM, SPLADE])
def test_a_known_model_measures_what_its_shipped_profile_says(home, name):
    store = Store(home)
    shipped = all_shipped()[name]
    model = store.resolve(name)
    assert model.digest == shipped.digest
    kept = Profiles(home, devices.kind())._shipped(model)
    if kept is None:
        pytest.skip(f"nothing ships for processors of kind {devices.kind()}; bench/profiles.py measures it")
    verdict = judge(model, "bf16", make_trial(model.facts), lambda words: None)
    assert kept.dtype == verdict.kept("a test").dtype
    # Another number of threads adds up in another order.
    assert verdict.near == pytest.approx(kept.figures[0].value, abs=2e-5)


def test_eight_bits_are_held_to_what_their_variant_is_listed_with(home, tmp_path):
    model = Store(home).resolve(MINILM)
    verdict = judge(model, "int8", make_trial(model.facts), lambda words: None)
    assert verdict.promised == model.card.variants["int8"].tolerance
    assert verdict.passed == (verdict.near >= verdict.promised)
    assert verdict.passed
    assert judged(tmp_path, heads.tiny_sparse(tmp_path), "int8").promised == 0


def test_labelled_pairs_are_ranked_as_well_in_bf16(home, faq):
    model = Store(home).resolve(MINILM)
    pairs = [Pair(question, answer) for question, answer in zip(*faq, strict=True)]
    verdict = judge(model, "bf16", make_trial(model.facts, pairs[:200]), lambda words: None)
    (said,) = (what for what in figures(verdict) if what.startswith("nDCG@10 of 200 labelled queries"))
    assert figures(verdict)[said] <= 0.005
    assert verdict.passed


def test_a_published_graph_has_nothing_to_decide(home):
    model = Store(home).resolve(BGE)
    with pytest.raises(InvalidInput, match="precision that its files have"):
        judge(model, "bf16", make_trial(model.facts), lambda words: None)


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return run


def test_the_command_prints_each_figure_beside_its_bar_and_keeps_what_it_decides(shell, tmp_path):
    tiny_encoder(tmp_path / "tiny")
    shell("add", str(tmp_path / "tiny"), "--name", "acme/tiny")
    home = tmp_path / "home"
    code, out, _ = shell("gate", "acme/tiny", "--dry-run")
    assert "nothing was written" in out
    assert not (home / "profiles").exists()
    again, out, err = shell("gate", "acme/tiny")
    assert again == code
    assert "texts in fp32" in err
    assert re.search(r"(passed|failed) +0\.\d{6} +≥ 0\.9999 +worst cosine of a dense vector", out)
    kept = Profiles(home, devices.kind()).own(Store(home).resolve("acme/tiny"))
    assert f"decided: {kept.dtype}, at a tolerance of {kept.tolerance:.5f}" in out
    assert code == (kept.dtype == "fp32")
    _, out, _ = shell("models", "acme/tiny")
    assert f"{kept.dtype} at a tolerance of {kept.tolerance}, measured here by shoal gate acme/tiny" in out


@pytest.mark.parametrize("least", [0.9, 0.99999])
def test_of_eight_bits_the_command_says_whether_they_are_as_good_as_listed(shell, tmp_path, monkeypatch, least):
    variant = Variant(dtype="int8", tolerance=least)
    monkeypatch.setattr("shoal.catalog.variants._UNMEASURED", variant)
    tiny_encoder(tmp_path / "tiny")
    shell("add", str(tmp_path / "tiny"), "--name", "acme/tiny")
    code, out, _ = shell("gate", "acme/tiny", "--dtype", "int8")
    word, outcome = ("passed", "is") if least == 0.9 else ("failed", "is not")
    assert re.search(rf"{word} +0\.\d{{6}} +≥ {least} +worst cosine of a dense vector", out)
    assert f"decided: acme/tiny:int8 {outcome} as good as it is listed, at a tolerance of {least}" in out
    assert code == (least != 0.9)
    assert not (tmp_path / "home" / "profiles").exists()


def test_the_command_refuses_what_it_cannot_decide_in_a_sentence(shell, tmp_path):
    tiny_encoder(tmp_path / "tiny")
    shell("add", str(tmp_path / "tiny"), "--name", "acme/tiny")
    shell("add", "shoal/virtual-encoder")
    for words, said in (
        (["acme/tiny:int8"], "keeps its dtype"),
        (["shoal/virtual-encoder"], "nothing to decide"),
        (["acme/nobody"], "acme/nobody"),
        (["acme/tiny", "--pairs", str(tmp_path / "nowhere")], "cannot be read"),
    ):
        code, _, err = shell("gate", *words)
        assert code == 1
        assert said in err
