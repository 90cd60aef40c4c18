import json

import msgspec
import numpy as np
import pytest
from answering import EVERY_KIND, JSON, answer, compute, header, vector

from shoal.dialects import all_dialects
from shoal.dialects.arrays import wire_array
from shoal.protocol.envelope import Envelope
from shoal.protocol.errors import (
    Fault,
    Forbidden,
    InternalError,
    InvalidInput,
    ModelLoadFailed,
    ModelLoading,
    ModelNotFound,
    Unauthorized,
)
from shoal.protocol.items import Item, Output

MSGPACK = "application/msgpack"
DIALECT = all_dialects()["native"]


def post(body: object, *, route: str = "encode", form: str = "json", accept: str = JSON, **more: object):
    data = json.dumps(body).encode() if form == "json" else msgspec.msgpack.encode(body)
    content_type = JSON if form == "json" else MSGPACK
    return answer("native", route, data, content_type=content_type, accept=accept, **more)


def decoded(body: object, *, route: str = "encode", line: str = "org/m"):
    envelope = Envelope(
        id="r-1", task=route, model=line, line=line, dialect="native", route=route, deadline=0.0, received=0.0
    )
    return DIALECT.decode(envelope, json.dumps(body).encode())


def said(reply) -> dict:
    return json.loads(reply.body)


def detail(reply) -> dict:
    (found,) = said(reply).values()
    return found


def read_array(found: dict) -> np.ndarray:
    assert found[b"nd"] is True
    assert found[b"kind"] == b""
    return np.frombuffer(found[b"data"], found[b"type"]).reshape(found[b"shape"])


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_texts_become_vectors_in_order_with_their_ids(form):
    reply = post({"items": [{"text": "one", "id": "a"}, "two", {"text": "three"}]}, form=form)
    body = said(reply)
    assert body["model"] == "org/m"
    assert [item.get("id") for item in body["items"]] == ["a", None, None]
    for item, text in zip(body["items"], ["one", "two", "three"], strict=True):
        assert (item["dense"]["dims"], item["dense"]["dtype"]) == (12, "float32")
        assert np.float32(item["dense"]["values"]).tolist() == vector(text).tolist()
    assert body["usage"] == {"input_tokens": 9, "truncated": 0}
    assert body["timing"] == {
        "total_ms": 12.5,
        "queue_ms": 1.25,
        "tokenization_ms": 0.5,
        "inference_ms": 7.75,
    }


@pytest.mark.parametrize(
    ("dtype", "code", "shape"),
    [
        ("float32", "<f4", [12]),
        ("float16", "<f2", [12]),
        ("int8", "|i1", [12]),
        ("uint8", "|u1", [12]),
        ("binary", "|u1", [2]),
        ("ubinary", "|u1", [2]),
    ],
)
def test_msgpack_arrays_have_bytes_keys_and_the_dtype_asked_for(dtype, code, shape):
    reply = post({"items": ["one", "two"], "params": {"output_dtype": dtype}}, accept=MSGPACK)
    for item in msgspec.msgpack.decode(reply.body)["items"]:
        dense = item["dense"]
        assert (dense["dims"], dense["dtype"]) == (12, dtype)
        assert (dense["values"][b"type"], dense["values"][b"shape"]) == (code, shape)
        read_array(dense["values"])
    assert header(reply, "content-type") == MSGPACK


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", MSGPACK),
        ("*/*", MSGPACK),
        (MSGPACK, MSGPACK),
        (JSON, JSON),
        ("Application/JSON, text/plain", JSON),
        ("application/json, application/msgpack", MSGPACK),
        ("application/x-msgpack, application/json", MSGPACK),
    ],
)
def test_answers_are_msgpack_unless_only_json_is_accepted(accept, form):
    assert header(post({"items": ["a"]}, accept=accept), "content-type") == form


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", ""])
def test_json_is_read_by_its_name_or_its_first_character(content_type):
    reply = answer("native", "encode", b' {"items": ["a"]}', content_type=content_type, accept=JSON)
    assert reply.status == 200


