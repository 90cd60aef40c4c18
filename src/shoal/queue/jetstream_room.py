"""Who has reserved what of a queue server's memory; and pools that nobody is in, which make room for another.

A pool keeps its room when its last gateway and node have gone, and finds it again when they come back. Where
another finds none, it takes that of pools that hold no job and whose board nobody has read for half a minute.
Whoever comes back to such a pool makes it anew (`Api.ensure_stream`), as on a server that was lost.
"""

import contextlib
import logging

import msgspec

from shoal.observe import log as logs
from shoal.protocol import sizes, subjects
from shoal.protocol.errors import QueueUnavailable
from shoal.queue.jetstream_link import Link

log = logging.getLogger("shoal.queue")


class _Config(msgspec.Struct, frozen=True):
    name: str = ""
    max_bytes: int = 0


class _State(msgspec.Struct, frozen=True):
    messages: int = 0
    consumer_count: int = 0


class _Stream(msgspec.Struct, frozen=True):
    config: _Config = _Config()
    state: _State = _State()


class _Listing(msgspec.Struct, frozen=True):
    """The first 256; a server with more pools than that is asked no further."""

    streams: list[_Stream] | None = None


async def make_room(link: Link, pool: str) -> bool:
    """Take room from pools that nobody uses, but for `pool`; whether there were any."""
    left = [each for each in await _others(link, pool) if await _is_left(link, each)]
    for each in left:
        await link.request(f"$JS.API.STREAM.DELETE.{each.config.name}")
        log.info(
            "a pool that nobody uses made room",
            extra=logs.fields(pool=subjects.pool_of(each.config.name), room=sizes.in_words(each.config.max_bytes)),
        )
    return bool(left)


async def taken_by(link: Link, pool: str) -> str:
    """Which pools but `pool` hold how much, in words for a refusal; "" where there are none, or nobody says."""
    others = await _others(link, pool)
    words = [f"{subjects.pool_of(each.config.name)} {sizes.in_words(each.config.max_bytes)}" for each in others]
    return f"; other pools hold {', '.join(words)}, each until nobody has been in it for a minute" if words else ""


async def _others(link: Link, pool: str) -> list[_Stream]:
    with contextlib.suppress(QueueUnavailable, msgspec.MsgspecError):  # who may not look takes nothing away
        _, payload = await link.request("$JS.API.STREAM.LIST", b"{}")
        streams = msgspec.json.decode(payload, type=_Listing).streams or []
        return [each for each in streams if subjects.pool_of(each.config.name) not in ("", pool)]
    return []


async def _is_left(link: Link, stream: _Stream) -> bool:
    """Gateways and nodes each have a consumer at the board, which the server drops when they are gone for a while,
    as it does with those that nodes make to pull."""
    if stream.state.messages or stream.state.consumer_count:
        return False
    board = subjects.notes_stream(subjects.pool_of(stream.config.name))
    with contextlib.suppress(QueueUnavailable, msgspec.MsgspecError):
        _, payload = await link.request(f"$JS.API.STREAM.INFO.{board}")
        return not msgspec.json.decode(payload, type=_Stream).state.consumer_count
    return False
