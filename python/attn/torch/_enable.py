# SPDX-License-Identifier: MIT
"""attn in place of torch.nn.functional.scaled_dot_product_attention, where attn takes the call."""
from __future__ import annotations

import threading
from typing import Any, Optional

import torch
from torch import Tensor

from . import _ops, _sdpa

_TAKEN = (torch.float32,)
_lock = threading.Lock()
_theirs = torch.nn.functional.scaled_dot_product_attention
_count = 0
_depth = 0  # how many calls of enable() are open


def _wins(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float, is_causal: bool,
          enable_gqa: bool) -> bool:
    """Whether a call is one that attn takes; what PyTorch would refuse is left to it, words and all."""
    if _ops.in_forward_mode():
        return False
    for x in (query, key, value):
        if x.is_nested or x.device.type != "cpu" or x.dtype not in _TAKEN or x.dim() not in (3, 4) or x.layout != torch.strided:
            return False
    if dropout_p or torch.is_autocast_enabled("cpu") or (is_causal and attn_mask is not None):
        return False  # dropout would draw other numbers than PyTorch's from the same seed
    if not (query.dim() == key.dim() == value.dim() and key.shape[:-1] == value.shape[:-1]
            and query.shape[-1] == key.shape[-1] and query.shape[:-3] == key.shape[:-3]):
        return False
    if query.shape[-3] != key.shape[-3] and not (enable_gqa and query.dim() == 4 and key.shape[1] > 0
                                                 and query.shape[1] % key.shape[1] == 0):
        return False
    return attn_mask is None or (attn_mask.device.type == "cpu" and attn_mask.dtype in (torch.bool, torch.float32)
                                 and _sdpa.mask_fits(query, key, value, attn_mask))


def _count_call() -> None:
    global _count
    with _lock:
        _count += 1


def _replacement(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                 is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False) -> Any:
    if not _wins(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
        return _theirs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if not torch.compiler.is_compiling():
        _count_call()
    return _sdpa.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


class enable:
    """Replaces torch.nn.functional.scaled_dot_product_attention by attn's for what attn takes: tensors of
    float32 on the CPU, without dropout and autocast.  Other calls go to PyTorch as before.

    As a call it holds until `disable()`; `with attn.torch.enable():` holds until the end of the block.  What a program
    imported by name before (`from torch.nn.functional import scaled_dot_product_attention`) stays as it was.
    """

    def __init__(self) -> None:
        global _depth
        with _lock:
            _depth += 1
            torch.nn.functional.scaled_dot_product_attention = _replacement

    def __enter__(self) -> "enable":
        return self

    def __exit__(self, *_: Any) -> None:
        global _depth
        with _lock:
            _depth = max(_depth - 1, 0)
            if _depth == 0:
                torch.nn.functional.scaled_dot_product_attention = _theirs


def disable() -> None:
    """PyTorch's own function again, however often `enable` was called."""
    global _depth
    with _lock:
        _depth = 0
        torch.nn.functional.scaled_dot_product_attention = _theirs


def calls() -> int:
    """How many calls attn has taken since the program began.  A compiled graph counts none."""
    return _count
