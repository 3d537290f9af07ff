# SPDX-License-Identifier: MIT
"""Cases of the MSA Transformer's layers."""
import math

import numpy as np
import torch
from torch.nn import functional as F

from draw import linear, normal, size


def msa_case(rng):
    heads = int(rng.choice([1, 2, 3]))
    dim, rows, cols, batch = heads * size(rng), int(rng.choice([1, 2, 3, 7])), size(rng), int(rng.choice([1, 2]))
    weights = {}
    for name in "q_proj", "k_proj", "v_proj", "out_proj":
        weights[name + ".weight"], weights[name + ".bias"] = linear(rng, dim, dim), normal(rng, dim)
    inputs = {"x": normal(rng, rows, cols, batch, dim)}
    if rng.integers(2):
        padding = np.zeros((batch, rows, cols), np.float32)
        for b in range(batch):
            padding[b, rows - int(rng.integers(rows)):] = 1
            padding[b, :, cols - int(rng.integers(cols)):] = 1
        inputs["self_attn_padding_mask"] = padding
    return {"embed_dim": dim, "num_heads": heads, "max_tokens_per_msa": 1024}, weights, inputs, heads


def msa_projections(w, x, heads):
    return (F.linear(x["x"], w[p + "_proj.weight"], w[p + "_proj.bias"]).unflatten(-1, (heads, -1)) for p in "qkv")


def row_case(rng):
    config, weights, inputs, heads = msa_case(rng)

    def forward(w, x):
        q, k, v = msa_projections(w, x, heads)
        padding = x.get("self_attn_padding_mask")
        if padding is not None:
            q = q * (1 - padding.permute(1, 2, 0))[..., None, None]
        scores = torch.einsum("rinhd,rjnhd->hnij", q, k) / math.sqrt(q.shape[-1] * q.shape[0])
        if padding is not None:
            scores = scores.masked_fill(padding[:, 0].bool()[None, :, None], -10000)
        maps = torch.softmax(scores, -1)
        out = torch.einsum("hnij,rjnhd->rinhd", maps, v).flatten(-2)
        return {"out": F.linear(out, w["out_proj.weight"], w["out_proj.bias"]), "attention": maps}
    return config, weights, inputs, forward


def column_case(rng):
    config, weights, inputs, heads = msa_case(rng)

    def forward(w, x):
        q, k, v = msa_projections(w, x, heads)
        scores = torch.einsum("icnhd,jcnhd->hcnij", q, k) / math.sqrt(q.shape[-1])
        if "self_attn_padding_mask" in x and q.shape[0] > 1:
            padding = x["self_attn_padding_mask"].bool().permute(2, 0, 1)
            scores = scores.masked_fill(padding[None, :, :, None], -10000)
        maps = torch.softmax(scores, -1)
        out = torch.einsum("hcnij,jcnhd->icnhd", maps, v).flatten(-2)
        return {"out": F.linear(out, w["out_proj.weight"], w["out_proj.bias"]), "attention": maps}
    return config, weights, inputs, forward


LAYERS = {"row-self-attention": row_case, "column-self-attention": column_case}
