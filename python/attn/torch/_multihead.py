# SPDX-License-Identifier: MIT
"""torch.nn.MultiheadAttention whose weights are packed: products and attention by attn, and no weight is unpacked for it."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from . import _ops, _packed, _sdpa
from ._packed import PackedWeight

_functional = torch.nn.functional


def _batch_first(x: Tensor) -> Tensor:
    """x [length,batch,channels] as a contiguous tensor [batch,length,channels], which modules of batch_first had."""
    return x.transpose(0, 1).contiguous()


def _projections(inputs: tuple[Tensor, Tensor, Tensor], weight: PackedWeight, bias: Optional[Tensor]) -> Any:
    """Query, key and value [batch,length,channels] after their linear layers, or NotImplemented.  Inputs that are one tensor
    are multiplied at once."""
    query, key, value = inputs
    width = query.shape[-1]
    spans = [(query, 0, 3)] if query is key is value else [(query, 0, 1), (key, 1, 3)] if key is value else \
        [(x, i, i + 1) for i, x in enumerate(inputs)]
    found: list[Tensor] = []
    for x, first, last in spans:
        rows = weight if (first, last) == (0, 3) else weight.rows(first * width, last * width)
        y = _packed.multiply(_batch_first(x), rows, None if bias is None else bias[first * width:last * width])
        if y is NotImplemented:
            return NotImplemented
        found += y.split(width, -1)
    return found


def _mask(attn_mask: Optional[Tensor], padding: Optional[Tensor], batch: int, heads: int, queries: int, keys: int) -> Any:
    """The mask of scaled_dot_product_attention [batch,heads,queries,keys], or NotImplemented."""
    wanted = [((queries, keys), (1, 1, queries, keys)), ((batch * heads, queries, keys), (batch, heads, queries, keys))]
    parts: list[Tensor] = []
    for mask, shapes in ((attn_mask, wanted), (padding, [((batch, keys), (batch, 1, 1, keys))])):
        if mask is None:
            continue
        view = next((view for shape, view in shapes if mask.shape == shape), None)
        if view is None or type(mask) is not Tensor or not (mask.dtype is torch.bool or mask.is_floating_point()):
            return NotImplemented
        parts.append(mask.reshape(view))
    if all(part.dtype is torch.bool for part in parts):
        hidden = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        return hidden.logical_not()
    sums = [torch.zeros(part.shape).masked_fill(part, float("-inf")) if part.dtype is torch.bool else part for part in parts]
    return sums[0] if len(sums) == 1 else sums[0] + sums[1]


def _without_weights(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], causal: bool) -> Tensor:
    found = _sdpa.quick(q, k, v, mask, causal, None, False)
    return found if isinstance(found, Tensor) else _functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal)


def _with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], average: bool) -> tuple[Tensor, Tensor]:
    """The output and the weights, by the operations of PyTorch, whose rows without any key are NaN."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf")) if mask.dtype is torch.bool else scores + mask
    weights = scores.softmax(-1)
    return weights @ v, weights.mean(1) if average else weights


def _attention(query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
               bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
               training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
               use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None, v_proj_weight: Any = None,
               static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True, is_causal: bool = False) -> Any:
    """torch.nn.functional.multi_head_attention_forward; NotImplemented where PyTorch's own must compute, or refuse."""
    if not (isinstance(in_proj_weight, PackedWeight) and isinstance(out_proj_weight, PackedWeight)) or use_separate_proj_weight \
            or add_zero_attn or not (bias_k is bias_v is static_k is static_v is None) or (training and dropout_p) \
            or not (type(query) is type(key) is type(value) is Tensor) or not _ops.unwatched() or (is_causal and attn_mask is None):
        return NotImplemented
    width, inputs = embed_dim_to_check, (query, key, value)
    if any(x.dim() != 3 or x.shape[-1] != width or x.shape[1] != query.shape[1] for x in inputs) or key.shape != value.shape \
            or num_heads < 1 or width % num_heads or in_proj_weight.shape != (3 * width, width) \
            or (torch.is_grad_enabled() and _packed._records(*inputs, in_proj_bias, out_proj_bias)):
        return NotImplemented
    batch, queries, keys = query.shape[1], query.shape[0], key.shape[0]
    causal, mask = is_causal and key_padding_mask is None and not need_weights, None
    if not causal and not (attn_mask is None and key_padding_mask is None):
        mask = _mask(attn_mask, key_padding_mask, batch, num_heads, queries, keys)
        if mask is NotImplemented or (mask.dtype is not torch.bool and mask.dtype is not query.dtype):
            return NotImplemented
    found = _projections(inputs, in_proj_weight, in_proj_bias)
    if found is NotImplemented:
        return NotImplemented
    q, k, v = (x.unflatten(-1, (num_heads, width // num_heads)).transpose(1, 2) for x in found)
    o, weights = _with_weights(q, k, v, mask, average_attn_weights) if need_weights else (_without_weights(q, k, v, mask, causal), None)
    y = _packed.multiply(o.transpose(1, 2).reshape(batch, queries, width), out_proj_weight, out_proj_bias)
    return NotImplemented if y is NotImplemented else (y.transpose(0, 1), weights)


_packed._RULES[_functional.multi_head_attention_forward] = _attention
