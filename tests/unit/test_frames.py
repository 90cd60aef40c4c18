"""The frames between node and runtime host, however the bytes arrive."""

import numpy as np
import pytest

from shoal.protocol import frames
from shoal.protocol.errors import InvalidInput, from_fault
from shoal.protocol.items import Item, Output
from shoal.protocol.tensors import Tensor


def bodies(data: bytes, size: int, **options) -> list[bytes]:
    splitter = frames.Splitter(**options)
    return [body for start in range(0, len(data), size) for body in splitter.feed(data[start : start + size])]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 64, 10_000])
def test_frames_come_out_whole_whatever_the_sizes_in_which_they_arrive(size):
    windows = [frames.Window(n, [n], [Item(f"text {n}" * n)]) for n in range(1, 30)]
    stream = b"".join(frames.encode(window) for window in windows)
    assert [frames.decode_data(body) for body in bodies(stream, size)] == windows


def test_an_answer_carries_arrays_and_faults_exactly():
    vector = np.arange(384, dtype="f4")
    outputs = [Output({"dense": Tensor.of(vector)}, 7, True), Output(fault=InvalidInput("no", index=3).fault())]
    sent = frames.Answer([4, 9], outputs, 2, 5, frames.Measured(2, 64, 50, 0.01))
    got = frames.decode_data(bodies(frames.encode(sent), 7)[0])
    assert got == sent
    assert (got.outputs[0].tensors["dense"].numpy() == vector).all()
    error = from_fault(got.outputs[1].fault)
    assert isinstance(error, InvalidInput)
    assert error.detail == {"index": 3}


def test_a_length_over_the_limit_and_bytes_that_are_no_frame_are_refused():
    with pytest.raises(frames.BrokenFrame):
        bodies(b"\xff\xff\xff\xff rest", 4)
    with pytest.raises(frames.BrokenFrame):
        frames.decode_data(b"\xc1")
    with pytest.raises(frames.BrokenFrame):
        frames.decode_control(frames.encode(frames.Window(1, [], []))[4:])
