"""What node and runtime host say to each other over two Unix sockets: u32 length, then msgpack.

Control carries loading, cancelling and stopping; data carries windows and answers, so that a cancel
never waits behind a payload. Every frame is a tagged array; a host opens with `Hello`, and a node that
cannot read its version stops it.
"""

import struct
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from shoal.protocol.errors import Fault, ShoalError
from shoal.protocol.facts import Facts, Profile
from shoal.protocol.items import Item, Output

FRAMES_VERSION = 1
MAX_FRAME_BYTES = 256 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Host → node, first on control: who is speaking."""

    pid: int
    version: int = FRAMES_VERSION


class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """Node → host: become a replica of this model. `folder` holds its files; sent once per process."""

    model: str
    folder: str
    facts: Facts
    profile: Profile


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """Host → node: ready. `profile` is the one in force, e.g. fp32 where the CPU has no bf16."""

    seconds: float
    profile: Profile


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag="load_failed"):
    fault: Fault


class TakeAdapter(msgspec.Struct, frozen=True, array_like=True, tag="take_adapter"):
    """Node → host: hold this LoRA adapter too. `folder` has its files; items name it by its `digest`."""

    digest: str
    folder: str


class TookAdapter(msgspec.Struct, frozen=True, array_like=True, tag="took_adapter"):
    """Host → node: items may name it from now on. `size_bytes` is what its factors take in memory."""

    digest: str
    size_bytes: int
    seconds: float


class AdapterFailed(msgspec.Struct, frozen=True, array_like=True, tag="adapter_failed"):
    """Host → node: it cannot be held; the model and its other adapters are as before."""

    digest: str
    fault: Fault


class DropAdapter(msgspec.Struct, frozen=True, array_like=True, tag="drop_adapter"):
    """Node → host: no item will name it any more, and none that does is in flight."""

    digest: str


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Node → host: nobody waits for these items any more; skip those not yet running."""

    keys: list[int]


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """Node → host: finish what runs and exit."""


class Window(msgspec.Struct, frozen=True, array_like=True, tag="window"):
    """Node → host: items to compute, each under a key unique to this node. Windows are numbered from 1.

    `jobs` are the ids of the requests that the items belong to: what the host logs about an item names them.
    """

    number: int
    keys: list[int]
    items: list[Item]
    jobs: list[str] = []


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """What one micro-batch took: the cost model learns from it.

    `tokens` as computed, padding included; `square` is the sum of squared row lengths. `seconds` of compute;
    `tokenize_seconds` is the longest that a window of these items took to tokenise, beside the compute; `began`
    is when the compute did, in unix seconds.
    """

    items: int
    tokens: int
    square: int
    seconds: float
    tokenize_seconds: float = 0.0
    began: float = 0.0


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Host → node: finished items, as many outputs as keys.

    `backlog` is what still waits or runs here, in micro-batches, as of window `seen`; `measured` is None
    where nothing was computed: the items failed before, or asked for their tokens alone.
    """

    keys: list[int]
    outputs: list[Output]
    backlog: float
    seen: int
    measured: Measured | None = None


Control = (
    Hello | Load | Loaded | LoadFailed | TakeAdapter | TookAdapter | AdapterFailed | DropAdapter | Cancel | Stop
)
Data = Window | Answer

_F = TypeVar("_F")

_encoder = msgspec.msgpack.Encoder()
_control: "msgspec.msgpack.Decoder[Control]" = msgspec.msgpack.Decoder(Control)
_data: "msgspec.msgpack.Decoder[Data]" = msgspec.msgpack.Decoder(Data)


class BrokenFrame(ShoalError):
    """The peer sent bytes that are no frame: it is broken or not ours, and the channel is closed."""


def encode(frame: Control | Data) -> bytes:
    """`frame` with its length before it, ready for the socket."""
    buffer = bytearray(_LENGTH.size)
    _encoder.encode_into(frame, buffer, _LENGTH.size)
    _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
    return bytes(buffer)


def decode_control(body: bytes | memoryview) -> Control:
    return _decode(_control, body)


def decode_data(body: bytes | memoryview) -> Data:
    return _decode(_data, body)


def _decode(decoder: "msgspec.msgpack.Decoder[_F]", body: bytes | memoryview) -> _F:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BrokenFrame(f"undecodable frame of {len(body)} bytes: {e}") from e


class Splitter:
    """Cuts a byte stream into frame bodies, whatever the sizes in which it arrives."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max = max_frame_bytes

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies completed by `data`. Raises BrokenFrame where a length is over the limit."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, start)
                if length > self._max:
                    raise BrokenFrame(f"frame of {length} bytes, over {self._max}")
                end = start + _LENGTH.size + length
                if len(self._buffer) < end:
                    break
                yield bytes(self._buffer[start + _LENGTH.size : end])
                start = end
        finally:
            del self._buffer[:start]
