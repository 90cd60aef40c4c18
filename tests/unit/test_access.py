"""Who is let in, and to do what: pure functions of headers, keys and a moment."""

import hashlib
import hmac

import msgspec
import pytest

from shoal.catalog import keys
from shoal.gateway import access
from shoal.gateway.access import ANY_KEY, ANY_PUSH, ANYBODY, Caller, Ring
from shoal.protocol.errors import Forbidden, InvalidInput, Unauthorized

NOW = 1_800_000_000.0
DAY = 86400.0


def bearer(plain: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {plain}".encode()}


def ring(*stored: keys.Key, static: tuple[str, ...] = (), must_ask: bool = False) -> Ring:
    digests = frozenset(hashlib.sha256(plain.encode()).digest() for plain in static)
    return Ring(digests, {key.id: key for key in stored}, must_ask)


def test_nobody_is_asked_until_there_is_a_key_or_others_can_come_in():
    assert ring().caller({}, NOW) == ANYBODY
    assert ring().caller(bearer("whatever"), NOW) == ANYBODY
    for asking in (ring(static=("open sesame",)), ring(keys.make("ci", ["infer"], NOW)[1]), ring(must_ask=True)):
        with pytest.raises(Unauthorized, match="Authorization: Bearer"):
            asking.caller({}, NOW)


def test_a_record_that_cannot_be_read_closes_the_door_too():
    with pytest.raises(Unauthorized):
        Ring(stored={"0123456789ab": None}).caller(bearer(f"shoal_0123456789ab_{'0' * 64}"), NOW)


def test_keys_given_at_start_may_do_all_and_are_told_apart():
    asking = ring(static=("open sesame", "another"))
    for written in (b"Bearer open sesame", b"bearer  open sesame "):
        assert keys.allows(asking.caller({b"authorization": written}, NOW).scopes, "push:team/x")
    tenants = {asking.caller(bearer(plain), NOW).id for plain in ("open sesame", "another")}
    assert len(tenants) == 2
    for wrong in (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic open sesame",
        b"Bearer open sesam",
        b"\xff\xfe",
        b"Bearer \xff",
    ):
        with pytest.raises(Unauthorized):
            asking.caller({b"authorization": wrong}, NOW)


def test_a_stored_key_is_its_holder_and_its_record_lets_nobody_in():
    plain, key = keys.make("ci", ["infer", "push:team/*"], NOW)
    asking = ring(key)
    assert asking.caller(bearer(plain), NOW) == Caller(key.id, "ci", ("infer", "push:team/*"))
    secret = plain.rpartition("_")[2]
    assert secret not in msgspec.json.encode(key).decode()
    for wrong in (key.digest, f"shoal_{key.id}_{key.digest}", secret, plain[:-1], plain + "0", plain.upper()):
        with pytest.raises(Unauthorized):
            asking.caller(bearer(wrong), NOW)


def test_the_secret_of_one_key_with_the_id_of_another_lets_nobody_in():
    one, first = keys.make("one", ["infer"], NOW)
    other, second = keys.make("other", ["admin"], NOW)
    mixed = f"shoal_{second.id}_{one.rpartition('_')[2]}"
    with pytest.raises(Unauthorized):
        ring(first, second).caller(bearer(mixed), NOW)
    assert ring(first, second).caller(bearer(other), NOW).name == "other"


def test_secrets_are_256_bits_and_no_two_are_the_same():
    made = [keys.make("ci", ["infer"], NOW) for _ in range(200)]
    assert len({plain for plain, _ in made}) == len({key.id for _, key in made}) == 200
    assert {len(bytes.fromhex(plain.rpartition("_")[2])) for plain, _ in made} == {32}


def test_an_expired_and_a_revoked_key_are_refused_with_the_reason_and_go_on_asking_for_keys():
    plain, key = keys.make("ci", ["infer"], NOW, expires=NOW + DAY)
    assert ring(key).caller(bearer(plain), NOW + DAY - 1).name == "ci"
    with pytest.raises(Unauthorized, match=r"ci .* expired on 2027-01-16"):
        ring(key).caller(bearer(plain), NOW + DAY)
    revoked = msgspec.structs.replace(key, revoked=NOW + 1)
    with pytest.raises(Unauthorized, match="was revoked on"):
        ring(revoked).caller(bearer(plain), NOW + 2)
    for closed in (key, revoked):
        with pytest.raises(Unauthorized):
            ring(closed).caller({}, NOW + 2 * DAY)


def test_a_record_with_times_that_nobody_lives_to_see_is_refused_like_others():
    plain, key = keys.make("ci", ["infer"], NOW)
    for wrong in ({"revoked": 1e20}, {"revoked": -1e20}, {"expires": -1e20}):
        with pytest.raises(Unauthorized, match=r"UTC$"):
            ring(msgspec.structs.replace(key, **wrong)).caller(bearer(plain), NOW)


def test_only_its_holder_is_told_that_a_key_was_revoked():
    plain, key = keys.make("ci", ["infer"], NOW)
    asking = ring(msgspec.structs.replace(key, revoked=NOW))
    with pytest.raises(Unauthorized) as refused:
        asking.caller(bearer(f"{plain[:-1]}{'0' if plain[-1] != '0' else '1'}"), NOW)
    assert "revoked" not in refused.value.message


@pytest.mark.parametrize(
    ("scopes", "needed", "may"),
    [
        (["infer"], "infer", True),
        (["infer"], ANY_KEY, True),
        (["infer"], ANY_PUSH, False),
        (["infer"], "push:team/a", False),
        (["push:team/*"], "infer", False),
        (["push:team/*"], ANY_KEY, True),
        (["push:team/*"], ANY_PUSH, True),
        (["push:team/*"], "push:team/a", True),
        (["push:team/*"], "push:team", False),
        (["push:team/*"], "push:teammate/a", False),
        (["push:team/*"], "push:Team/a", False),
        (["push:team/a"], "push:team/ab", False),
        (["push:team/a-*", "push:other/x"], "push:other/x", True),
        (["push:*"], "push:team/a", True),
        (["push:*"], "infer", False),
        (["admin"], "infer", True),
        (["admin"], "push:team/a", True),
        (["admin"], ANY_PUSH, True),
    ],
)
def test_a_scope_allows_what_it_says_and_nothing_else(scopes, needed, may):
    plain, key = keys.make("ci", scopes, NOW)
    if may:
        assert ring(key).check(bearer(plain), needed, NOW).id == key.id
    else:
        with pytest.raises(Forbidden) as refused:
            ring(key).check(bearer(plain), needed, NOW)
        assert (refused.value.status, refused.value.code) == (403, "FORBIDDEN")
        assert needed.removesuffix(":") in refused.value.message


@pytest.mark.parametrize(
    "scope", ["", "Admin", "infer ", "push", "push:", "push:a b", "push:[ab]", "push:?", "read"]
)
def test_a_scope_that_is_none_is_refused_with_those_that_there_are(scope):
    with pytest.raises(InvalidInput, match="push:team/"):
        keys.make("ci", [scope], NOW)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "a" * 65, "a\n"])
