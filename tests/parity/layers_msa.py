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


def attend_rows(w, h, padding, heads, own_depth=False):
    """Tied rows: out_proj of every row's context, and the one map; w has the projections' names."""
    q, k, v = msa_projections(w, {"x": h}, heads)
    rows = torch.tensor(float(q.shape[0]), dtype=h.dtype)
    if padding is not None:
        q = q * (1 - padding.permute(1, 2, 0))[..., None, None]
        if own_depth:
            rows = (1 - padding.amin(2)).sum(1)[None, :, None, None]
    scores = torch.einsum("rinhd,rjnhd->hnij", q, k) / torch.sqrt(q.shape[-1] * rows)
    if padding is not None:
        scores = scores.masked_fill(padding[:, 0].bool()[None, :, None], -10000)
    maps = torch.softmax(scores, -1)
    out = torch.einsum("hnij,rjnhd->rinhd", maps, v).flatten(-2)
    return F.linear(out, w["out_proj.weight"], w["out_proj.bias"]), maps


def attend_columns(w, h, padding, heads):
    q, k, v = msa_projections(w, {"x": h}, heads)
    scores = torch.einsum("icnhd,jcnhd->hcnij", q, k) / math.sqrt(q.shape[-1])
    if padding is not None and q.shape[0] > 1:
        scores = scores.masked_fill(padding.bool().permute(2, 0, 1)[None, :, :, None], -10000)
    maps = torch.softmax(scores, -1)
    out = torch.einsum("hcnij,jcnhd->icnhd", maps, v).flatten(-2)
    return F.linear(out, w["out_proj.weight"], w["out_proj.bias"]), maps


def row_case(rng):
    config, weights, inputs, heads = msa_case(rng)

    def forward(w, x):
        out, maps = attend_rows(w, x["x"], x.get("self_attn_padding_mask"), heads)
        return {"out": out, "attention": maps}
    return config, weights, inputs, forward


def column_case(rng):
    config, weights, inputs, heads = msa_case(rng)

    def forward(w, x):
        out, maps = attend_columns(w, x["x"], x.get("self_attn_padding_mask"), heads)
        return {"out": out, "attention": maps}
    return config, weights, inputs, forward


def part(w, prefix):
    return {name[len(prefix):]: tensor for name, tensor in w.items() if name.startswith(prefix)}


def norm(w, x):
    return F.layer_norm(x, x.shape[-1:], w["layer_norm.weight"], w["layer_norm.bias"])


def axial_layer(w, x, padding, heads, own_depth=False):
    """x and both maps, from the paper: three pre-norm residual blocks."""
    rows, columns, ffn = (part(w, name + ".") for name in
                          ("row_self_attention", "column_self_attention", "feed_forward_layer"))
    out, row_maps = attend_rows(part(rows, "layer."), norm(rows, x), padding, heads, own_depth)
    x = x + out
    out, column_maps = attend_columns(part(columns, "layer."), norm(columns, x), padding, heads)
    x = x + out
    h = F.gelu(F.linear(norm(ffn, x), ffn["layer.fc1.weight"], ffn["layer.fc1.bias"]))
    return x + F.linear(h, ffn["layer.fc2.weight"], ffn["layer.fc2.bias"]), row_maps, column_maps


def axial_weights(rng, dim, hidden):
    weights = {}
    for block in "row_self_attention", "column_self_attention", "feed_forward_layer":
        weights[block + ".layer_norm.weight"] = 1 + normal(rng, dim) / 5
        weights[block + ".layer_norm.bias"] = normal(rng, dim) / 5
        for name in ("q_proj", "k_proj", "v_proj", "out_proj") if block != "feed_forward_layer" else ():
            weights[f"{block}.layer.{name}.weight"] = linear(rng, dim, dim)
            weights[f"{block}.layer.{name}.bias"] = normal(rng, dim)
    for name, out, into in ("fc1", hidden, dim), ("fc2", dim, hidden):
        weights[f"feed_forward_layer.layer.{name}.weight"] = linear(rng, out, into)
        weights[f"feed_forward_layer.layer.{name}.bias"] = normal(rng, out)
    return weights


def axial_case(rng):
    config, _, inputs, heads = msa_case(rng)
    dim, hidden = config["embed_dim"], size(rng)
    own_depth = bool(rng.integers(2))

    def forward(w, x):
        out, rows, columns = axial_layer(w, x["x"], x.get("self_attn_padding_mask"), heads, own_depth)
        return {"out": out, "row_attention": rows, "column_attention": columns}
    return ({"embedding_dim": dim, "ffn_embedding_dim": hidden, "num_attention_heads": heads, "dropout": 0.0,
             "attention_dropout": 0.0, "activation_dropout": 0.0, "own_depth": own_depth},
            axial_weights(rng, dim, hidden), inputs, forward)


LAYERS = {"row-self-attention": row_case, "column-self-attention": column_case, "axial-transformer-layer": axial_case}
