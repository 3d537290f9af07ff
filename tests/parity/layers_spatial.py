# SPDX-License-Identifier: MIT
"""Cases of attention over sets and grids: DETR, key content."""
import math

import torch
from torch.nn import functional as F

from draw import linear, merge, normal, size


def norm(w, x):
    return F.layer_norm(x, x.shape[-1:], w["layer_norm.weight"], w["layer_norm.bias"])


def norm_weights(rng, d):
    return {"layer_norm.weight": 1 + normal(rng, d) / 5, "layer_norm.bias": normal(rng, d) / 5}


def detr_case(rng):
    heads, d, dh = int(rng.choice([1, 2, 3])), int(rng.choice([3, 8, 17])), size(rng)
    weights = {name: linear(rng, heads, d, dh) for name in ("w_q", "w_k", "w_v")}
    weights |= {"proj.weight": linear(rng, d, heads * dh), **norm_weights(rng, d)}
    inputs = {"x_q": normal(rng, 2, size(rng), d)}
    if rng.integers(2):
        inputs["x_kv"] = normal(rng, 2, size(rng), d)
    for name, of in ("p_q", "x_q"), ("p_kv", "x_kv" if "x_kv" in inputs else "x_q"):
        if rng.integers(2):
            inputs[name] = normal(rng, 1, inputs[of].shape[1], d)

    def forward(w, x):
        x_q, x_kv = x["x_q"], x.get("x_kv", x["x_q"])
        q, k, v = ((a[:, None] @ w[name]) for a, name in
                   ((x_q + x.get("p_q", 0), "w_q"), (x_kv + x.get("p_kv", 0), "w_k"), (x_kv, "w_v")))
        maps = torch.softmax(q @ k.mT / math.sqrt(dh), -1)
        return {"out": norm(w, x_q + merge(maps @ v) @ w["proj.weight"].T)}
    return {"M": heads, "d": d, "d_head": dh, "dropout": 0.0}, weights, inputs, forward


def key_content_case(rng):
    heads, d, dh = int(rng.choice([1, 2, 3])), int(rng.choice([3, 8, 17])), size(rng)
    weights = {name: linear(rng, heads, d, dh) for name in ("w_k", "w_v")}
    weights |= {"attention.u": normal(rng, heads, 1, dh), "proj.weight": linear(rng, d, heads * dh),
                **norm_weights(rng, d)}

    def forward(w, x):
        k, v = x["x"][:, None] @ w["w_k"], x["x"][:, None] @ w["w_v"]
        maps = torch.softmax(w["attention.u"] @ k.mT, -1)
        return {"out": norm(w, x["x"] + merge(maps @ v) @ w["proj.weight"].T)}
    return {"M": heads, "d": d, "d_head": dh, "dropout": 0.0}, weights, {"x": normal(rng, 2, size(rng), d)}, forward


def detr_ffn_case(rng):
    d, hidden = int(rng.choice([3, 8, 17])), size(rng)
    weights = {"ffn_layers.0.weight": linear(rng, hidden, d), "ffn_layers.0.bias": normal(rng, hidden),
               "ffn_layers.2.weight": linear(rng, d, hidden), "ffn_layers.2.bias": normal(rng, d),
               **norm_weights(rng, d)}

    def forward(w, x):
        h = torch.relu(F.linear(x["x"], w["ffn_layers.0.weight"], w["ffn_layers.0.bias"]))
        return {"out": norm(w, x["x"] + F.linear(h, w["ffn_layers.2.weight"], w["ffn_layers.2.bias"]))}
    return {"d": d, "hidden": hidden}, weights, {"x": normal(rng, 2, size(rng), d)}, forward


LAYERS = {"detr-multi-head-attention": detr_case, "detr-ffn": detr_ffn_case,
          "key-content-attention": key_content_case}
