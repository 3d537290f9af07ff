# SPDX-License-Identifier: MIT
"""Biases that depend only on the distance of key and query, as T5's (Raffel et al. 2019, arXiv:1910.10683): a table
and an index by distance in place of a number for each pair."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import _ops


class Distances(NamedTuple):
    """The bias of query i and key j in head h is table[indices[j - i + queries - 1], h]."""

    table: Tensor  # [rows,H]
    indices: Tensor  # int32 [queries + keys - 1]


def distances(bias: Tensor) -> Optional[Distances]:
    """The table and the index of a bias [1,H,queries,keys], or None if the bias has no such form.

    A bias without a gradient has this form if its numbers are equal along each diagonal.  A bias with a gradient
    must be the permuted output of an embedding.  The gradient of the embedding's parameter is then computed without
    a gradient of the bias.
    """
    if not bias.is_cpu or bias.is_neg() or bias.dim() != 4 or bias.shape[0] != 1 or min(bias.shape) < 1:
        return None
    if bias.requires_grad and torch.is_grad_enabled():
        return _of_embedding(bias)
    values = bias.detach()[0].permute(1, 2, 0)
    if not _by_diagonal(values):
        return None
    table = _diagonals(values)
    return Distances(table, torch.arange(len(table), dtype=torch.int32, device="cpu"))


def has_hooks(bias: Tensor) -> bool:
    """Whether the bias, or the tensor that it is a view of, has a hook or retain_grad()."""
    return any(x is not None and bool(x._backward_hooks or (x.requires_grad and x.retains_grad))
               for x in (bias, bias._base))


def _has_saved_tensor_hooks() -> bool:
    """Whether saved tensors may have hooks, as in checkpoints, where reading one would compute a part of the model."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(False) is not None


def _by_diagonal(x: Tensor) -> bool:
    """Whether x [queries,keys,...] is constant along its diagonals.  Compares whole rows, 8 bytes at a time, if x allows it."""
    step, size = 1, x.element_size()
    if x.dim() == 3 and x.stride()[1:] == (x.shape[2], 1):
        step, x = x.shape[2], x.flatten(1)
        if not any(n * size % 8 for n in (x.storage_offset(), x.stride(0), step)):
            step, x = step * size // 8, x.view(torch.int64)
    return torch.equal(x[1:, step:], x[:-1, :-step])


def _diagonals(x: Tensor) -> Tensor:
    """The first element of each diagonal, from the bottom left to the top right."""
    return torch.cat((x[1:, 0].flip(0), x[0]))


def _of_embedding(bias: Tensor) -> Optional[Distances]:
    """The parameter and the index of torch.nn.functional.embedding(index, parameter).permute(2, 0, 1).unsqueeze(0)."""
    if bias._version or has_hooks(bias) or _has_saved_tensor_hooks():
        return None
    node: Any = bias.grad_fn
    if node is None or node.name() != "UnsqueezeBackward0" or node._saved_dim != 0:
        return None
    node = node.next_functions[0][0]
    if node is None or node.name() != "PermuteBackward0" or node._saved_dims != (2, 0, 1):
        return None
    node = node.next_functions[0][0]
    if node is None or node.name() != "EmbeddingBackward0" or node._saved_sparse or node._saved_scale_grad_by_freq \
            or node._saved_padding_idx not in (-1, 2**64 - 1):  # no padding_idx; unsigned in some versions
        return None
    table = getattr(node.next_functions[0][0], "variable", None)
    try:
        indices = node._saved_indices
    except RuntimeError:  # the graph is freed
        return None
    if table is None or not _ops.is_usual(table) or indices.shape != bias.shape[2:] or not _by_diagonal(indices):
        return None
    index = _diagonals(indices)
    # the parameter, or the bias itself, may have been changed after the bias was made
    values = bias.detach()[0].permute(1, 2, 0)
    if not _by_diagonal(values) or not torch.equal(_diagonals(values), table.detach()[index]):
        return None
    return Distances(table, index.to(torch.int32))
