# SPDX-License-Identifier: MIT
"""Cases of axial attention."""

import torch
from torch.nn import functional as F

from draw import linear, merge, normal, size, split


def self_attention_weights(rng, dim, hidden, prefix=""):
    return {prefix + "to_q.weight": linear(rng, hidden, dim), prefix + "to_kv.weight": linear(rng, 2 * hidden, dim),
            prefix + "to_out.weight": linear(rng, dim, hidden), prefix + "to_out.bias": normal(rng, dim)}


def self_attention(w, x, kv, heads, prefix=""):
    """x [b,t,dim], kv [b,s,dim]."""
    q = split(x @ w[prefix + "to_q.weight"].T, heads)
    k, v = (split(part, heads) for part in (kv @ w[prefix + "to_kv.weight"].T).chunk(2, -1))
    maps = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
    return F.linear(merge(maps @ v), w[prefix + "to_out.weight"], w[prefix + "to_out.bias"]), maps


def self_attention_case(rng):
    heads = int(rng.choice([1, 2, 4]))
    dim, dim_heads = heads * size(rng), size(rng)
    inputs = {"x": normal(rng, 2, size(rng), dim)}
    if rng.integers(2):
        inputs["kv"] = normal(rng, 2, size(rng), dim)

    def forward(w, x):
        out, maps = self_attention(w, x["x"], x.get("kv", x["x"]), heads)
        return {"out": out, "weights": maps}
    return ({"dim": dim, "heads": heads, "dim_heads": dim_heads},
            self_attention_weights(rng, dim, heads * dim_heads), inputs, forward)


def axial_case(rng):
    heads, axes = int(rng.choice([1, 2, 3])), int(rng.integers(1, 4))
    dim = heads * int(rng.choice([1, 2, 5, 8]))
    index = int(rng.choice([i for i in range(-axes - 1, axes + 2) if i]))
    summed = bool(rng.integers(2))
    weights = {}
    for i in range(axes):
        weights.update(self_attention_weights(rng, dim, dim, f"axial_attentions.{i}.fn."))
    shape = [int(rng.choice([1, 2, 3, 5, 6])) for _ in range(axes + 1)]
    shape.insert(index if index > 0 else index + axes + 2, dim)

    def along(w, x, i):  # channels last
        lines = x.movedim(i + 1, -2)
        out, _ = self_attention(w, lines.flatten(0, -3), lines.flatten(0, -3), heads, f"axial_attentions.{i}.fn.")
        return out.reshape(lines.shape).movedim(-2, i + 1)

    def forward(w, x):
        y = x["x"].movedim(index, -1)
        if summed:
            y = sum(along(w, y, i) for i in range(axes))
        else:
            for i in range(axes):
                y = along(w, y, i)
        return {"out": y.movedim(-1, index)}
    config = {"dim": dim, "num_dimensions": axes, "heads": heads, "dim_index": index, "sum_axial_out": summed}
    return config, weights, {"x": normal(rng, *shape)}, forward


LAYERS = {"self-attention": self_attention_case, "axial-attention": axial_case}
