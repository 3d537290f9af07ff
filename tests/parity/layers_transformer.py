# SPDX-License-Identifier: MIT
"""The Transformer under every setting that tells Marian's, fairseq's and PyTorch's from the book's, written out with
PyTorch's functions."""
import math

import numpy as np
import torch
import torch.nn.functional as F

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
               "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x), "silu": F.silu}


def table(kind, steps, width):
    t = torch.arange(steps, dtype=torch.float64)[:, None]
    half = width // 2
    j = torch.arange(half, dtype=torch.float64)
    angle = t / 10000.0 ** (j / max(half - 1, 1) if kind == "halves-t2t" else 2 * j / width)
    if kind == "interleaved":
        return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
    return torch.cat((angle.sin(), angle.cos()), 1)


class Run:
    """One forward pass with the weights `w`."""

    def __init__(self, config, w):
        self.config, self.w, self.eps = config, w, config["eps"]

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def norm(self, name, x):
        if name + ".weight" not in self.w:
            return x
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], self.eps)

    def attention(self, name, heads, x, y, keep):
        def split(z):
            return z.unflatten(-1, (heads, -1)).transpose(1, 2)
        q, k, v = (split(self.linear(f"{name}.W_{c}", z)) for c, z in (("q", x), ("k", y), ("v", y)))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~keep, -math.inf)
        return self.linear(name + ".W_o", (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def residual(self, name, x, layer):
        if self.config["norm"] == "pre":
            return x + layer(self.norm(name + ".ln", x))
        return self.norm(name + ".ln", x + layer(x))

    def ffn(self, name, x):
        return self.linear(name + ".dense2", ACTIVATIONS[self.config["activation"]](self.linear(name + ".dense1", x)))

    def front(self, side, ids):
        c, shared = self.config, self.w["encoder.embedding.weight"]
        x = F.embedding(ids, self.w.get(side + ".embedding.weight", shared))
        x = x * (math.sqrt(c["num_hiddens"]) if c["embedding_scale"] == "sqrt" else 1)
        rows = slice(c["position_offset"], c["position_offset"] + ids.shape[1])
        if c["positions"] == "learned":
            x = x + self.w[side + ".pos_embedding.weight"][rows]
        elif c["positions"] != "none":
            x = x + table(c["positions"], rows.stop, c["num_hiddens"])[rows].to(x.dtype)
        return self.norm(side + ".embedding_norm", x)

    def __call__(self, src, keep, tgt):
        c = self.config
        x = self.front("encoder", src)
        for i in range(c["enc_num_blks"]):
            b, heads = f"encoder.blks.block{i}.", c["enc_num_heads"]
            x = self.residual(b + "addnorm1", x, lambda z: self.attention(b + "attention", heads, z, z, keep))
            x = self.residual(b + "addnorm2", x, lambda z: self.ffn(b + "ffn", z))
        memory = self.norm("encoder.norm", x)
        causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()
        x = self.front("decoder", tgt)
        for i in range(c["dec_num_blks"]):
            b, heads = f"decoder.blks.block{i}.", c["dec_num_heads"]
            x = self.residual(b + "addnorm1", x, lambda z: self.attention(b + "attention1", heads, z, z, causal))
            x = self.residual(b + "addnorm2", x, lambda z: self.attention(b + "attention2", heads, z, memory, keep))
            x = self.residual(b + "addnorm3", x, lambda z: self.ffn(b + "ffn", z))
        x = self.norm("decoder.norm", x)
        tied = {"none": "decoder.dense.weight", "decoder": "decoder.embedding.weight", "all": "encoder.embedding.weight"}
        return F.linear(x, self.w[tied[c["tie"]]], self.w.get("decoder.dense.bias"))


def shapes(c):
    """Every parameter's shape."""
    d, v, found = c["num_hiddens"], c["vocab_size"], {}

    def linear(name, rows, cols, bias):
        found[name + ".weight"] = (rows, cols)
        if bias:
            found[name + ".bias"] = (rows,)

    def norm(name):
        found[name + ".weight"] = found[name + ".bias"] = (d,)

    for side, short, bias in (("encoder", "enc", c["use_bias"]), ("decoder", "dec", c["decoder_bias"])):
        if side == "encoder" or c["tie"] != "all":
            found[side + ".embedding.weight"] = (v, d)
        if c["positions"] == "learned":
            found[side + ".pos_embedding.weight"] = (c["max_len"], d)
        if c["embedding_norm"]:
            norm(side + ".embedding_norm")
        attentions = ("attention",) if side == "encoder" else ("attention1", "attention2")
        for i in range(c[short + "_num_blks"]):
            b = f"{side}.blks.block{i}."
            for name in attentions:
                for part in "qkvo":
                    linear(f"{b}{name}.W_{part}", d, d, bias)
            linear(b + "ffn.dense1", c[short + "_ffn_num_hiddens"], d, True)
            linear(b + "ffn.dense2", d, c[short + "_ffn_num_hiddens"], True)
            for k in range(len(attentions) + 1):
                norm(f"{b}addnorm{k + 1}.ln")
        if c[side + "_norm"]:
            norm(side + ".norm")
    if c["tie"] == "none":
        found["decoder.dense.weight"] = (v, d)
    if c["output_bias"]:
        found["decoder.dense.bias"] = (v,)
    return found


def transformer_case(rng):
    def one_of(*choices):
        return choices[int(rng.integers(len(choices)))]
    flags = {name: bool(rng.integers(2)) for name in
             ("use_bias", "decoder_bias", "output_bias", "encoder_norm", "decoder_norm", "embedding_norm")}
    config = {"vocab_size": int(rng.integers(5, 40)), "num_hiddens": 12 * one_of(1, 2), "max_len": 30,
              "enc_num_blks": one_of(1, 2), "dec_num_blks": one_of(1, 2, 3), "enc_num_heads": one_of(1, 2, 3),
              "dec_num_heads": one_of(1, 2, 6), "enc_ffn_num_hiddens": one_of(5, 32), "dec_ffn_num_hiddens": one_of(7, 16),
              "norm": one_of("post", "pre"), "activation": one_of(*ACTIVATIONS), "eps": one_of(1e-5, 1e-6, 1e-2),
              "positions": one_of("interleaved", "halves", "halves-t2t", "learned", "none"),
              "position_offset": one_of(0, 2), "embedding_scale": one_of("sqrt", "one"),
              "tie": one_of("none", "decoder", "all"), "dropout": 0.0, **flags}
    weights = {name: rng.standard_normal(shape) / (np.sqrt(shape[1]) if len(shape) > 1 else 5) +
               ("norm" in name and name.endswith("weight")) for name, shape in shapes(config).items()}
    weights = {name: np.asarray(array, np.float32) for name, array in weights.items()}
    batch, steps, said = one_of(1, 2, 3), one_of(1, 4, 9), one_of(1, 5, 8)
    inputs = {"tokens": rng.integers(0, config["vocab_size"], (batch, steps)).astype(np.float32),
              "valid_lens": rng.integers(1, steps + 1, batch).astype(np.float32),
              "tgt_tokens": rng.integers(0, config["vocab_size"], (batch, said)).astype(np.float32)}

    def forward(w, x):
        keep = torch.arange(steps)[None, None, None, :] < x["valid_lens"][:, None, None, None]
        return {"logits": Run(config, w)(x["tokens"].long(), keep, x["tgt_tokens"].long())}
    return config, weights, inputs, forward


LAYERS = {"transformer": transformer_case}
