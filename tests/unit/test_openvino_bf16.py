"""Weights as bf16 bits."""

import numpy as np

from shoal.runtimes.openvino_bf16 import rounded


def as_fp32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_a_weight_goes_to_the_nearest_bf16_and_what_is_one_already_stays():
    weight = np.random.default_rng(1).normal(size=(50, 40)).astype(np.float32)
    near = as_fp32(rounded(weight))
    assert np.abs(near - weight).max() <= np.abs(weight).max() * 2**-8
    assert (as_fp32(rounded(near)) == near).all()
    assert (np.abs(near - weight) <= np.abs(weight) * 2**-8).all()


def test_ties_go_to_even_and_what_is_no_number_stays_so():
    ties = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert rounded(ties).tolist() == [0x3F80, 0x3F82]
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    assert np.array_equal(as_fp32(rounded(odd)), odd, equal_nan=True)
