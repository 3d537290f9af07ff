# SPDX-License-Identifier: MIT
"""Runs every layer of the library on random cases and compares outputs and all gradients with PyTorch's in float64.

    layers.py [--cases N] [--first SEED] [--tool COMMAND] [--only ARCHITECTURE]

The formulas are written here from the papers and docs, one function a layer.  A function draws a config, weights
and inputs from `rng` and returns them with the outputs, as (config, weights, inputs, forward); forward takes two
dicts of float64 tensors and returns the outputs by name, the first being the one whose gradient is taken.
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

import safetensors_file
from compare import TOLERANCE, compare_grads, distance, peak

ODD_SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 33]


def size(rng):
    return int(rng.choice(ODD_SIZES))


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def linear(rng, out, *ins):
    """A weight that keeps the size of what it multiplies."""
    return normal(rng, out, *ins) / np.float32(math.sqrt(ins[-1]))


def lengths(rng, batch, queries, keys):
    """None, one length a sentence, or one a query; 0 among them."""
    kind = rng.integers(3)
    if kind == 0:
        return {}
    shape = (batch,) if kind == 1 else (batch, queries)
    return {"valid_lens": rng.integers(0, keys + 1, shape).astype(np.float32)}


def masked_softmax(scores, lens):
    """scores [b,q,k]; a row whose length is 0 gives zeros."""
    if lens is None:
        return torch.softmax(scores, -1)
    lens = lens[:, None].expand(scores.shape[:2]) if lens.dim() == 1 else lens
    keep = torch.arange(scores.shape[-1]) < lens[..., None]
    return torch.softmax(scores.masked_fill(~keep, -1e30), -1) * keep


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).movedim(-2, 1)  # [b,t,h*d] -> [b,h,t,d]


def merge(x):
    return x.movedim(1, -2).flatten(-2)


# ------------------------------------------------------------------------------------ Dive into Deep Learning

def masked_softmax_case(rng):
    b, q, k = size(rng), size(rng), size(rng)
    inputs = {"x": normal(rng, b, q, k), **lengths(rng, b, q, k)}
    return {}, {}, inputs, lambda w, x: {"out": masked_softmax(x["x"], x.get("valid_lens"))}


def attention_inputs(rng, dq=None, dk=None, dv=None):
    b, q, k = int(rng.choice([1, 2, 3])), size(rng), size(rng)
    dq = dq or size(rng)
    return {"queries": normal(rng, b, q, dq), "keys": normal(rng, b, k, dk or dq),
            "values": normal(rng, b, k, dv or size(rng)), **lengths(rng, b, q, k)}


def dot_product_case(rng):
    def forward(w, x):
        scores = x["queries"] @ x["keys"].mT / math.sqrt(x["queries"].shape[-1])
        weights = masked_softmax(scores, x.get("valid_lens"))
        return {"out": weights @ x["values"], "weights": weights}
    return {"dropout": 0.0}, {}, attention_inputs(rng), forward


def additive_case(rng):
    h, dq, dk = size(rng), size(rng), size(rng)
    weights = {"W_q.weight": linear(rng, h, dq), "W_k.weight": linear(rng, h, dk), "w_v.weight": linear(rng, 1, h)}

    def forward(w, x):
        q, k = x["queries"] @ w["W_q.weight"].T, x["keys"] @ w["W_k.weight"].T
        scores = torch.tanh(q[:, :, None] + k[:, None]) @ w["w_v.weight"][0]
        maps = masked_softmax(scores, x.get("valid_lens"))
        return {"out": maps @ x["values"], "weights": maps}
    config = {"num_hiddens": h, "query_size": dq, "key_size": dk, "dropout": 0.0}
    return config, weights, attention_inputs(rng, dq, dk), forward


def multi_head_case(rng):
    heads = int(rng.choice([1, 2, 3, 5]))
    h, dq, dk, dv = heads * size(rng), size(rng), size(rng), size(rng)
    bias = bool(rng.integers(2))
    weights = {}
    for name, width in ("W_q", dq), ("W_k", dk), ("W_v", dv), ("W_o", h):
        weights[name + ".weight"] = linear(rng, h, width)
        if bias:
            weights[name + ".bias"] = normal(rng, h)

    def forward(w, x):
        q, k, v = (split(F.linear(x[name], w[p + ".weight"], w.get(p + ".bias")), heads)
                   for name, p in (("queries", "W_q"), ("keys", "W_k"), ("values", "W_v")))
        scores, lens = q @ k.mT / math.sqrt(h // heads), x.get("valid_lens")
        maps = torch.stack([masked_softmax(scores[:, i], lens) for i in range(heads)], 1)
        return {"out": F.linear(merge(maps @ v), w["W_o.weight"], w.get("W_o.bias")), "weights": maps}
    config = {"num_hiddens": h, "num_heads": heads, "bias": bias, "dropout": 0.0,
              "query_size": dq, "key_size": dk, "value_size": dv}
    return config, weights, attention_inputs(rng, dq, dk, dv), forward


def positional_case(rng):
    d = size(rng)

    def forward(w, x):
        angle = torch.arange(x["x"].shape[1])[:, None] / 10000.0 ** ((torch.arange(d) // 2 * 2).double() / d)
        return {"out": x["x"] + torch.where(torch.arange(d) % 2 == 0, torch.sin(angle), torch.cos(angle))}
    return {"num_hiddens": d, "dropout": 0.0}, {}, {"x": normal(rng, 2, size(rng), d)}, forward


def nadaraya_watson_case(rng):
    kernel = str(rng.choice(["gaussian", "boxcar", "constant", "epanechnikov"]))
    sigma = float(rng.uniform(3, 9))  # wide enough that every query has keys
    kernels = {"gaussian": lambda u: torch.exp(-u ** 2 / 2), "boxcar": lambda u: (u < 1).to(u.dtype),
               "constant": torch.ones_like, "epanechnikov": lambda u: torch.relu(1 - u)}
    inputs = {"x_train": normal(rng, size(rng)), "x_val": normal(rng, size(rng))}
    inputs["y_train"] = normal(rng, len(inputs["x_train"]), *([3] * int(rng.integers(2))))

    def forward(w, x):
        k = kernels[kernel]((x["x_train"][:, None] - x["x_val"]).abs() / sigma)
        maps = k / k.sum(0)
        return {"y_hat": maps.T @ x["y_train"], "weights": maps}
    return {"kernel": kernel, "sigma": sigma}, {}, inputs, forward


# -------------------------------------------------------------------------------------------- axial attention

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


# -------------------------------------------------------------------------------------------- MSA Transformer

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


# ----------------------------------------------------------------------------------------------------- DETR

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


LAYERS = {"masked-softmax": masked_softmax_case, "dot-product-attention": dot_product_case,
          "additive-attention": additive_case, "multi-head-attention": multi_head_case,
          "positional-encoding": positional_case, "nadaraya-watson": nadaraya_watson_case,
          "self-attention": self_attention_case, "axial-attention": axial_case, "row-self-attention": row_case,
          "column-self-attention": column_case, "detr-multi-head-attention": detr_case, "detr-ffn": detr_ffn_case,
          "key-content-attention": key_content_case}
INTEGERS = ("valid_lens", "self_attn_padding_mask")


def evaluate(forward, weights, inputs, dout, dtype):
    """Outputs and gradients of weights and inputs, as numpy arrays."""
    def tensors(arrays):
        return {name: torch.tensor(array, dtype=dtype, requires_grad=name not in INTEGERS)
                for name, array in arrays.items()}
    w, x = tensors(weights), tensors(inputs)
    outputs = forward(w, x)
    first = next(iter(outputs.values()))
    if dout is None:
        return first.shape
    first.backward(torch.tensor(dout, dtype=dtype))
    grads = [{name: (t.grad if t.grad is not None else torch.zeros_like(t)).numpy() for name, t in part.items()
              if name not in INTEGERS} for part in (w, x)]
    return {name: out.detach().numpy() for name, out in outputs.items()}, *grads


def draw_case(architecture, rng):
    """A case whose results PyTorch's own float32 finds within half of the tolerance: others say nothing about who
    computes them (a norm over channels that are nearly equal, a hidden unit on ReLU's kink)."""
    while True:
        config, weights, inputs, forward = LAYERS[architecture](rng)
        dout = normal(rng, *evaluate(forward, weights, inputs, None, torch.float64))
        exact = evaluate(forward, weights, inputs, dout, torch.float64)
        rounded = evaluate(forward, weights, inputs, dout, torch.float32)
        errors = [distance(rounded[0][name], array, max(peak(array), 1e-30)) for name, array in exact[0].items()]
        errors.append(compare_grads({**rounded[1], **rounded[2]}, {**exact[1], **exact[2]})[1])
        if max(errors) <= TOLERANCE / 2:
            return config, weights, inputs, dout, exact


def run_case(tool, architecture, seed, folder):
    rng = np.random.default_rng(seed)
    config, weights, inputs, dout, (outputs, grads, input_grads) = draw_case(architecture, rng)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architecture": architecture, **config}, file)
    for name, arrays in ("weights", weights), ("inputs", inputs):
        safetensors_file.write(os.path.join(folder, name + ".safetensors"), arrays)
    np.save(os.path.join(folder, "dout.npy"), dout)
    title = f"{architecture} {seed}: " + " ".join(f"{k}={v}" for k, v in config.items())
    done = subprocess.run([*tool, folder], capture_output=True, text=True)
    if done.returncode != 0:
        return False, f"FAIL {title}: exit code {done.returncode}: {done.stderr.strip()}"
    got = {part: safetensors_file.read(os.path.join(folder, f"out_{part}.safetensors"))
           for part in ("outputs", "grads", "input_grads")}
    errors = {name: distance(got["outputs"][name], array, max(peak(array), 1e-30)) for name, array in outputs.items()}
    # Parameters that take no part in the result have no gradient; here that means zero.
    zeros = {name: np.zeros_like(array) for name, array in grads.items()}
    name, error = compare_grads({**zeros, **got["grads"], **got["input_grads"]}, {**grads, **input_grads})
    errors["gradient of " + name] = error
    passed = max(errors.values()) <= TOLERANCE
    return passed, f"{'ok  ' if passed else 'FAIL'} {title}: " + ", ".join(f"{k} {v:.1e}" for k, v in errors.items())


def main():
    build = os.environ.get("ATTN_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10, help="of each layer")
    parser.add_argument("--first", type=int, default=0, help="the first case's seed")
    parser.add_argument("--tool", default=shlex.quote(os.path.join(build, "tests", "parity_tool")))
    parser.add_argument("--only", choices=LAYERS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = count = 0
    for architecture in [options.only] if options.only else LAYERS:
        for seed in range(options.first, options.first + options.cases):
            with tempfile.TemporaryDirectory() as folder:
                passed, line = run_case(shlex.split(options.tool), architecture, seed, folder)
            print(line, flush=True)
            failed += not passed
            count += 1
    print(f"{count - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
