# SPDX-License-Identifier: MIT
"""Biases that depend only on the distance of key and query, as T5's (Raffel et al. 2019, arXiv:1910.10683): a table
and an index by distance in place of a number for each pair."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import _ops


class Distances(NamedTuple):
    """The bias of query i and key j in head h is table[index[j - i + queries - 1], h]."""

    table: Tensor  # [rows,H]
    index: Tensor  # int32 [queries + keys - 1]


def distances(bias: Tensor) -> Optional[Distances]:
    """The table and the index of a bias [1,H,queries,keys], or None if the bias has no such form.

    A bias without a gradient has the form if all its numbers say so.  A bias with a gradient must be an embedding's
    rows, moved to this shape: the gradient of the embedding's parameter is then computed without one of the bias.
    """
    if not bias.is_cpu or bias.dim() != 4 or bias.shape[0] != 1 or min(bias.shape) < 1:
        return None
    if not bias.requires_grad or not torch.is_grad_enabled():
        return _of_numbers(bias[0].permute(1, 2, 0))
    return _of_embedding(bias)


def _by_diagonal(x: Tensor) -> bool:
    """Whether x [queries,keys,...] is constant along its diagonals, bit for bit where that is faster to compare."""
    if x.dim() == 3 and x.stride(2) == 1 and x.shape[2] * x.element_size() % 8 == 0 \
            and not x.storage_offset() * x.element_size() % 8 and not any(n * x.element_size() % 8 for n in x.stride()[:2]):
        x = x.view(torch.int64)
    return torch.equal(x[1:, 1:], x[:-1, :-1])


def _diagonals(x: Tensor) -> Tensor:
    """The first elements of all diagonals, from the last row to the last column."""
    return torch.cat((x[1:, 0].flip(0), x[0]))


def _of_numbers(x: Tensor) -> Optional[Distances]:
    if not _by_diagonal(x):
        return None
    table = _diagonals(x)
    return Distances(table, torch.arange(len(table), dtype=torch.int32, device="cpu"))


def _of_embedding(bias: Tensor) -> Optional[Distances]:
    """The parameter and the index of torch.nn.functional.embedding(index, parameter).permute(2, 0, 1).unsqueeze(0)."""
    if bias._version or bias._backward_hooks or bias.retains_grad:
        return None
    node: Any = bias.grad_fn
    for name, of, wanted in (("UnsqueezeBackward0", "_saved_dim", 0), ("PermuteBackward0", "_saved_dims", (2, 0, 1))):
        if node is None or node.name() != name or getattr(node, of) != wanted:
            return None
        node = node.next_functions[0][0]
    if node is None or node.name() != "EmbeddingBackward0" or node._saved_sparse or node._saved_scale_grad_by_freq \
            or node._saved_padding_idx not in (-1, 2**64 - 1):  # none; unsigned in some versions
        return None
    table = getattr(node.next_functions[0][0], "variable", None)
    rows = node._saved_indices
    if table is None or not _ops.is_usual(table) or rows.shape != bias.shape[2:] or not _by_diagonal(rows):
        return None
    index = _diagonals(rows)
    # a parameter that was changed after the bias was made has other numbers
    if not torch.equal(_diagonals(bias.detach()[0].permute(1, 2, 0)), table.detach()[index]):
        return None
    return Distances(table, index.to(torch.int32))
