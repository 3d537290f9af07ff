# SPDX-License-Identifier: MIT
"""Random sizes, weights and lengths for the layers' cases, and the formulas that several of them share."""
import math

import numpy as np
import torch

ODD_SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 33]


def size(rng):
    return int(rng.choice(ODD_SIZES))


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def linear(rng, out, *ins):
    """A weight that keeps the size of what it multiplies."""
    return normal(rng, out, *ins) / np.float32(math.sqrt(ins[-1]))


def lengths(rng, batch, queries, keys):
    """None, one length a sentence, or one a query; 0 among them."""
    kind = rng.integers(3)
    if kind == 0:
        return {}
    shape = (batch,) if kind == 1 else (batch, queries)
    return {"valid_lens": rng.integers(0, keys + 1, shape).astype(np.float32)}


def masked_softmax(scores, lens):
    """scores [b,q,k]; a row whose length is 0 gives zeros."""
    if lens is None:
        return torch.softmax(scores, -1)
    lens = lens[:, None].expand(scores.shape[:2]) if lens.dim() == 1 else lens
    keep = torch.arange(scores.shape[-1]) < lens[..., None]
    return torch.softmax(scores.masked_fill(~keep, -1e30), -1) * keep


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).movedim(-2, 1)  # [b,t,h*d] -> [b,h,t,d]


def merge(x):
    return x.movedim(1, -2).flatten(-2)
