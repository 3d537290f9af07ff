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


def attend_separate_rows(w, h, padding, heads, leave_out=False):
    """Untied rows: row attention of an alignment is column attention of it turned over, one row not being special."""
    turned = None if padding is None else padding.transpose(1, 2)
    out, maps = attend_columns(w, h.transpose(0, 1), turned, heads, leave_out, False)
    return out.transpose(0, 1), maps


def attend_columns(w, h, padding, heads, leave_out=False, alone=True):
    """The same for columns; a column that is all padding gets the mean of its rows, or with leave_out nothing."""
    q, k, v = msa_projections(w, {"x": h}, heads)
    scores = torch.einsum("icnhd,jcnhd->hcnij", q, k) / math.sqrt(q.shape[-1])
    masked = padding is not None and (q.shape[0] > 1 or not alone)
    if masked:
        scores = scores.masked_fill(padding.bool().permute(2, 0, 1)[None, :, :, None], -10000)
    maps = torch.softmax(scores, -1)
    if masked and leave_out:
        maps = maps * (1 - padding.amin(1)).T[None, :, :, None, None]
    out = torch.einsum("hcnij,jcnhd->icnhd", maps, v).flatten(-2)
    return F.linear(out, w["out_proj.weight"], w["out_proj.bias"]), maps


def row_case(rng):
    config, weights, inputs, heads = msa_case(rng)
    tied = bool(rng.integers(2))

    def forward(w, x):
        if tied:
            out, maps = attend_rows(w, x["x"], x.get("self_attn_padding_mask"), heads)
        else:
            out, maps = attend_separate_rows(w, x["x"], x.get("self_attn_padding_mask"), heads)
        return {"out": out, "attention": maps}
    return config | {"tied": tied}, weights, inputs, forward


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


def axial_layer(w, x, padding, heads, own_depth=False, leave_out=False, tied=True, order="row-column"):
    """x and both maps, from the paper: three pre-norm residual blocks."""
    rows, columns, ffn = (part(w, name + ".") for name in
                          ("row_self_attention", "column_self_attention", "feed_forward_layer"))
    for kind in order.split("-"):
        if kind == "column":
            out, column_maps = attend_columns(part(columns, "layer."), norm(columns, x), padding, heads, leave_out)
        elif tied:
            out, row_maps = attend_rows(part(rows, "layer."), norm(rows, x), padding, heads, own_depth)
        else:
            out, row_maps = attend_separate_rows(part(rows, "layer."), norm(rows, x), padding, heads, leave_out)
        x = x + out
    return x + feed_forward(part(ffn, "layer."), norm(ffn, x)), row_maps, column_maps


def feed_forward(w, x):
    return F.linear(F.gelu(F.linear(x, w["fc1.weight"], w["fc1.bias"])), w["fc2.weight"], w["fc2.bias"])


def feed_forward_case(rng):
    dim, hidden = size(rng), size(rng)
    weights = part(axial_weights(rng, dim, hidden), "feed_forward_layer.layer.")
    config = {"embedding_dim": dim, "ffn_embedding_dim": hidden, "activation_dropout": 0.0}
    return config, weights, {"x": normal(rng, 3, size(rng), 2, dim)}, lambda w, x: {"out": feed_forward(w, x["x"])}


def residual_case(rng):
    config, _, inputs, heads = msa_case(rng)
    dim, hidden, layer = config["embed_dim"], size(rng), str(rng.choice(["row", "column", "feed-forward"]))
    tied = bool(rng.integers(2))
    names = {"row": "row_self_attention.", "column": "column_self_attention.", "feed-forward": "feed_forward_layer."}

    def forward(w, x):
        h, padding, own = norm(w, x["x"]), x.get("self_attn_padding_mask"), part(w, "layer.")
        if layer == "feed-forward":
            return {"out": x["x"] + feed_forward(own, h)}
        attend = attend_columns if layer == "column" else attend_rows if tied else attend_separate_rows
        out, maps = attend(own, h, padding, heads)
        return {"out": x["x"] + out, "attention": maps}
    return ({"layer": layer, "embedding_dim": dim, "num_attention_heads": heads, "ffn_embedding_dim": hidden,
             "dropout": 0.0, "activation_dropout": 0.0, "tied": tied},
            part(axial_weights(rng, dim, hidden), names[layer]), inputs, forward)


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
    own_depth, more = bool(rng.integers(2)), draw_order(rng)

    def forward(w, x):
        out, rows, columns = axial_layer(w, x["x"], x.get("self_attn_padding_mask"), heads, own_depth, **more)
        return {"out": out, "row_attention": rows, "column_attention": columns}
    return ({"embedding_dim": dim, "ffn_embedding_dim": hidden, "num_attention_heads": heads, "dropout": 0.0,
             "attention_dropout": 0.0, "activation_dropout": 0.0, "own_depth": own_depth, **more},
            axial_weights(rng, dim, hidden), inputs, forward)


def contact_probabilities(w, maps, columns):
    """Logistic regression over maps [B,L*H,C,C]: <cls> off, symmetric, corrected; each alignment in its own size."""
    out = torch.zeros(maps.shape[0], maps.shape[2] - 1, maps.shape[3] - 1, dtype=maps.dtype)
    for b, cols in enumerate(columns):
        s = maps[b, :, 1:cols, 1:cols]
        s = s + s.mT
        s = s - s.sum(-1, keepdim=True) * s.sum(-2, keepdim=True) / s.sum((-1, -2), keepdim=True)
        logit = torch.einsum("f,fij->ij", w["contact_head.regression.weight"][0], s) + w["contact_head.regression.bias"]
        out[b, :cols - 1, :cols - 1] = torch.sigmoid(logit)
    return out