def test_a_name_that_would_not_stand_on_one_line_is_refused(name):
    with pytest.raises(InvalidInput, match="cannot name a key"):
        keys.make(name, ["infer"], NOW)


def test_a_key_without_a_scope_or_without_a_future_is_refused():
    with pytest.raises(InvalidInput, match="--scope"):
        keys.make("ci", [], NOW)
    with pytest.raises(InvalidInput, match="expired already"):
        keys.make("ci", ["infer"], NOW, expires=NOW)


def test_every_comparison_with_a_secret_takes_the_same_time_whatever_it_holds(monkeypatch):
    plain, key = keys.make("ci", ["infer"], NOW)
    compared, really = [], hmac.compare_digest

    def compare(one, other):
        compared.append((one, other))
        return really(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", compare, raising=True)
    asking = ring(key, static=("one", "two", "three"))
    with pytest.raises(Unauthorized):
        asking.caller(bearer("one more"), NOW)
    assert len(compared) == 3  # each of those given at start, also after one that fits
    compared.clear()
    asking.caller(bearer("one"), NOW)
    assert len(compared) == 3
    compared.clear()
    asking.caller(bearer(plain), NOW)
    assert len(compared) == 1
    assert all(len(one) == len(other) for one, other in compared)


def test_a_wide_server_starts_only_with_a_key_that_lets_somebody_in():
    plain, key = keys.make("ci", ["infer"], NOW, expires=NOW + DAY)
    assert plain
    for stored, moment, may in (((), NOW, False), ((key,), NOW, True), ((key,), NOW + DAY, False)):
        door = access.Access(is_wide=True, clock=lambda moment=moment: moment)
        door._ring = msgspec.structs.replace(door._ring, stored={one.id: one for one in stored})
        if may:
            door.check_listening("0.0.0.0")
        else:
            with pytest.raises(InvalidInput, match="shoal key create"):
                door.check_listening("0.0.0.0")
    access.Access(frozenset({b"x" * 32}), is_wide=True).check_listening("0.0.0.0")
    access.Access().check_listening("127.0.0.1")