@pytest.mark.parametrize("content_type", [MSGPACK, "application/x-msgpack", "APPLICATION/MSGPACK", ""])
def test_msgpack_is_read_by_its_name_or_for_want_of_one(content_type):
    body = msgspec.msgpack.encode({"items": ["a"]})
    assert answer("native", "encode", body, content_type=content_type, accept=JSON).status == 200


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "nonsense", ";"])
def test_other_content_types_are_415(content_type):
    reply = answer("native", "encode", b'{"items": ["a"]}', content_type=content_type)
    assert reply.status == 415
    assert header(reply, "x-sie-error-code") == "UNSUPPORTED_MEDIA_TYPE"


def test_a_bare_string_is_never_a_list_of_letters():
    reply = post({"items": "abc"})
    assert reply.status == 400
    assert "$.items" in detail(reply)["message"]


@pytest.mark.parametrize("items", [[], None, {}, 3, [3], [None], [[]], ["a", 5], [{"text": 3}], [{"text": ["a"]}]])
def test_items_that_are_no_texts_are_refused_by_path(items):
    for form in ("json", "msgpack"):
        reply = post({"items": items}, form=form)
        assert reply.status == 400
        assert "items" in detail(reply)["message"]


def test_an_array_in_the_place_of_a_text_is_a_clean_400():
    array = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": b"abcd"}
    for items in ([{"text": array}], array, [array], [{"text": "a", "id": array}]):
        assert post({"items": items}, form="msgpack").status == 400


def test_an_empty_text_gets_a_typed_error_and_its_neighbours_succeed():
    reply = post({"items": ["a", {"text": "", "id": "b"}, {}, "c"]})
    assert reply.status == 200
    first, second, third, fourth = said(reply)["items"]
    assert "error" not in first
    assert second == {"id": "b", "error": {"code": "EMPTY_INPUT", "message": second["error"]["message"]}}
    assert third["error"]["code"] == "EMPTY_INPUT"
    assert np.float32(fourth["dense"]["values"]).tolist() == vector("c").tolist()


def test_when_nothing_succeeded_the_first_error_is_the_answer():
    reply = post({"items": ["", {"text": "a", "images": [{"data": "aa"}]}]})
    assert (reply.status, detail(reply)["code"]) == (400, "EMPTY_INPUT")


@pytest.mark.parametrize("medium", ["images", "audio", "video", "document"])
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_media_are_refused_item_by_item_and_absent_ones_are_not(medium, form):
    bad = [{medium: {"data": "aGk="}}, {"text": "a", medium: [{"data": "aGk="}]}]
    fine = [{"text": "a", medium: None}, {"text": "a", medium: []}, {"text": "a", "metadata": {"k": 1}}]
    items = said(post({"items": bad + fine}, form=form))["items"]
    assert [item.get("error", {}).get("code") for item in items] == ["INVALID_INPUT"] * 2 + [None] * 3
    assert medium in items[0]["error"]["message"]


def test_options_of_the_sdk_and_ours_reach_the_items():
    seen: list[Item] = []

    def note(item: Item) -> Output:
        seen.append(item)
        return compute(item)

    options = {
        "is_query": True,
        "normalize": True,
        "dimensions": 4,
        "truncate": "start",
        "unknown": {"a": [1]},
    }
    post({"items": ["a"], "params": {"options": options | {"profile": "default", "lora_id": ""}}}, compute=note)
    post({"items": ["a"], "params": {"instruction": "Find: ", "options": {"is_query": True}}}, compute=note)
    post({"items": ["a"], "params": {"options": {"prompt_name": "passage"}}}, compute=note)
    post({"items": ["a"], "params": {"options": {"instruction": "Other: "}}, "what": 3}, compute=note)
    assert seen == [
        Item("a", prompt="query: ", normalize=True, dims=4, truncate="start", is_query=True),
        Item("a", prompt="Find: ", is_query=True),
        Item("a", prompt="passage: "),
        Item("a", prompt="Other: "),
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"output_types": ["sparse"]}, "gives dense"),
        ({"output_types": ["dense", "multivector"]}, "gives dense"),
        ({"output_types": ["smell"]}, "output_types"),
        ({"output_types": "dense"}, "output_types"),
        ({"output_dtype": "float64"}, "output_dtype"),
        ({"options": {"is_query": "yes"}}, "is_query"),
        ({"options": {"dimensions": 0}}, "dimensions"),
        ({"options": {"dimensions": 5}}, "4, 8, 12"),
        ({"options": {"prompt_name": "poem"}}, "passage, query"),
        ({"options": {"truncate": True}}, "truncate"),
        ({"options": {"profile": "fast"}}, "fast"),
        ({"options": [1]}, "options"),
        ({"instruction": 3}, "instruction"),
        ("dense", "params"),
    ],
)
def test_wrong_parameters_are_400_with_the_place_or_the_choices(params, words):
    reply = post({"items": ["a"], "params": params})
    assert reply.status == 400
    assert words in detail(reply)["message"]


