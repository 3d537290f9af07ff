# SPDX-License-Identifier: MIT
"""Layers in NumPy by the formulas of their papers: architecture -> (config, inputs, formula).

A formula takes the parameters and the inputs as dicts and returns the outputs by name, the first one differentiable.
"""
import numpy as np

from formulas import attention, layer_norm, softmax, split, within


def _random(*shape):
    return np.random.default_rng(sum(shape) + 7 * len(shape)).standard_normal(shape)


def multi_head(w, x):
    heads = 3
    q, k, v = (split(x[name] @ w[f"W_{name[0]}.weight"].T, heads) for name in ("queries", "keys", "values"))
    keep = within(x["valid_lens"], q.shape[1], k.shape[1])
    o, weights, _ = attention(q, k, v, keep)
    return {"out": o.reshape(*o.shape[:2], -1) @ w["W_o.weight"].T, "weights": weights}


def additive(w, x):
    hidden = np.tanh((x["queries"] @ w["W_q.weight"].T)[:, :, None] + (x["keys"] @ w["W_k.weight"].T)[:, None])
    scores = (hidden @ w["w_v.weight"].T)[..., 0]
    keep = within(x["valid_lens"], *scores.shape[1:])[:, 0]
    weights = softmax(scores, keep)
    return {"out": weights @ x["values"], "weights": weights}


def dot_product(w, x):
    o, weights, _ = attention(*(x[name][:, :, None] for name in ("queries", "keys", "values")))
    return {"out": o[:, :, 0], "weights": weights[:, 0]}


def self_attention(w, x):
    heads, kv = 2, x["kv"]
    q = split(x["x"] @ w["to_q.weight"].T, heads)
    k, v = (split(part, heads) for part in np.split(kv @ w["to_kv.weight"].T, 2, -1))
    o, weights, _ = attention(q, k, v)
    return {"out": o.reshape(*o.shape[:2], -1) @ w["to_out.weight"].T + w["to_out.bias"], "weights": weights}


def row_attention(w, x):
    """[rows,cols,batch,channels]: all rows share one map, whose scale includes the root of the number of rows."""
    heads, a = 2, x["x"]
    q, k, v = (split(a @ w[f"{p}_proj.weight"].T + w[f"{p}_proj.bias"], heads) for p in "qkv")
    scale = q.shape[-1] ** -0.5 * len(a) ** -0.5
    maps = softmax(np.einsum("rinhd,rjnhd->hnij", q, k) * scale)
    o = np.einsum("hnij,rjnhd->rinhd", maps, v).reshape(a.shape)
    return {"out": o @ w["out_proj.weight"].T + w["out_proj.bias"], "attention": maps}


def detr_ffn(w, x):
    a = x["x"]
    hidden = np.maximum(a @ w["ffn_layers.0.weight"].T + w["ffn_layers.0.bias"], 0)
    inner = hidden @ w["ffn_layers.2.weight"].T + w["ffn_layers.2.bias"]
    return {"out": layer_norm(a + inner, w["layer_norm.weight"], w["layer_norm.bias"])}


def key_content(w, x):
    a = x["x"]
    k, v = (np.einsum("bnd,mde->bmne", a, w[name]) for name in ("w_k", "w_v"))
    weights = softmax(np.einsum("mie,bmne->bmin", w["attention.u"], k))
    o = (weights @ v)[:, :, 0].reshape(len(a), 1, -1)  # the same for every query
    return {"out": layer_norm(a + o @ w["proj.weight"].T, w["layer_norm.weight"], w["layer_norm.bias"])}


def nadaraya_watson(w, x):
    apart = (x["x_val"][:, None] - x["x_train"][None]) / 0.7
    weights = softmax(-apart**2 / 2)
    return {"y_hat": weights @ x["y_train"], "weights": weights.T}


def masked_softmax(w, x):
    return {"out": softmax(x["x"], within(x["valid_lens"], *x["x"].shape[1:])[:, 0])}


_QKV = {"queries": _random(2, 4, 9), "keys": _random(2, 5, 9), "values": _random(2, 5, 9)}
_LENS = {"valid_lens": np.array([2, 5])}

LAYERS = {
    "multi-head-attention": ({"num_hiddens": 9, "num_heads": 3}, {**_QKV, **_LENS}, multi_head),
    "additive-attention": ({"num_hiddens": 6, "query_size": 9, "key_size": 9}, {**_QKV, **_LENS}, additive),
    "dot-product-attention": ({}, _QKV, dot_product),
    "self-attention": ({"dim": 6, "heads": 2}, {"x": _random(2, 3, 6), "kv": _random(2, 5, 6)}, self_attention),
    "row-self-attention": ({"embed_dim": 6, "num_heads": 2}, {"x": _random(3, 4, 1, 6)}, row_attention),
    "detr-ffn": ({"d": 5, "hidden": 7}, {"x": _random(1, 3, 5)}, detr_ffn),
    "key-content-attention": ({"M": 2, "d": 5, "d_head": 3}, {"x": _random(2, 4, 5)}, key_content),
    "nadaraya-watson": ({"kernel": "gaussian", "sigma": 0.7},
                        {"x_train": _random(6), "y_train": _random(6) * 2, "x_val": _random(4)}, nadaraya_watson),
    "masked-softmax": ({}, {"x": _random(2, 3, 5), "valid_lens": np.array([[1, 5, 0], [2, 3, 4]])}, masked_softmax),
}
