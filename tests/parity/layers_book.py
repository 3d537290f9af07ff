# SPDX-License-Identifier: MIT
"""Cases of the layers of Dive into Deep Learning."""
import math

import numpy as np
import torch
from torch.nn import functional as F

from models import TransformerDecoder, TransformerEncoder, lengths_to_keep
from draw import lengths, linear, masked_softmax, merge, normal, size, split


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


def bilinear_case(rng):
    dq, dk = size(rng), size(rng)

    def forward(w, x):
        maps = masked_softmax(x["queries"] @ w["M.weight"] @ x["keys"].mT, x.get("valid_lens"))
        return {"out": maps @ x["values"], "weights": maps}
    config = {"query_size": dq, "key_size": dk, "dropout": 0.0}
    return config, {"M.weight": linear(rng, dq, dk)}, attention_inputs(rng, dq, dk), forward


def multi_head_case(rng):
    heads = int(rng.choice([1, 2, 3, 5]))
    h, dq, dk, dv = heads * size(rng), size(rng), size(rng), size(rng)
    bias = bool(rng.integers(2))
    weights = {}
    for name, width in ("W_q", dq), ("W_k", dk), ("W_v", dv), ("W_o", h):
        weights[name + ".weight"] = linear(rng, h, width)
        if bias:
            weights[name + ".bias"] = normal(rng, h)
    score, d = str(rng.choice(["dot", "additive", "bilinear"])), h // heads
    if score == "additive":
        weights |= {f"attention.{name}.weight": linear(rng, d, d) for name in ("W_k", "W_q")}
        weights["attention.w_v.weight"] = linear(rng, 1, d)
    elif score == "bilinear":
        weights["attention.M.weight"] = linear(rng, d, d)

    def score_of(w, q, k):
        if score == "bilinear":
            return q @ w["attention.M.weight"] @ k.mT
        if score == "dot":
            return q @ k.mT / math.sqrt(d)
        q, k = q @ w["attention.W_q.weight"].T, k @ w["attention.W_k.weight"].T
        return torch.tanh(q[..., :, None, :] + k[..., None, :, :]) @ w["attention.w_v.weight"][0]

    def forward(w, x):
        q, k, v = (split(F.linear(x[name], w[p + ".weight"], w.get(p + ".bias")), heads)
                   for name, p in (("queries", "W_q"), ("keys", "W_k"), ("values", "W_v")))
        scores, lens = score_of(w, q, k), x.get("valid_lens")
        maps = torch.stack([masked_softmax(scores[:, i], lens) for i in range(heads)], 1)
        return {"out": F.linear(merge(maps @ v), w["W_o.weight"], w.get("W_o.bias")), "weights": maps}
    config = {"num_hiddens": h, "num_heads": heads, "bias": bias, "dropout": 0.0,
              "query_size": dq, "key_size": dk, "value_size": dv, "score": score}
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
    several = int(rng.integers(4))    # coordinates; 0: one, without an axis
    if several:
        sigma = [float(s) for s in rng.uniform(6, 12, several)]
    kernels = {"gaussian": lambda u: torch.exp(-u ** 2 / 2), "boxcar": lambda u: (u < 1).to(u.dtype),
               "constant": torch.ones_like, "epanechnikov": lambda u: torch.relu(1 - u)}
    inputs = {name: normal(rng, size(rng), *([several] if several else [])) for name in ("x_train", "x_val")}
    inputs["y_train"] = normal(rng, len(inputs["x_train"]), *([3] * int(rng.integers(2))))

    def forward(w, x):
        apart = (x["x_train"][:, None] - x["x_val"]) / torch.tensor(sigma, dtype=x["x_val"].dtype)
        k = kernels[kernel](apart.square().sum(-1).sqrt() if several else apart.abs())
        maps = k / k.sum(0)
        return {"y_hat": maps.T @ x["y_train"], "weights": maps}
    return {"kernel": kernel, "sigma": sigma}, {}, inputs, forward


