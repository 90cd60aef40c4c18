"""What a native request sets and nobody reads is told in a header; what is wrong is refused with what would do."""

import json

import msgspec
import pytest
from answering import JSON, NLI, answer, header, several_labels

from shoal.dialects.bodies import decode
from shoal.dialects.ignored import MOST_NAMES
from shoal.dialects.tei_bodies import EmbedBody
from shoal.protocol.errors import InvalidInput


def told(body: object, route: str = "encode", form: str = "json") -> str | None:
    data = json.dumps(body).encode() if form == "json" else msgspec.msgpack.encode(body)
    reply = answer("native", route, data, content_type=f"application/{form}", accept=JSON)
    assert reply.status == 200, reply.body
    return header(reply, "x-shoal-ignored") if "x-shoal-ignored" in dict(reply.headers) else None


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_misspelt_setting_is_told_with_its_place_and_the_answer_is_given(form):
    params = {"optons": {}, "options": {"is_qury": True, "normalize": True, "muvera": None}}
    body = {"items": ["a"], "params": params}
    assert told(body, form=form) == "params.optons, params.options.is_qury, params.options.muvera"


def test_options_where_the_other_route_has_them_are_told():
    assert told({"items": ["a"], "options": {"is_query": True}}) == "options"
    assert (
        told({"query": "q", "items": ["a"], "params": [1], "options": {"rwa": 1}}, "score")
        == "options.rwa, params"
    )


def test_an_option_of_the_other_route_is_told():
    assert told({"items": ["a"], "params": {"options": {"raw": True}}}) == "params.options.raw"


@pytest.mark.parametrize(
    "params", [None, {}, {"options": None}, {"options": {"is_query": True, "profile": "default"}}]
)
def test_where_all_is_read_nothing_is_told(params):
    assert told({"items": ["a"], "params": params}) is None


def test_many_long_or_unwritable_names_make_a_short_header_in_ascii():
    names = ["x" * 5000, "a\r\nb", "ä", *(f"n{i}" for i in range(20))]
    value = told({"items": ["a"], "params": {"options": dict.fromkeys(names, 1)}})
    assert value.isascii()
    assert value.isprintable()
    assert len(value) < 600
    assert value.endswith(f"and {len(names) - MOST_NAMES} more")


def test_an_output_dtype_among_the_options_is_as_good_as_beside_them():
    body = json.dumps({"items": ["a"], "params": {"options": {"output_dtype": "int8"}}}).encode()
    (item,) = json.loads(answer("native", "encode", body, content_type=JSON, accept=JSON).body)["items"]
    assert item["dense"]["dtype"] == "int8"


def test_a_variant_asked_for_as_a_profile_is_refused_with_its_name():
    body = json.dumps({"items": ["a"], "params": {"options": {"profile": "int8"}}}).encode()
    reply = answer("native", "encode", body, content_type=JSON, accept=JSON)
    assert reply.status == 400
    assert "org/name:int8" in json.loads(reply.body)["detail"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"inputs": "a", "truncation_direction": "up"}', "truncation_direction is 'up'; it takes Left, Right"),
        (b'{"inputs": ["a", 3]}', "inputs[1]"),
    ],
)
def test_a_word_that_will_not_do_is_refused_with_those_that_will(body, words):
    with pytest.raises(InvalidInput) as refused:
        decode(msgspec.json.Decoder(EmbedBody), body)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("dialect", "route", "body"),
    [
        ("cohere", "rerank", {"query": "q", "documents": ["a", "b"], "raw_scores": True}),
        ("tei", "rerank_tei", {"query": "q", "texts": ["a", "b"], "raw_scores": True}),
    ],
)
def test_a_foreign_rerank_by_a_model_with_several_labels_names_the_one_that_is_the_score(dialect, route, body):
    def scores(label: str) -> list[float]:
        data = json.dumps(body | {"label": label}).encode()
        reply = answer(dialect, route, data, content_type=JSON, facts=NLI, compute=several_labels)
        assert reply.status == 200, reply.body
        found = json.loads(reply.body)
        entries = found["results"] if isinstance(found, dict) else found
        return [
            entry.get("relevance_score", entry.get("score")) for entry in sorted(entries, key=lambda e: e["index"])
        ]

    assert scores("contradiction") == pytest.approx([-score for score in scores("entailment")])
    assert scores("neutral") == [0.0, 0.0]
