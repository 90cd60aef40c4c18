"""What a node believes of the others: who holds what, and who loads it."""

import msgspec

from shoal.node.peers import Claim, Peers, claim_key
from shoal.protocol.status import ModelStatus, NodeStatus

NOW = 1000.0


def status(node, draining=False, **states) -> NodeStatus:
    models = {name: ModelStatus(state=state) for name, state in states.items()}
    return NodeStatus(node=node, models=models, draining=draining)


def note(node, at=NOW, until=NOW + 10) -> bytes:
    return msgspec.json.encode(Claim(node, at, until))


def test_others_count_and_oneself_does_not():
    peers = Peers("me")
    for told in (
        status("me", m="ready"),
        status("a", m="ready"),
        status("b", m="loading"),
        status("c", m="absent"),
    ):
        peers.told(told, NOW)
    assert peers.count(NOW) == 3
    assert peers.holders("m", NOW) == 2


def test_devices_and_loads_are_counted_one_by_one():
    peers = Peers("me")
    loading = {
        "m": ModelStatus(state="loading"),
        "n": ModelStatus(state="loading"),
        "o": ModelStatus(state="ready"),
    }
    peers.told(NodeStatus(node="a", places=4, models=loading), NOW)
    peers.told(NodeStatus(node="b"), NOW)
    peers.told(NodeStatus(node="leaves", places=8, draining=True), NOW)
    peers.told(NodeStatus(node="me", places=16, models=loading), NOW)
    assert (peers.devices(NOW), peers.loading(NOW)) == (5, 2)


def test_a_node_that_leaves_or_falls_silent_holds_nothing_any_more():
    peers = Peers("me")
    peers.told(status("a", draining=True, m="ready"), NOW)
    peers.told(status("b", m="ready"), NOW)
    assert peers.holders("m", NOW) == 1
    assert peers.holders("m", NOW + 60) == 0


def test_of_two_claims_for_one_line_everyone_believes_the_first():
    one, other = Peers("one"), Peers("other")
    notes = [(claim_key("org/m", node), note(node)) for node in ("one", "other")]
    assert [one.noted(*each) for each in notes] == [("won", "org/m"), None]
    assert [other.noted(*each) for each in notes] == [None, ("lost", "org/m")]
    assert other.is_claimed("org/m", NOW)
    assert not one.is_claimed("org/m", NOW)


def test_a_claim_ends_at_its_time_or_when_its_node_takes_it_down():
    peers = Peers("me")
    ours, others = claim_key("m", "me"), claim_key("m", "other")
    peers.noted(claim_key("m", "lost"), note("lost", until=NOW + 10))
    assert not peers.is_claimed("m", NOW + 11)
    assert peers.noted(ours, note("me", at=NOW + 11, until=NOW + 20)) == ("won", "m")
    peers.noted(others, None)
    assert peers.noted(others, note("other", at=NOW + 12, until=NOW + 20)) is None
    assert not peers.is_claimed("m", NOW + 12)
    peers.noted(ours, None)
    assert peers.noted(others, note("other", at=NOW + 12, until=NOW + 20)) is None
    assert peers.is_claimed("m", NOW + 12)


def test_notes_about_other_things_and_nonsense_are_no_claims():
    peers = Peers("me")
    assert peers.noted("model/m", note("a")) is None
    assert peers.noted(claim_key("m", "a"), b"\xff{") is None
    assert not peers.is_claimed("m", NOW)