def module_case(rng, module, config, inputs, call):
    """A module of models.py, whose parameters' names are the library's."""
    weights = {name: linear(rng, *t.shape) if t.dim() > 1 else normal(rng, *t.shape) / 5 + name.endswith("ln.weight")
               for name, t in module.named_parameters()}
    weights = {name: np.asarray(array, np.float32) for name, array in weights.items()}

    def forward(w, x):
        dtype = next(iter(w.values())).dtype
        module.to(dtype)
        module.pos_encoding.table = positions(module.pos_encoding.table.shape, dtype)
        return call(lambda *args: torch.func.functional_call(module, w, args), x)
    return config, weights, inputs, forward


def positions(shape, dtype):
    """The table in the precision of the run: the module keeps it in the default one."""
    t = torch.arange(shape[0], dtype=torch.float64)[:, None]
    rate = 10000.0 ** (-torch.arange(0, shape[1], 2, dtype=torch.float64) / shape[1])
    return torch.stack((torch.sin(t * rate), torch.cos(t * rate)), dim=-1).flatten(1).to(dtype)


def transformer_sizes(rng):
    heads = int(rng.choice([1, 2, 3]))
    return {"vocab_size": 5 + size(rng), "num_hiddens": 2 * heads * int(rng.choice([1, 2, 5])),
            "ffn_num_hiddens": size(rng), "num_heads": heads, "num_blks": int(rng.choice([1, 2])), "dropout": 0.0}


def transformer_encoder_case(rng):
    config = {**transformer_sizes(rng), "use_bias": bool(rng.integers(2))}
    batch, steps = int(rng.choice([1, 2, 3])), size(rng)
    inputs = {"tokens": rng.integers(0, config["vocab_size"], (batch, steps)).astype(np.float32),
              "valid_lens": rng.integers(0, steps + 1, batch).astype(np.float32)}

    def call(run, x):
        keep = lengths_to_keep(x["valid_lens"], steps)[:, None, None, :]
        return {"out": run(x["tokens"].long(), keep)}
    return module_case(rng, TransformerEncoder(**config), config, inputs, call)


def transformer_decoder_case(rng):
    config = transformer_sizes(rng)
    batch, steps, memory = int(rng.choice([1, 2, 3])), size(rng), size(rng)
    inputs = {"tokens": rng.integers(0, config["vocab_size"], (batch, steps)).astype(np.float32),
              "enc_outputs": normal(rng, batch, memory, config["num_hiddens"]),
              "valid_lens": rng.integers(0, memory + 1, batch).astype(np.float32)}

    def call(run, x):
        keep = lengths_to_keep(x["valid_lens"], memory)[:, None, None, :]
        return {"logits": run(x["tokens"].long(), x["enc_outputs"], keep)}
    return module_case(rng, TransformerDecoder(**config), config, inputs, call)


def part(w, prefix):
    return {name[len(prefix):]: tensor for name, tensor in w.items() if name.startswith(prefix)}


def affine(rng, name, out, *ins, bias=True):
    return {name + ".weight": linear(rng, out, *ins)} | ({name + ".bias": normal(rng, out)} if bias else {})


def norm_weights(rng, name, d):
    return {name + ".weight": normal(rng, d) / 5 + 1, name + ".bias": normal(rng, d)}


