"""One frame of `shoal top`: what is there, in which order, and what goes where the room is narrow."""

import io

import msgspec
from rich.console import Console

from shoal.console.top import frame
from shoal.protocol.status import (
    DeviceStatus,
    LineOverview,
    LineStatus,
    ModelOverview,
    ModelStatus,
    NodeStatus,
    Overview,
    Traffic,
)

READY = ModelStatus(state="ready", memory_bytes=212_000_000)


def node(name: str, busy: float, **more) -> NodeStatus:
    line = LineStatus(busy_share=busy, items_per_s=busy * 100, useful_tokens_per_s=busy * 9000, fill=0.8)
    return NodeStatus(
        node=name, devices=(DeviceStatus(kind="cpu", name="8 cores"),), memory_used_bytes=2_000_000_000,
        memory_budget_bytes=8_000_000_000, models={"acme/quiet": READY}, lines={"acme/quiet": line},
        known_models=3, **more,
    )  # fmt: skip


CLUSTER = Overview(
    version="0.1.0",
    uptime_s=7384,
    ready=True,
    lacking="",
    traffic=Traffic(answered_per_s=412.0, refused_per_s=3.5, refusals={"QUEUE_FULL": 1204, "EMPTY_INPUT": 2}),
    models=[
        ModelOverview(name="acme/unused", status=ModelStatus(state="absent")),
        ModelOverview(name="acme/quiet", status=READY),
        ModelOverview(name="acme/pressed", status=ModelStatus(state="loading")),
        ModelOverview(name="acme/broken", status=ModelStatus(state="failed", failure="no such file")),
        ModelOverview(name="team/lora", status=ModelStatus(state="ready"), base="acme/quiet"),
        ModelOverview(name="team/other", status=ModelStatus(state="absent"), base="acme/quiet"),
    ],
    lines=[
        LineOverview(
            model="acme/quiet", busy_share=0.7, items_per_s=70, useful_tokens_per_s=6300, nodes=2, adapters=41
        ),
        LineOverview(model="acme/pressed", queued_jobs=1234, oldest_s=7.25),
    ],
    nodes=[node("node-b", 0.2), node("node-a", 0.95), node("node-c", 0.0, draining=True)],
)


def shown(width: int = 160, height: int = 50, trouble: str = "", status: Overview = CLUSTER) -> str:
    console = Console(width=width, height=height, file=io.StringIO())
    with console.capture() as captured:
        console.print(frame(status, "http://here", width, height, trouble))
    return captured.get()


def test_models_stand_in_the_order_of_their_pressure_and_nodes_of_their_work():
    text = shown()
    places = [text.index(name) for name in ("node-a", "node-b", "node-c")]
    assert places == sorted(places)
    places = [text.index(name) for name in ("acme/pressed", "acme/quiet", "acme/broken")]
    assert places == sorted(places)
    assert "acme/unused" not in text


def test_it_says_what_comes_in_what_waits_and_what_was_refused():
    text = shown()
    for said in (
        "412 requests/s",
        "1,234 waiting, the oldest 7.2 s",
        "3.5 refused/s",
        "QUEUE_FULL\u00a01,204",
        "up 2 h 3 min",
    ):
        assert said in text
    assert "1 ready, 1 loading, 1 failed, 1 not loaded" in text
    assert "no such file" in text
    assert "2.0 GB of 8.0 GB" in text


def test_a_narrow_screen_keeps_the_names_and_what_presses():
    text = shown(width=64)
    for said in ("node-a", "acme/pressed", "Oldest", "7.2 s"):
        assert said in text
    assert "Padding" not in text
    assert max(map(len, text.splitlines())) <= 64


def test_a_low_screen_says_how_much_it_leaves_out():
    models = [ModelOverview(name=f"acme/model-{i:02}", status=READY) for i in range(40)]
    text = shown(height=20, status=msgspec.structs.replace(CLUSTER, models=models, lines=[]))
    assert "… and " in text
    assert len(text.splitlines()) <= 20


def test_models_too_many_to_be_listed_are_counted():
    text = shown(status=msgspec.structs.replace(CLUSTER, unlisted=1800))
    assert "1 failed, 1 not loaded, and 1,800 more" in text


def test_an_empty_server_and_one_that_is_gone_say_so():
    empty = Overview(
        version="0.1.0", uptime_s=1, ready=False, lacking="no node has joined", traffic=Traffic(), models=[],
        lines=[], nodes=[],
    )  # fmt: skip
    text = shown(status=empty)
    assert "not ready: no node has joined" in text
    assert "No model is in memory" in text
    assert "no answer" in shown(trouble="no answer from http://here")


def test_adapters_are_counted_at_their_base_and_have_no_line_of_their_own():
    text = shown()
    assert "team/lora" not in text
    assert "Adapters: 1 ready, 1 not loaded" in text
    assert any("acme/quiet" in line and "41" in line.split() for line in text.splitlines())
    assert "41" not in shown(width=110).split()
