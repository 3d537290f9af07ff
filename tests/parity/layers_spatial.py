# SPDX-License-Identifier: MIT
"""Cases of attention over sets and grids: DETR, key content, images whole and in windows."""
import math

import numpy as np
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
        return {"out": norm(w, x_q + merge(maps @ v) @ w["proj.weight"].T), "weights": maps}
    return {"M": heads, "d": d, "d_head": dh, "dropout": 0.0}, weights, inputs, forward


def key_content_case(rng):
    heads, d, dh = int(rng.choice([1, 2, 3])), int(rng.choice([3, 8, 17])), size(rng)
    weights = {name: linear(rng, heads, d, dh) for name in ("w_k", "w_v")}
    weights |= {"attention.u": normal(rng, heads, 1, dh), "proj.weight": linear(rng, d, heads * dh),
                **norm_weights(rng, d)}

    def forward(w, x):
        k, v = x["x"][:, None] @ w["w_k"], x["x"][:, None] @ w["w_v"]
        maps = torch.softmax(w["attention.u"] @ k.mT, -1)
        return {"out": norm(w, x["x"] + merge(maps @ v) @ w["proj.weight"].T), "weights": maps}
    return {"M": heads, "d": d, "d_head": dh, "dropout": 0.0}, weights, {"x": normal(rng, 2, size(rng), d)}, forward


def detr_ffn_case(rng):
    d, hidden = int(rng.choice([3, 8, 17])), size(rng)
    weights = {"ffn_layers.0.weight": linear(rng, hidden, d), "ffn_layers.0.bias": normal(rng, hidden),
               "ffn_layers.2.weight": linear(rng, d, hidden), "ffn_layers.2.bias": normal(rng, d),
               **norm_weights(rng, d)}

    def forward(w, x):
        h = torch.relu(F.linear(x["x"], w["ffn_layers.0.weight"], w["ffn_layers.0.bias"]))
        return {"out": norm(w, x["x"] + F.linear(h, w["ffn_layers.2.weight"], w["ffn_layers.2.bias"]))}
    return {"d": d, "hidden": hidden, "dropout": 0.0}, weights, {"x": normal(rng, 2, size(rng), d)}, forward


# ------------------------------------------------------------------------------- self-attention over images

def conv1(w, name, x):
    """A convolution of kernel 1, with its bias if it has one."""
    weight, bias = w[name + ".weight"].flatten(1), w.get(name + ".bias")
    y = torch.einsum("oi,bi...->bo...", weight, x)
    return y if bias is None else y + bias.reshape(-1, *[1] * (x.dim() - 2))


def conv_weights(rng, name, out, ins, spatial, bias=True):
    found = {name + ".weight": linear(rng, out, ins).reshape(out, ins, *[1] * spatial)}
    return found | ({name + ".bias": normal(rng, out)} if bias else {})


