# SPDX-License-Identifier: MIT
"""Ways to write the same Transformer in PyTorch, for the training benchmark.

All hold the parameters of tests/parity/models.py; `packed` has those of one input's projections in one matrix.
"""
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "parity"))
import models  # noqa: E402


def attend_book(q, k, v, keep, dropout):
    """As the book computes it: heads in the batch axis, masked scores overwritten through an index, weights kept."""
    b, n, t, d = q.shape
    q, k, v = (x.reshape(b * n, x.shape[2], d) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d)
    scores[~keep.expand(b, n, t, k.shape[1]).reshape(scores.shape)] = -1e6
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(F.dropout(weights, dropout), v).reshape(b, n, t, d)


def attend_sdpa(q, k, v, keep, dropout):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, dropout_p=dropout)


class PackedAttention(nn.Module):
    """Multi-head attention with one product for the projections of the same input, and PyTorch's own attention."""

    def __init__(self, num_hiddens, num_heads, dropout, cross):
        super().__init__()
        self.num_heads, self.dropout, self.cross = num_heads, dropout, cross
        if cross:
            self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_in = nn.Linear(num_hiddens, (2 if cross else 3) * num_hiddens, bias=False)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=False)

    def forward(self, x_q, x_kv, keep):
        packed = self.W_in(x_kv).chunk(2 if self.cross else 3, dim=-1)
        q, k, v = (self.W_q(x_q), *packed) if self.cross else packed
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        out = attend_sdpa(q, k, v, keep, self.dropout if self.training else 0.0)
        return self.W_o(out.transpose(1, 2).flatten(2))


def pack(model, config):
    """Replaces every attention of a Transformer by a packed one."""
    sizes = config["num_hiddens"], config["num_heads"], config["dropout"]
    for block in model.encoder.blks.values():
        block.attention = PackedAttention(*sizes, cross=False)
    for block in model.decoder.blks.values():
        block.attention1 = PackedAttention(*sizes, cross=False)
        block.attention2 = PackedAttention(*sizes, cross=True)
    return model


class OneDnnProduct(torch.autograd.Function):
    """x W' + b through the oneDNN operator that PyTorch keeps for compiled inference, forward and backward.

    PyTorch sends float32 products to MKL, which on CPUs that are not Intel's leaves half of the machine unused.
    """

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        product = torch.ops.mkldnn._linear_pointwise
        rows = dy.reshape(-1, dy.shape[-1])
        dx = product(dy.contiguous(), weight.t(), None, "none", [], "")
        dw = product(rows.t(), x.reshape(-1, x.shape[-1]).t(), None, "none", [], "")
        return dx, dw, rows.sum(0) if ctx.biased else None


class OneDnnLinear(nn.Linear):
    def forward(self, x):
        return OneDnnProduct.apply(x, self.weight, self.bias)


def through_onednn(model):
    """Makes every linear layer of a model use OneDnnProduct."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.__class__ = OneDnnLinear
    return model


def build(kind, config):
    """The model as the `book`, as `sdpa` (its attention by PyTorch's function) or as `packed`."""
    model = models.build(config)
    if kind == "packed":
        return pack(model, config)
    for module in model.modules():
        if isinstance(module, models.MultiHeadAttention):
            module.attend = {"book": attend_book, "sdpa": attend_sdpa}[kind]
    return model
