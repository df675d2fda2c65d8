"""Who may look at whom: the attention mask as a table, and as the few unmasked calls it amounts to.

Legend: S tokens; D demo, O observation, p localisation, o future observation, a actions; a target is
present noisy (being denoised) and clean (conditioning what comes after it), eq:sequence.

Every row of the table is a prefix of ``CACHED`` followed by the query's own segment. So a segment's attention
is one unmasked call over a contiguous run of keys: in training over a concatenation, in the cascade over the
head of one buffer in which each noisy segment lies where its clean twin will lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import torch
from jaxtyping import Bool
from torch import Tensor


class Segment(Enum):
    """The parts of the token sequence, eq:sequence."""

    DEMO = "demo"
    OBSERVATION = "observation"
    P_NOISY = "p_noisy"
    P_CLEAN = "p_clean"
    O_NOISY = "o_noisy"
    O_CLEAN = "o_clean"
    A_NOISY = "a_noisy"


CACHED = (Segment.DEMO, Segment.OBSERVATION, Segment.P_CLEAN, Segment.O_CLEAN)
"""Segments whose keys and values stay as they are while anything after them is denoised, in causal order."""

PREFIX: Mapping[Segment, int] = {
    Segment.DEMO: 0,
    Segment.OBSERVATION: 1,
    Segment.P_NOISY: 2,
    Segment.P_CLEAN: 2,
    Segment.O_NOISY: 3,
    Segment.O_CLEAN: 3,
    Segment.A_NOISY: 4,
}
"""How many of the cached segments each segment sees, besides itself."""


def sees(query: Segment) -> tuple[Segment, ...]:
    """The segments a query attends to, in the order of their keys."""
    return (*CACHED[: PREFIX[query]], query)


def dense_mask(widths: Mapping[Segment, int]) -> Bool[Tensor, "S S"]:
    """The same rule as one matrix over the sequence in the order of ``widths`` (True: may attend)."""
    order = [segment for segment, width in widths.items() for _ in range(width)]
    return torch.tensor([[key in sees(query) for key in order] for query in order])