def image_weights(rng, c, rows, span, bias=True, project=True):
    all_channels = c["mid_channels"] * c["num_heads"]
    weights = {}
    for name in "query", "key", "value":
        weights |= conv_weights(rng, name, all_channels, c["in_channels"], 2, bias)
    if project:
        weights |= conv_weights(rng, "wout", c["out_channels"], all_channels, 2, bias)
    if rows:
        weights |= {f"{name}_embedding.weight": normal(rng, rows, span // 2) for name in ("row", "col")}
    return weights


def image_config(rng):
    return {"in_channels": int(rng.choice([1, 3, 8])), "mid_channels": int(rng.choice([2, 4, 6, 16])),
            "out_channels": int(rng.choice([1, 5, 8])), "num_heads": int(rng.choice([1, 2, 3]))}


def axis_distances(queries, step, keys, table, origin):
    """table rows for key positions [queries, taps] less the query's own, (q,k,c)"""
    return table[keys - step * torch.arange(queries)[:, None] + origin]


def positions(w, c, rows, cols):
    """r [q_y,q_x,k_y,k_x,channels] from the two axes' [q,k,channels/2]."""
    y, x = torch.broadcast_tensors(rows[:, None, :, None], cols[None, :, None, :])
    return torch.cat((y, x), -1)


def stand_alone_case(rng):
    c = image_config(rng)
    h, width = int(rng.choice([1, 2, 5, 7])), int(rng.choice([1, 3, 6]))
    c["max_pos_embedding"] = max(h, width) + int(rng.integers(3))
    weights = image_weights(rng, c, 2 * c["max_pos_embedding"] - 1, c["mid_channels"])
    heads, origin = c["num_heads"], c["max_pos_embedding"] - 1

    def forward(w, x):
        q, k, v = (conv1(w, name, x["x"]).unflatten(1, (-1, heads)) for name in ("query", "key", "value"))
        keys = torch.arange(h)[None, :].expand(h, h), torch.arange(width)[None, :].expand(width, width)
        r = positions(w, c, axis_distances(h, 1, keys[0], w["row_embedding.weight"], origin),
                      axis_distances(width, 1, keys[1], w["col_embedding.weight"], origin))
        scores = torch.einsum("bchyx,bchij->bhyxij", q, k) + torch.einsum("bchyx,yxijc->bhyxij", q, r)
        maps = torch.softmax((scores / math.sqrt(c["in_channels"])).flatten(-2), -1).unflatten(-1, (h, width))
        out = torch.einsum("bhyxij,bchij->bchyx", maps, v).flatten(1, 2)
        return {"out": conv1(w, "wout", out), "weights": maps}
    return c, weights, {"x": normal(rng, 2, c["in_channels"], h, width)}, forward


def window_taps(size, step, k, shift):
    """Positions [queries, taps] of the windows' pixels, which may be outside."""
    first = step * torch.arange(-(-size // step)) - k // 2
    return (first.clamp(0, size - k) if shift else first)[:, None] + torch.arange(k)


def local_case(rng):
    c = image_config(rng)
    k, step = int(rng.choice([1, 3, 5])), int(rng.choice([1, 2, 3]))
    padding, relative = str(rng.choice(["zero", "mask", "shift"])), bool(rng.integers(4))
    bias, major, channel = bool(rng.integers(4)), bool(rng.integers(2)), bool(rng.integers(4) == 0)
    whole = channel or bool(rng.integers(2))
    h, width = (int(n) for n in rng.integers(k if padding == "shift" else 1, 10, 2))
    if not relative:
        c["mid_channels"] = int(rng.choice([1, 3, 4]))
    project = bool(rng.integers(3))
    if not project:
        c |= {"out_channels": c["mid_channels"] * c["num_heads"], "project": False}
    c |= {"kernel_size": k, "stride": step, "padding": padding, "relative": relative, "bias": bias,
          "scale": float(rng.choice([0, 1])), "head_order": "major" if major else "interleaved",
          "relative_span": "whole" if whole else "head", "scores": "channel" if channel else "dot"}
    everything = c["mid_channels"] * c["num_heads"]
    rows = 2 * k - 1 if padding == "shift" else k
    weights = image_weights(rng, c, rows if relative else 0, everything if whole else c["mid_channels"], bias, project)
    scale = c["scale"] or 1 / math.sqrt(c["in_channels"])

    def split_heads(x, axis):
        if channel:
            return x.unsqueeze(axis + 1)
        return x.unflatten(axis, (-1, c["mid_channels"])) if major else \
            x.unflatten(axis, (-1, c["num_heads"])).movedim(axis, axis + 1)

    def forward(w, x):
        taps = [window_taps(n, step, k, padding == "shift") for n in (h, width)]
        inside = [(t >= 0) & (t < n) for t, n in zip(taps, (h, width))]
        # Blocks of the image itself, zero outside, and only then projected: [b,c,q_y,q_x,k_y,k_x].
        blocks = x["x"][:, :, taps[0].clamp(0, h - 1)][..., taps[1].clamp(0, width - 1)].movedim(4, 3)
        both = inside[0][:, None, :, None] & inside[1][None, :, None, :]
        blocks = blocks * both
        q = split_heads(conv1(w, "query", x["x"][:, :, ::step, ::step]), 1)
        keys, values = (split_heads(conv1(w, name, blocks), 1) for name in ("key", "value"))
        scores = torch.einsum("bhcyx,bhcyxij->bhyxij", q, keys)
        if relative:
            r = positions(w, c, *(axis_distances(len(t), step, t, w[name + "_embedding.weight"], rows // 2)
                                  for t, name in zip(taps, ("row", "col"))))
            r = split_heads(r.movedim(-1, 0), 0) if whole else r.movedim(-1, 0)[None].expand(q.shape[1], *r.shape[-1:], *r.shape[:-1])
            scores = scores + torch.einsum("bhcyx,hcyxij->bhyxij", q, r)
        scores = scores * scale
        if padding == "mask":
            scores = scores.masked_fill(~both, -math.inf)
        maps = torch.softmax(scores.flatten(-2), -1).unflatten(-1, (k, k))
        out = torch.einsum("bhyxij,bhcyxij->bhcyx", maps, values)
        out = out.movedim(1, 2).flatten(1, 2) if not (major or channel) else out.flatten(1, 2)
        return {"out": conv1(w, "wout", out) if project else out, "weights": maps}
    return c, weights, {"x": normal(rng, 2, c["in_channels"], h, width)}, forward


# ------------------------------------------------------------------------------------------ non-local blocks

def batch_norm_weights(rng, name, channels):
    return {name + ".weight": 1 + normal(rng, channels) / 3, name + ".bias": normal(rng, channels) / 3,
            name + ".running_mean": normal(rng, channels) / 3, name + ".running_var": np.exp(normal(rng, channels) / 3),
            name + ".num_batches_tracked": np.float32(7).reshape(())}


def batch_norm(w, name, x, train):
    """The running statistics are data: they get no gradient, and a test of them is another one's."""
    return F.batch_norm(x, w[name + ".running_mean"].detach().clone(), w[name + ".running_var"].detach().clone(),
                        w[name + ".weight"], w[name + ".bias"], train)


def non_local_shape(rng, dimension):
    return [int(n) for n in rng.integers(2, 7 if dimension < 3 else 5, dimension)]


def non_local_weights(rng, c, prefix=""):
    """name -> array of a block with the settings `c`."""
    sub, bn, mode, d, ins = c["sub_sample"], c["bn_layer"], c["mode"], c["dimension"], c["in_channels"]
    inter = c.get("inter_channels", max(ins // 2, 1))
    weights = conv_weights(rng, "g.0" if sub else "g", inter, ins, d)
    weights |= conv_weights(rng, "W.0" if bn else "W", ins, inter, d)
    if bn:
        weights |= batch_norm_weights(rng, "W.1", ins)
    if mode != "gaussian":
        weights |= conv_weights(rng, "theta", inter, ins, d)
        weights |= conv_weights(rng, "phi.0" if sub else "phi", inter, ins, d)
    if mode == "concatenation":
        weights["concat_project.0.weight"] = linear(rng, 1, 2 * inter).reshape(1, -1, 1, 1)
    return {prefix + key: array for key, array in weights.items()}


def non_local(w, c, x, prefix="", train=False):
    d, mode = c["dimension"], c["mode"]

    def conv(name, array):
        name = prefix + name
        return conv1(w, name if name + ".weight" in w else name + ".0", array)

    def pool(array):
        if not c["sub_sample"]:
            return array
        kernel = {1: 2, 2: (2, 2), 3: (1, 2, 2)}[d]
        return {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[d](array, kernel)
    g = pool(conv("g", x)).flatten(2)
    theta, phi = (x, pool(x)) if mode == "gaussian" else (conv("theta", x), pool(conv("phi", x)))
    theta, phi = theta.flatten(2), phi.flatten(2)
    if mode == "concatenation":
        pairs = torch.cat((theta[..., :, None].expand(-1, -1, -1, phi.shape[-1]),
                           phi[..., None, :].expand(-1, -1, theta.shape[-1], -1)), 1)
        f = torch.relu(torch.einsum("c,bcij->bij", w[prefix + "concat_project.0.weight"].flatten(), pairs))
    else:
        f = theta.mT @ phi
    f = torch.softmax(f, -1) if "gaussian" in mode else f / f.shape[-1]
    y = conv("W", (g @ f.mT).unflatten(2, x.shape[2:]))
    if c["bn_layer"]:
        y = batch_norm(w, prefix + "W.1", y, train)
    return x + y, f


def non_local_case(rng):
    c = {"in_channels": int(rng.choice([2, 4, 5, 8])), "dimension": int(rng.choice([1, 2, 3])),
         "sub_sample": bool(rng.integers(2)), "bn_layer": bool(rng.integers(2)),
         "mode": str(rng.choice(["embedded-gaussian", "gaussian", "dot-product", "concatenation"]))}
    # One channel inside is out: a norm over the batch takes its weight's size away again, so that the gradient is a
    # difference of equal numbers.
    if rng.integers(2) or c["in_channels"] < 4:
        c["inter_channels"] = int(rng.choice([2, 3, 16]))
    train = bool(rng.integers(2))
    weights = non_local_weights(rng, c)
    x = normal(rng, 3, c["in_channels"], *non_local_shape(rng, c["dimension"]))

    def forward(w, x):
        out, f = non_local(w, c, x["x"], "", train)
        return {"out": out, "nl_map": f}
    return c | {"train": train}, weights, {"x": x}, forward



# -------------------------------------------------------------------------------------- generalized attention

FACTORS = ["query-key", "query-relpos", "key-only", "relpos-only"]


def distance_sines(n, width, magnitude):
    """[n queries, n keys, width/2]: sines, then cosines, of query - key."""
    index = torch.arange(n, dtype=torch.float64)
    waves = 1000 ** (torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = (index[:, None] - index)[..., None] * magnitude / waves
    return torch.cat((angles.sin(), angles.cos()), -1)


def generalized_case(rng):
    heads, d, dh = int(rng.choice([1, 2, 3])), int(rng.choice([4, 9, 16])), int(rng.choice([0, 1, 5, 8]))
    factors = [f for f in FACTORS if rng.integers(2)] or FACTORS[:]
    c = {"M": heads, "d": d, "factors": factors, "position_magnitude": float(rng.choice([0.5, 1]))}
    if dh:
        c["d_head"] = dh
    dh = dh or d // heads
    width, everything = d - d % 4, heads * dh
    if rng.integers(2):
        c["position_dim"] = width = int(rng.choice([4, 12]))
    weights = {"proj_conv.bias": normal(rng, d), "gamma": normal(rng, 1)}
    weights["proj_conv.weight"] = linear(rng, d, everything).reshape(d, everything, 1, 1)
    names = ["value_conv"] + ["query_conv"] * (FACTORS[0] in factors or FACTORS[1] in factors) \
        + ["key_conv"] * (FACTORS[0] in factors or FACTORS[2] in factors)
    weights |= {name + ".weight": linear(rng, everything, d).reshape(everything, d, 1, 1) for name in names}
    if FACTORS[1] in factors or FACTORS[3] in factors:
        weights |= {f"appr_geom_fc_{axis}.weight": linear(rng, everything, width // 2) for axis in "xy"}
    weights |= {name: normal(rng, everything) / 3 for name, f in (("appr_bias", 2), ("geom_bias", 3)) if FACTORS[f] in factors}
    h, wide = int(rng.choice([1, 2, 5])), int(rng.choice([1, 3, 6]))

    def forward(w, x):
        def split_heads(name):
            return conv1(w, name, x["x"]).unflatten(1, (heads, dh))

        def place(axis, n):
            sines = distance_sines(n, width, c["position_magnitude"]).to(x["x"].dtype)
            return (sines @ w[f"appr_geom_fc_{axis}.weight"].T).unflatten(-1, (heads, dh)) / math.sqrt(2)
        scores = torch.zeros(2, heads, h, wide, h, wide, dtype=x["x"].dtype)
        q = split_heads("query_conv") if "query_conv" in names else None
        k = split_heads("key_conv") if "key_conv" in names else None
        if FACTORS[0] in factors:
            scores = scores + torch.einsum("bmcyx,bmcij->bmyxij", q, k)
        if FACTORS[2] in factors:
            scores = scores + torch.einsum("mc,bmcij->bmij", w["appr_bias"].unflatten(0, (heads, dh)), k)[:, :, None, None]
        for axis, n, pair in (("y", h, "yi"), ("x", wide, "xj")):
            if FACTORS[1] in factors:
                scores = scores + torch.einsum(f"bmcyx,{pair}mc->bmyx{pair[1]}", q, place(axis, n)).unsqueeze(-1 if axis == "y" else -2)
            if FACTORS[3] in factors:
                v = torch.einsum(f"mc,{pair}mc->m{pair}", w["geom_bias"].unflatten(0, (heads, dh)), place(axis, n))
                scores = scores + (v[:, :, None, :, None] if axis == "y" else v[:, None, :, None, :])
        maps = torch.softmax(scores.flatten(-2), -1).unflatten(-1, (h, wide))
        out = torch.einsum("bmyxij,bmcij->bmcyx", maps, split_heads("value_conv")).flatten(1, 2)
        maps = maps[:, :, :1, :1] if factors == [FACTORS[2]] else maps  # the same for all queries
        return {"out": x["x"] + w["gamma"] * conv1(w, "proj_conv", out), "weights": maps}
    return c, weights, {"x": normal(rng, 2, d, h, wide)}, forward


def image_size(rng):
    return int(rng.choice([1, 2, 3])), int(rng.choice([1, 3, 5, 8])), int(rng.choice([1, 2, 7]))


def sine_positions_case(rng):
    """No parameters: the image's gradient is zero, and what counts are the values."""
    (b, h, w_), feats = image_size(rng), 2 * int(rng.choice([1, 3, 8]))
    config = {"num_pos_feats": feats, "temperature": float(rng.choice([20.0, 10000.0])),
              "normalize": bool(rng.integers(2))}
    if config["normalize"] and rng.integers(2):
        config["scale"] = 3.5
    inputs = {"x": normal(rng, b, 2, h, w_)}
    if rng.integers(2):
        inputs["mask"] = np.zeros((b, h, w_), np.float32)
        inputs["mask"][:, h - int(rng.integers(h)):] = 1
        inputs["mask"][:, :, w_ - int(rng.integers(w_)):] = 1

    def forward(w, x):
        image = x["x"].sum() * 0
        seen = 1 - x["mask"].double() if "mask" in x else torch.ones(b, h, w_, dtype=torch.float64)
        halves = []
        for axis in (1, 2):
            at = seen.cumsum(axis)
            if config["normalize"]:
                last = at.select(axis, at.shape[axis] - 1).unsqueeze(axis)
                at = at / (last + 1e-6) * config.get("scale", 2 * math.pi)
            j = torch.arange(feats, dtype=torch.float64)
            angle = at[..., None] / config["temperature"] ** (2 * torch.floor(j / 2) / feats)
            halves.append(torch.where(j % 2 == 0, torch.sin(angle), torch.cos(angle)))
        pos = torch.cat(halves, -1).to(image.dtype)
        return {"pos": pos.permute(0, 3, 1, 2) + image, "sequence": pos.flatten(1, 2) + image}
    return config, {}, inputs, forward


def learned_positions_case(rng):
    (b, h, w_), feats = image_size(rng), int(rng.choice([1, 3, 8]))
    weights = {"row_embed.weight": normal(rng, 10, feats), "col_embed.weight": normal(rng, 10, feats)}

    def forward(w, x):
        col = w["col_embed.weight"][:w_][None].expand(h, w_, feats)
        row = w["row_embed.weight"][:h][:, None].expand(h, w_, feats)
        pos = torch.cat([col, row], -1)[None].expand(b, -1, -1, -1) + x["x"].sum() * 0
        return {"pos": pos.permute(0, 3, 1, 2), "sequence": pos.flatten(1, 2)}
    return {"num_pos_feats": feats, "max_positions": 10}, weights, {"x": normal(rng, b, 2, h, w_)}, forward


LAYERS = {"sine-position-encoding": sine_positions_case, "learned-position-encoding": learned_positions_case,
          "detr-multi-head-attention": detr_case, "detr-ffn": detr_ffn_case,
          "key-content-attention": key_content_case, "stand-alone-self-attention": stand_alone_case,
          "local-self-attention": local_case, "non-local": non_local_case,
          "generalized-attention": generalized_case}