@pytest.mark.parametrize("name", ["lora", "lora_id"])
def test_the_adapter_that_is_asked_for_is_part_of_the_request(name):
    for route, extra in (
        ("encode", {"params": {"options": {name: "mine"}}}),
        ("score", {"options": {name: "mine"}}),
    ):
        assert decoded({"query": "q", "items": ["a"]} | extra, route=route).adapter == "mine"
        assert decoded({"query": "q", "items": ["a"]}, route=route).adapter == ""


def test_a_profile_may_name_the_variant_that_is_asked_for_and_no_other():
    body = {"items": ["a"], "params": {"options": {"profile": "int8"}}}
    assert len(decoded(body, line="org/m:int8").inputs) == 1
    with pytest.raises(InvalidInput, match="org/name:int8"):
        decoded(body)


def test_a_thousand_texts_come_back_in_order():
    texts = [f"text {i}" for i in range(1000)]
    items = msgspec.msgpack.decode(post({"items": texts}, accept=MSGPACK).body)["items"]
    assert all(
        np.array_equal(read_array(item["dense"]["values"]), vector(text))
        for item, text in zip(items, texts, strict=True)
    )


def test_truncation_is_said_in_usage_and_header_and_may_be_an_error_of_the_item():
    long = "w " * 40
    reply = post({"items": [long, "a"]})
    assert said(reply)["usage"] == {"input_tokens": 19, "truncated": 1}
    assert header(reply, "x-shoal-truncated") == "1"
    strict = post({"items": [long, "a"], "params": {"options": {"truncate": "error"}}})
    assert [item.get("error", {}).get("code") for item in said(strict)["items"]] == ["INPUT_TOO_LONG", None]
    assert post({"items": [long], "params": {"options": {"truncate": "error"}}}).status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"items": ["a"]} x',
        b'{"items": ["\xff"]}',
        b'{"items": ["\\ud800"]}',
        b'{"items": ["a"], "params": {"options": {"dimensions": NaN}}}',
        b'{"items": ["a"], "params": {"options": {"dimensions": 1' + b"0" * 5000 + b"}}}",
        b'{"items": ' + b"[" * 100_000,
        b'{"items": ["a"], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"items": [{"images": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}]}",
    ],
)
def test_broken_json_is_400(body):
    reply = answer("native", "encode", body, content_type=JSON)
    assert (reply.status, detail(reply)["code"]) == (400, "INVALID_INPUT")
    assert len(detail(reply)["message"]) < 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x81\xa5items\xdd\xff\xff\xff\xff",
        b"\x81\xa5items\x91\xa1\xff",
        b"\x81\xa5items\x91\xc4\x01a",
        b"\x81\xa5items\x91\xa1a\x00",
        b"\x81\x01\x02",
        b"\x81\xc4\x05items\x91\xa1a",
        b"\x81\xa5items\x91\xd6\xff\x00\x00\x00\x00",
        b"\x82\xa5items\x91\xa1a\xa1x" + b"\x91" * 100_000 + b"\xc0",
        b"\x81\xa5items\x91\x81\xa6images" + b"\x91" * 100_000 + b"\xc0",
    ],
)
def test_broken_msgpack_is_400(body):
    reply = answer("native", "encode", body, content_type=MSGPACK)
    assert (reply.status, detail(reply)["code"]) == (400, "INVALID_INPUT")


def test_a_long_wrong_word_is_not_sent_back_whole():
    reply = post({"items": ["a"], "params": {"output_dtype": "x" * 100_000}})
    assert reply.status == 400
    assert len(reply.body) < 1000