def dense(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def heads_weights(rng, name, d, bias):
    return {key: array for p in "qkvo" for key, array in affine(rng, f"{name}.W_{p}", d, d, bias=bias).items()}


def attend_heads(w, queries, keys, heads, lens):
    """d2l.MultiHeadAttention: the result and the weights."""
    q, k, v = (split(dense(w, p, x), heads) for p, x in (("W_q", queries), ("W_k", keys), ("W_v", keys)))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    maps = torch.stack([masked_softmax(scores[:, i], lens) for i in range(heads)], 1)
    return dense(w, "W_o", merge(maps @ v)), maps


def ffn_weights(rng, name, d, hidden, out):
    return affine(rng, name + "dense1", hidden, d) | affine(rng, name + "dense2", out, hidden)


def ffn(w, x, activation=torch.relu):
    return dense(w, "dense2", activation(dense(w, "dense1", x)))


def position_wise_ffn_case(rng):
    d, hidden, out = size(rng), size(rng), size(rng)
    config = {"num_hiddens": d, "ffn_num_hiddens": hidden, "ffn_num_outputs": out}
    if rng.integers(3) == 0:
        config, d = {"ffn_num_hiddens": hidden, "ffn_num_outputs": out}, out
    return (config, ffn_weights(rng, "", d, hidden, out), {"x": normal(rng, 2, size(rng), d)},
            lambda w, x: {"out": ffn(w, x["x"])})


def vit_mlp_case(rng):
    d, hidden, out = size(rng), size(rng), size(rng)
    config = {"num_hiddens": d, "mlp_num_hiddens": hidden, "mlp_num_outputs": out, "dropout": 0.0}
    return (config, ffn_weights(rng, "", d, hidden, out), {"x": normal(rng, 2, size(rng), d)},
            lambda w, x: {"out": ffn(w, x["x"], F.gelu)})


def add_norm_case(rng):
    d, steps = 1 + size(rng), size(rng)
    inputs = {name: normal(rng, 2, steps, d) for name in "xy"}
    return ({"norm_shape": d, "dropout": 0.0}, norm_weights(rng, "ln", d), inputs,
            lambda w, x: {"out": layer_norm(w, "ln", x["x"] + x["y"])})


def block_sizes(rng):
    heads = int(rng.choice([1, 2, 3]))
    return heads, heads * int(rng.choice([2, 4, 5])), size(rng), bool(rng.integers(2)), int(rng.choice([1, 2, 3]))


def encoder_block_case(rng):
    heads, d, hidden, bias, batch = block_sizes(rng)
    steps = size(rng)
    config = {"num_hiddens": d, "ffn_num_hiddens": hidden, "num_heads": heads, "dropout": 0.0, "use_bias": bias}
    weights = {**heads_weights(rng, "attention", d, bias), **norm_weights(rng, "addnorm1.ln", d),
               **ffn_weights(rng, "ffn.", d, hidden, d), **norm_weights(rng, "addnorm2.ln", d)}

    def forward(w, x):
        out, maps = attend_heads(part(w, "attention."), x["x"], x["x"], heads, x.get("valid_lens"))
        y = layer_norm(w, "addnorm1.ln", x["x"] + out)
        return {"out": layer_norm(w, "addnorm2.ln", y + ffn(part(w, "ffn."), y)), "weights": maps}
    return config, weights, {"x": normal(rng, batch, steps, d), **lengths(rng, batch, steps, steps)}, forward


def decoder_block_case(rng):
    heads, d, hidden, bias, batch = block_sizes(rng)
    steps, memory = size(rng), size(rng)
    config = {"num_hiddens": d, "ffn_num_hiddens": hidden, "num_heads": heads, "dropout": 0.0, "use_bias": bias}
    weights = ffn_weights(rng, "ffn.", d, hidden, d)
    for i in (1, 2):
        weights |= heads_weights(rng, f"attention{i}", d, bias)
    for i in (1, 2, 3):
        weights |= norm_weights(rng, f"addnorm{i}.ln", d)
    inputs = {"x": normal(rng, batch, steps, d), "enc_outputs": normal(rng, batch, memory, d)}
    if rng.integers(2):
        inputs["valid_lens"] = rng.integers(0, memory + 1, batch).astype(np.float32)

    def forward(w, x):
        causal = torch.arange(1, steps + 1).repeat(batch, 1)
        out, own = attend_heads(part(w, "attention1."), x["x"], x["x"], heads, causal)
        y = layer_norm(w, "addnorm1.ln", x["x"] + out)
        out, cross = attend_heads(part(w, "attention2."), y, x["enc_outputs"], heads, x.get("valid_lens"))
        z = layer_norm(w, "addnorm2.ln", y + out)
        return {"out": layer_norm(w, "addnorm3.ln", z + ffn(part(w, "ffn."), z)), "self_weights": own,
                "cross_weights": cross}
    return config, weights, inputs, forward


def vit_block_case(rng):
    heads, d, hidden, bias, batch = block_sizes(rng)
    steps = size(rng)
    config = {"num_hiddens": d, "norm_shape": d, "mlp_num_hiddens": hidden, "num_heads": heads, "dropout": 0.0,
              "use_bias": bias}
    weights = {**norm_weights(rng, "ln1", d), **heads_weights(rng, "attention", d, bias), **norm_weights(rng, "ln2", d),
               **ffn_weights(rng, "mlp.", d, hidden, d)}

    def forward(w, x):
        y = layer_norm(w, "ln1", x["x"])
        out, maps = attend_heads(part(w, "attention."), y, y, heads, x.get("valid_lens"))
        y = x["x"] + out
        return {"out": y + ffn(part(w, "mlp."), layer_norm(w, "ln2", y), F.gelu), "weights": maps}
    return config, weights, {"x": normal(rng, batch, steps, d), **lengths(rng, batch, steps, steps)}, forward


def patch_embedding_case(rng):
    d, channels = size(rng), int(rng.choice([1, 2, 3]))
    patch = [int(rng.integers(1, 5)) for _ in range(2)]
    image = [p * int(rng.integers(1, 4)) + int(rng.integers(p)) for p in patch]
    weights = {"conv.weight": normal(rng, d, channels, *patch) / np.float32(math.sqrt(channels * patch[0] * patch[1])),
               "conv.bias": normal(rng, d)}

    def forward(w, x):
        y = F.conv2d(x["x"], w["conv.weight"], w["conv.bias"], stride=patch)
        return {"out": y.flatten(2).transpose(1, 2)}
    config = {"img_size": image, "patch_size": patch, "num_hiddens": d, "in_channels": channels}
    return config, weights, {"x": normal(rng, 2, channels, *image)}, forward


def seq2seq_encoder_case(rng):
    vocabulary, embed, d, layers = 5 + size(rng), size(rng), size(rng), int(rng.integers(1, 4))
    weights = {"embedding.weight": normal(rng, vocabulary, embed)}
    for i in range(layers):
        weights |= {f"rnn.rnn.weight_ih_l{i}": linear(rng, 3 * d, d if i else embed),
                    f"rnn.rnn.weight_hh_l{i}": linear(rng, 3 * d, d),
                    f"rnn.rnn.bias_ih_l{i}": normal(rng, 3 * d), f"rnn.rnn.bias_hh_l{i}": normal(rng, 3 * d)}
    tokens = rng.integers(0, vocabulary, (int(rng.choice([1, 2, 3])), size(rng))).astype(np.float32)

    def forward(w, x):
        gru = torch.nn.GRU(embed, d, layers).to(w["embedding.weight"].dtype)
        embedded = w["embedding.weight"][x["tokens"].long().T]
        out, state = torch.func.functional_call(gru, part(w, "rnn.rnn."), (embedded,))
        return {"out": out, "state": state}
    config = {"vocab_size": vocabulary, "embed_size": embed, "num_hiddens": d, "num_layers": layers, "dropout": 0.0}
    return config, weights, {"tokens": tokens}, forward


def batch_norm_case(rng):
    channels, eps = size(rng), float(rng.choice([1e-5, 0.1]))
    weights = {"weight": normal(rng, channels), "bias": normal(rng, channels), "running_mean": normal(rng, channels),
               "running_var": np.abs(normal(rng, channels)) + 0.1, "num_batches_tracked": np.float32(7).reshape(())}
    return ({"num_features": channels, "eps": eps}, weights,
            {"x": normal(rng, 2 + size(rng), channels, *(size(rng) for _ in range(int(rng.integers(3)))))},
            lambda w, x: {"out": F.batch_norm(x["x"], w["running_mean"].detach(), w["running_var"].detach(),
                                              w["weight"], w["bias"], eps=eps)})


LAYERS = {"position-wise-ffn": position_wise_ffn_case, "add-norm": add_norm_case, "batch-norm": batch_norm_case,
          "transformer-encoder-block": encoder_block_case, "transformer-decoder-block": decoder_block_case,
          "seq2seq-encoder": seq2seq_encoder_case, "patch-embedding": patch_embedding_case, "vit-mlp": vit_mlp_case,
          "vit-block": vit_block_case, "transformer-encoder": transformer_encoder_case, "transformer-decoder": transformer_decoder_case,
          "masked-softmax": masked_softmax_case, "dot-product-attention": dot_product_case,
          "additive-attention": additive_case, "bilinear-attention": bilinear_case,
          "multi-head-attention": multi_head_case,
          "positional-encoding": positional_case, "nadaraya-watson": nadaraya_watson_case}
