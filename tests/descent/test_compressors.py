"""Unbiasedness, variance and contraction as promised, on random vectors; bits by counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.descent import QSGD, BlockSign, Identity, RandomK, TopK

ALL = [Identity(), TopK(0.1), RandomK(0.2), RandomK(0.2, unbiased=True), QSGD(1), QSGD(4), BlockSign(), BlockSign(5)]


def draws(compressor, v, count):
    return compressor.compress(np.broadcast_to(v, (1, count, len(v))), [np.random.default_rng(1)])[0]


@pytest.mark.parametrize("compressor", ALL, ids=str)
@given(st.integers(0, 1000), st.integers(3, 60))
def test_loses_no_more_than_promised(compressor, seed, d):
    v = np.random.default_rng(seed).standard_t(3, d)
    lost = np.square(draws(compressor, v, 400) - v).sum(axis=-1)
    noise = 4 * lost.std() / 20
    assert lost.mean() <= compressor.variance(d) * (v @ v) + noise + 1e-9
    scaled = compressor.contract(np.broadcast_to(v, (1, 400, d)), [np.random.default_rng(2)])[0]
    lost = np.square(scaled - v).sum(axis=-1)
    assert lost.mean() <= (v @ v) * (1 + 1e-9) + 4 * lost.std() / 20


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_unbiased_says_who_is(compressor):
    v = np.random.default_rng(7).normal(size=30)
    drawn = draws(compressor, v, 20_000)
    miss = np.linalg.norm(drawn.mean(axis=0) - v)
    noise = np.sqrt(drawn.var(axis=0).sum() / len(drawn))
    assert (miss <= 4 * noise + 1e-9) == compressor.unbiased


def test_top_k_keeps_the_largest():
    np.testing.assert_array_equal(draws(TopK(0.4), np.array([1.0, -5, 2, 0.1, 3]), 1)[0], [0, -5, 0, 0, 3])


def test_bits():
    assert Identity().bits(1000) == 32_000
    assert TopK(0.01).bits(1024) == 10 * (32 + 10)
    assert TopK(0.01, index_bits=32).bits(1024) == 10 * (32 + 32)
    assert QSGD(3).bits(1000) == 2 * 1000 + 1000 + 32  # two bits for a level, one for a sign
    assert BlockSign(2).bits(1000) == 1000 + 2 * 32


def test_nothing_stays_nothing():
    for compressor in ALL:
        assert not draws(compressor, np.zeros(20), 3).any()


@pytest.mark.parametrize("bad", [lambda: TopK(0), lambda: RandomK(1.5), lambda: QSGD(0), lambda: BlockSign(0)])
def test_senseless_numbers_are_refused(bad):
    with pytest.raises(ModelError):
        bad()