def test_documents_are_scored_best_first_with_ids_and_ranks():
    items = [{"text": "one", "id": "a"}, "two", {"text": "three three"}]
    body = said(post({"query": {"text": "q", "id": "the-query"}, "items": items}, route="score"))
    assert (body["model"], body["query_id"]) == ("org/m", "the-query")
    assert [each["rank"] for each in body["scores"]] == [0, 1, 2]
    scores = [each["score"] for each in body["scores"]]
    assert scores == sorted(scores, reverse=True)
    assert {each["item_id"] for each in body["scores"]} == {"a", "item-1", "item-2"}
    for each in body["scores"]:
        text = {"a": "one", "item-1": "two", "item-2": "three three"}[each["item_id"]]
        assert each["score"] == compute(Item("q", pair=text)).tensors["score"].numpy().item()
    assert body["usage"] == {"input_tokens": 13, "truncated": 0}


def test_a_bad_document_is_last_with_its_error_and_the_others_are_scored():
    items = ["", "two", {"audio": {"data": "aa"}}]
    scores = said(post({"query": "q", "items": items}, route="score"))["scores"]
    assert [each["item_id"] for each in scores] == ["item-1", "item-0", "item-2"]
    assert [each["score"] < -1e38 for each in scores] == [False, True, True]
    assert [each.get("error", {}).get("code") for each in scores] == [None, "EMPTY_INPUT", "INVALID_INPUT"]


@pytest.mark.parametrize(
    "body",
    [
        {"items": ["a"]},
        {"query": "q"},
        {"query": "q", "items": []},
        {"query": "", "items": ["a"]},
        {"query": {}, "items": ["a"]},
        {"query": {"images": [{"data": "aa"}]}, "items": ["a"]},
        {"query": ["q"], "items": ["a"]},
        {"query": "q", "items": "abc"},
        {"query": "q", "items": ["a"] * 1001},
        {"query": "q", "items": ["a"], "instruction": {}},
        {"query": "q", "items": ["a"], "options": {"profile": "x"}},
    ],
)
def test_bad_score_requests_are_400(body):
    assert post(body, route="score").status == 400


def test_a_thousand_documents_are_scored():
    scores = said(post({"query": "q", "items": ["a"] * 1000}, route="score"))["scores"]
    assert [each["item_id"] for each in scores] == [f"item-{i}" for i in range(1000)]


def test_an_instruction_goes_before_the_query():
    seen: list[Item] = []

    def note(item: Item) -> Output:
        seen.append(item)
        return compute(item)

    post({"query": "q", "items": ["a"], "instruction": "Rank: "}, route="score", compute=note)
    assert seen == [Item("q", pair="a", prompt="Rank: ", raw=True)]


@pytest.mark.parametrize(
    ("error", "key", "retry"),
    [
        (InvalidInput("x"), "detail", None),
        (ModelNotFound("x"), "detail", None),
        (Unauthorized("x"), "detail", None),
        (Forbidden("x"), "detail", None),
        (InternalError("x"), "detail", None),
        (ModelLoading("x"), "error", "5"),
    ],
)
def test_refusals_say_detail_or_error_and_when_to_come_back(error, key, retry):
    reply = DIALECT.refuse(error, accept=MSGPACK)
    assert reply.status == error.status
    assert said(reply) == {key: {"code": error.code, "message": "x"}}
    assert header(reply, "retry-after") == retry
    assert header(reply, "x-sie-error-code") == error.code


def test_a_failed_load_says_why_how_often_and_whether_for_good():
    reply = DIALECT.refuse(ModelLoadFailed("no weights", error_class="BrokenFile", attempts=2))
    assert said(reply) == {
        "error": {
            "code": "MODEL_LOAD_FAILED",
            "message": "no weights",
            "error_class": "BrokenFile",
            "attempts": 2,
            "permanent": True,
        }
    }
    assert header(reply, "retry-after") is None


def test_any_error_can_be_told_even_with_unwritable_words():
    reply = DIALECT.refuse(ModelNotFound("no \ud800", code="x", near=["\udfff", float("inf"), np.float32(1)]))
    assert detail(reply)["code"] == "MODEL_NOT_FOUND"
    assert detail(reply)["message"] == "no ?"


