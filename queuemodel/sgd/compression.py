"""Compressors: what is received of a vector, and in how many bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .problems import Checked

WORD = 32  # bits of an uncompressed number


class Compressor(Checked):
    """C(v) of vectors of shape (S, ..., d); by default nothing is lost.

    ``unbiased``: its expectation is v; ``names``: a message names the few coordinates that it holds.
    """

    unbiased = False
    names = False

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """The decoded vectors, shape (S, ..., d); each run S draws from its own generator."""
        return v

    def bits(self, dimension: int) -> float:
        """Bits of one message."""
        return WORD * dimension

    def variance(self, dimension: int) -> float:
        """A bound of the expectation of ``|C(v) - v|^2 / |v|^2``."""
        return 0.0

    def contract(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """C(v), an unbiased one divided by 1 + its variance: then less than ``|v|^2`` is lost, as feedback needs."""
        received = self.compress(v, rngs)
        return received / v.dtype.type(1 + self.variance(v.shape[-1])) if self.unbiased else received


@dataclass(frozen=True)
class Identity(Compressor):
    """Nothing is lost."""

    unbiased = True


@dataclass(frozen=True)
class TopK(Compressor):
    """The share of coordinates that are largest in absolute value, with their indices (Stich et al., NeurIPS 2018).

    An index has by default as many bits as it needs; frameworks send ``index_bits`` of 32 or 64.
    """

    share: float = 0.01
    index_bits: int | None = None
    names = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        k = kept(self.share, v.shape[-1])
        return only(v, np.argpartition(np.abs(v), -k, axis=-1)[..., -k:])

    def bits(self, dimension: int) -> float:
        return kept(self.share, dimension) * (WORD + (self.index_bits or math.ceil(math.log2(max(dimension, 2)))))

    def variance(self, dimension: int) -> float:
        return 1 - kept(self.share, dimension) / dimension


@dataclass(frozen=True)
class RandomK(Compressor):
    """A random share of the coordinates; their indices follow from a seed that is sent.

    ``unbiased``: scaled up by d/k, so that its expectation is right; else as they are, for error feedback.
    """

    share: float = 0.01
    unbiased: bool = False
    names = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        k = kept(self.share, d := v.shape[-1])
        chosen = np.argpartition(np.stack([rng.random(v.shape[1:]) for rng in rngs]), k - 1, axis=-1)[..., :k]
        return only(v * v.dtype.type(d / k) if self.unbiased else v, chosen)

    def bits(self, dimension: int) -> float:
        return WORD * (kept(self.share, dimension) + 1)

    def variance(self, dimension: int) -> float:
        k = kept(self.share, dimension)
        return dimension / k - 1 if self.unbiased else 1 - k / dimension


@dataclass(frozen=True)
class QSGD(Compressor):
    """Random rounding of ``|v_i| / |v|`` to multiples of 1/levels, with signs (Alistarh et al., NeurIPS 2017)."""

    levels: Any = 4  #: an integer, or those of each run, shape (S, 1, ..., 1)
    unbiased = True

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        u = np.stack([rng.random(v.shape[1:]) for rng in rngs])
        norm = np.linalg.norm(v, axis=-1, keepdims=True)
        scaled = np.abs(v) * np.divide(self.levels, norm, out=np.zeros_like(norm), where=norm > 0)
        return (np.sign(v) * np.floor(scaled + u) * (norm / self.levels)).astype(v.dtype)

    def bits(self, dimension: int) -> Any:
        return dimension * np.ceil(np.log2(np.add(self.levels, 1))) + dimension + WORD  # level and sign of each; norm

    def variance(self, dimension: int) -> float:
        return min(dimension / self.levels**2, math.sqrt(dimension) / self.levels)


@dataclass(frozen=True)
class BlockSign(Compressor):
    """Signs, times the mean absolute value of each block (Bernstein et al., ICML 2018; Zheng et al., NeurIPS 2019)."""

    blocks: int = 1

    def compress(self, v: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        blocks = np.array_split(v, min(self.blocks, v.shape[-1]), axis=-1)
        return np.concatenate([np.abs(b).mean(axis=-1, keepdims=True) * np.sign(b) for b in blocks], axis=-1)

    def bits(self, dimension: int) -> float:
        return dimension + WORD * min(self.blocks, dimension)

    def variance(self, dimension: int) -> float:
        return 1 - 1 / math.ceil(dimension / self.blocks)  # |v|_1^2 >= |v|^2 in each block


def only(v: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The chosen coordinates of v, and 0 elsewhere."""
    sent = np.zeros_like(v)
    np.put_along_axis(sent, chosen, np.take_along_axis(v, chosen, axis=-1), axis=-1)
    return sent


def kept(share: float, dimension: int) -> int:
    """How many coordinates are kept, at least one."""
    return max(1, round(share * dimension))