def draw_order(rng):
    return {"tied": bool(rng.integers(2)), "order": str(rng.choice(["row-column", "column-row"]))}


def transformer(w, tokens, layers, heads, compat, tied, order):
    padding = (tokens == 1).to(w["embed_tokens.weight"].dtype)
    positions = ((tokens != 1).cumsum(-1) * (tokens != 1) + 1)
    x = w["embed_tokens.weight"][tokens] + w["embed_positions.weight"][positions]
    x = x + w["msa_position_embedding"][:, :tokens.shape[1]] if "msa_position_embedding" in w else x
    x = F.layer_norm(x, x.shape[-1:], w["emb_layer_norm_before.weight"], w["emb_layer_norm_before.bias"])
    x = x * (1 - padding)[..., None]
    hidden, row_maps, column_maps = [x], [], []
    x = x.permute(1, 2, 0, 3)
    for i in range(layers):
        x, rows, columns = axial_layer(part(w, f"layers.{i}."), x, padding, heads, not compat, not compat, tied, order)
        hidden.append(x.permute(2, 0, 1, 3))
        row_maps.append(rows.transpose(0, 1) if tied else rows.permute(2, 0, 1, 3, 4))
        column_maps.append(columns.permute(2, 0, 1, 3, 4))
    x = F.layer_norm(hidden[-1], x.shape[-1:], w["emb_layer_norm_after.weight"], w["emb_layer_norm_after.bias"])
    hidden[-1] = x
    h = F.gelu(F.linear(x, w["lm_head.dense.weight"], w["lm_head.dense.bias"]))
    h = F.layer_norm(h, h.shape[-1:], w["lm_head.layer_norm.weight"], w["lm_head.layer_norm.bias"])
    maps = torch.stack(row_maps, 1)
    columns = (tokens[:, 0] != 1).sum(1).tolist() if not compat else [tokens.shape[2]] * tokens.shape[0]
    results = {"logits": h @ w["embed_tokens.weight"].T + w["lm_head.bias"], "representations": x,
               "hidden": torch.stack(hidden), "row_attentions": maps, "col_attentions": torch.stack(column_maps, 1)}
    if tied:
        results["contacts"] = contact_probabilities(w, maps.flatten(1, 2), columns).detach()
    return results


def transformer_weights(rng, config):
    dim, vocabulary = config["embed_dim"], config["vocab_size"]
    weights = {"embed_tokens.weight": normal(rng, vocabulary, dim) / 2,
               "embed_positions.weight": normal(rng, config["max_positions"] + 2, dim) / 2,
               "contact_head.regression.weight": 3 * normal(rng, 1, config["layers"] * config["attention_heads"]),
               "contact_head.regression.bias": normal(rng, 1), "lm_head.bias": normal(rng, vocabulary),
               "lm_head.dense.weight": linear(rng, dim, dim), "lm_head.dense.bias": normal(rng, dim)}
    if config["embed_positions_msa"]:
        weights["msa_position_embedding"] = normal(rng, 1, 1024, 1, config["embed_positions_msa_dim"])
    for name in "emb_layer_norm_before", "emb_layer_norm_after", "lm_head.layer_norm":
        weights[name + ".weight"], weights[name + ".bias"] = 1 + normal(rng, dim) / 5, normal(rng, dim) / 5
    for i in range(config["layers"]):
        for name, array in axial_weights(rng, dim, config["ffn_embed_dim"]).items():
            # Small offsets: gradients of queries and keys are differences between values, which a large part that is
            # common to all of them would drown in float32's rounding.
            weights[f"layers.{i}.{name}"] = array / 10 if name.endswith(".bias") else array
    return weights


def transformer_case(rng):
    heads = int(rng.choice([1, 2, 3]))
    dim, batch, rows, cols = heads * int(rng.choice([4, 8, 16])), int(rng.choice([1, 2])), int(rng.choice([1, 2, 5])), 9
    config = {"layers": int(rng.choice([1, 2])), "embed_dim": dim, "ffn_embed_dim": 2 * dim, "attention_heads": heads,
              "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "vocab_size": 13,
              "max_positions": 12, "embed_positions_msa": bool(rng.integers(2)),
              "embed_positions_msa_dim": int(rng.choice([1, dim])), "compat": str(rng.choice(["none", "esm"]))}
    config |= draw_order(rng)
    tokens = rng.integers(4, 13, (batch, rows, cols))
    tokens[:, :, 0] = 0
    for b in range(batch if rng.integers(2) else 0):
        tokens[b, rows - int(rng.integers(rows)):] = 1
        tokens[b, :, cols - int(rng.integers(cols - 3)):] = 1
    inputs = {"tokens": tokens.astype(np.float32)}

    def forward(w, x):
        return transformer(w, x["tokens"].long(), config["layers"], heads, config["compat"] == "esm", config["tied"],
                           config["order"])
    return config, transformer_weights(rng, config), inputs, forward


LAYERS = {"feed-forward-network": feed_forward_case, "normalized-residual-block": residual_case,
          "row-self-attention": row_case, "column-self-attention": column_case, "axial-transformer-layer": axial_case,
          "msa-transformer": transformer_case}
