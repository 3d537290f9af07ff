# SPDX-License-Identifier: MIT
"""Which calls of scaled_dot_product_attention attn is the faster one for.

Where products run on AVX2, PyTorch's fused attention stands on MKL, and each side wins somewhere.  The limits below are
measured (`bench/peers/torch_calls.py` prints the table).  With AVX-512, AMX and NEON attn takes all calls.
"""
from __future__ import annotations

from typing import Optional

from torch import Tensor

from .._library import Context, lib


def _isa() -> str:
    context = Context(1)
    context.hold("isa")
    found = str(lib.context_isa(context.pointer).decode())
    context.drop("isa")
    return found


_MEASURED = _isa() == "avx2"


def wins(query: Tensor, key: Tensor, mask: Optional[Tensor], causal: bool, records: bool) -> bool:
    """Whether attn is not the slower one; `records`: a backward pass follows."""
    if not _MEASURED:
        return True
    queries, keys, channels = query.shape[-2], key.shape[-2], query.shape[-1]
    longest = max(queries, keys)
    if mask is not None and mask.requires_grad:
        return not records or longest <= 96  # PyTorch stores the scores, and multiplies larger ones faster
    if records:
        return causal or longest <= 256 or channels <= 96
    if queries <= 16 and keys > 2 * queries:
        return keys >= 1024 or query.shape[-3] != key.shape[-3]
    return causal or channels <= 96 or longest <= (1024 if channels <= 128 else 256)