def test_a_failure_of_ours_in_every_item_keeps_its_status_so_that_clients_retry():
    busy = Output(fault=Fault("RESOURCE_EXHAUSTED", "no memory"))
    reply = post({"items": ["a", "b"]}, compute=lambda item: busy)
    assert (reply.status, header(reply, "retry-after")) == (503, "5")
    assert said(reply)["error"]["code"] == "RESOURCE_EXHAUSTED"


def packed_array(**changed: object) -> dict[bytes, object]:
    array = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2, 3], b"data": b"\0" * 24}
    return array | {key.encode(): value for key, value in changed.items()}


@pytest.mark.parametrize("packed", [True, False])
def test_vectors_may_be_sent_to_be_scored_as_lists_or_in_msgpack_as_an_array(packed):
    rows = [[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]]
    items = [{"multivector": rows}, {"multivector": rows[:1], "text": "not read"}, "one"]
    body = {"query": {"multivector": rows}, "items": items}
    if packed:
        body["query"] = {"multivector": wire_array(np.array(rows, "<f4"))}
    encoded = msgspec.msgpack.encode(body) if packed else json.dumps(body).encode()
    content_type = "application/msgpack" if packed else JSON
    reply = answer("native", "score", encoded, content_type=content_type, accept=JSON, facts=EVERY_KIND)
    scores = {entry["item_id"]: entry["score"] for entry in json.loads(reply.body)["scores"]}
    assert (scores["item-0"], scores["item-1"]) == (1.25 + 1.0625, 1.25 + 0.125)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("abc", "neither an array"),
        ([1, 2, 3], "neither an array"),
        ([["a"]], "neither an array"),
        ([[1, 2, 3], [1, 2]], "rows of different widths"),
        ([[1, 2]], "2 dims a token; this model has 3"),
        ([[]], "0 dims a token"),
        (packed_array(type="|O"), "no array of"),
        (packed_array(type="<i4"), "no array of"),
        (packed_array(shape=[2, 4]), "do not fill"),
        (packed_array(shape=[-2, -3]), "no shape"),
        (packed_array(shape="2"), "no shape"),
        (packed_array(shape=[2**40, 2**40]), "do not fill"),
        (packed_array(data=None), "do not fill"),
        (packed_array(shape=[6]), "the shape 6;"),
        ({b"nd": True}, "no array of"),
        ({"type": "<f4"}, "neither an array"),
    ],
)
def test_vectors_that_cannot_be_read_fail_their_document_and_as_a_query_the_request(wrong, words):
    def post_packed(body: object):
        reply = answer("native", "score", msgspec.msgpack.encode(body), accept=JSON, facts=EVERY_KIND)
        return reply.status, json.loads(reply.body)

    status, body = post_packed({"query": "q", "items": ["fine", {"multivector": wrong, "id": "bad"}]})
    assert status == 200
    assert body["scores"][1]["item_id"] == "bad"
    assert words in body["scores"][1]["error"]["message"]
    status, body = post_packed({"query": {"multivector": wrong}, "items": ["fine"]})
    assert (status, body["detail"]["param"]) == (400, "query")
    assert words in body["detail"]["message"]


def test_every_kind_is_written_in_json_as_lists():
    body = {"items": ["one two", ""], "params": {"output_types": ["dense", "sparse", "multivector"]}}
    reply = answer("native", "encode", json.dumps(body).encode(), content_type=JSON, accept=JSON, facts=EVERY_KIND)
    first, second = json.loads(reply.body)["items"]
    dense = vector("one two")
    assert first["dense"]["values"] == pytest.approx(dense.tolist())
    assert first["sparse"]["indices"] == np.flatnonzero(dense > 0).tolist()
    assert first["sparse"]["values"] == pytest.approx(dense[dense > 0].tolist())
    assert (first["sparse"]["dtype"], first["sparse"]["dims"]) == ("float32", None)
    multivector = first["multivector"]
    assert (multivector["token_dims"], multivector["num_tokens"], multivector["dtype"]) == (3, 2, "float32")
    assert np.shape(multivector["values"]) == (2, 3)
    assert second.keys() == {"error"}
