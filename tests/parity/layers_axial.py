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
    dim, dim_heads = size(rng), size(rng)
    inputs = {"x": normal(rng, 2, size(rng), dim)}
    if rng.integers(2):
        inputs["kv"] = normal(rng, 2, size(rng), dim)
    config = {"dim": dim, "heads": heads, "dim_heads": dim_heads}
    if rng.integers(3) == 0:
        weights = {name + ".weight": linear(rng, heads * dim_heads, dim) for name in ("query", "key", "value")}
        return config | {"project": False}, weights, inputs, lambda w, x: plain_attention(w, x, heads)

    def forward(w, x):
        out, maps = self_attention(w, x["x"], x.get("kv", x["x"]), heads)
        return {"out": out, "weights": maps}
    return config, self_attention_weights(rng, dim, heads * dim_heads), inputs, forward


def plain_attention(w, x, heads):
    """The heads side by side are the result."""
    q, k, v = (split(a @ w[name + ".weight"].T, heads) for a, name in
               ((x["x"], "query"), (x.get("kv", x["x"]), "key"), (x.get("kv", x["x"]), "value")))
    maps = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
    return {"out": merge(maps @ v), "weights": maps}


def placed(maps, lead, axis):
    """Maps [lines,h,n,n] along `axis` of an array [b,axes...], whose other axes are `lead`, as [b,h,axes...,n]."""
    return maps.unflatten(0, tuple(lead)).movedim(-3, 1).movedim(-2, 1 + axis)


def axial_case(rng):
    heads, axes = int(rng.choice([1, 2, 3])), int(rng.integers(1, 4))
    dim_heads = int(rng.choice([0, 1, 3]))
    dim = int(rng.choice([1, 2, 5, 8])) * (1 if dim_heads else heads)
    index = int(rng.choice([i for i in range(-axes - 1, axes + 2) if i]))
    summed = bool(rng.integers(2))
    weights = {}
    for i in range(axes):
        weights.update(self_attention_weights(rng, dim, heads * dim_heads or dim, f"axial_attentions.{i}.fn."))
    shape = [int(rng.choice([1, 2, 3, 5, 6])) for _ in range(axes + 1)]
    shape.insert(index if index > 0 else index + axes + 2, dim)

    def along(w, x, i):  # channels last
        lines = x.movedim(i + 1, -2)
        out, maps = self_attention(w, lines.flatten(0, -3), lines.flatten(0, -3), heads, f"axial_attentions.{i}.fn.")
        return out.reshape(lines.shape).movedim(-2, i + 1), placed(maps, lines.shape[:-2], i + 1)

    def forward(w, x):
        y, total, maps = x["x"].movedim(index, -1), 0, []
        for i in range(axes):
            out, found = along(w, y, i)
            total, maps = total + out, maps + [found]
            y = y if summed else out
        return {"out": (total if summed else y).movedim(-1, index), "weights": torch.cat(maps, -1)}
    config = {"dim": dim, "num_dimensions": axes, "heads": heads, "dim_index": index, "sum_axial_out": summed}
    if dim_heads:
        config["dim_heads"] = dim_heads
    return config, weights, {"x": normal(rng, *shape)}, forward


def resized(param, axis, n, how):
    """A position table of another length along `axis`."""
    if param.shape[axis] == n:
        return param
    if how == "slice":
        return param.narrow(axis, 0, n)
    lines = param.movedim(axis, -1)
    if how == "linear":
        new = F.interpolate(lines.reshape(-1, 1, lines.shape[-1]), size=n, mode="linear")
    else:  # two equal rows of pixels interpolate to the same rows
        flat = lines.reshape(-1, 1, 1, lines.shape[-1])
        new = F.interpolate(flat, size=(1, n), mode="bicubic", align_corners=False, antialias=False)
    return new.reshape(*lines.shape[:-1], n).movedim(-1, axis)


def positions_weights(rng, dim, shape, channel, prefix=""):
    axes = [i for i in range(1, len(shape) + 2) if i != channel]
    return {f"{prefix}param_{i}": normal(rng, *(dim if j == channel else n if j == axis else 1
                                                for j in range(len(shape) + 2)))
            for i, (axis, n) in enumerate(zip(axes, shape))}


def add_positions(w, x, channel, how, prefix=""):
    axes = [i for i in range(1, x.dim()) if i != channel]
    for i, axis in enumerate(axes):
        x = x + resized(w[f"{prefix}param_{i}"], axis, x.shape[axis], how)
    return x


def positions_case(rng):
    axes, dim = int(rng.integers(1, 4)), size(rng)
    channel = int(rng.integers(1, axes + 2))
    how = str(rng.choice(["none", "slice", "linear", "cubic"]))
    trained = [int(rng.integers(1, 9)) for _ in range(axes)]
    used = {"none": lambda n: n, "slice": lambda n: int(rng.integers(1, n + 1))}.get(how, lambda n: size(rng))
    shape = [used(n) for n in trained]
    shape.insert(channel - 1, dim)
    config = {"dim": dim, "shape": trained, "emb_dim_index": channel, "resize": how}
    return (config, positions_weights(rng, dim, trained, channel), {"x": normal(rng, 2, *shape)},
            lambda w, x: {"out": add_positions(w, x["x"], channel, how)})


def channel_norm(x, g, b, eps=1e-5):
    deviation = x.var(1, unbiased=False, keepdim=True).sqrt()
    return (x - x.mean(1, keepdim=True)) / (deviation + eps) * g + b


def image_weights(rng, dim, depth, heads, hidden, reversible):
    weights = {}
    for i in range(2 * depth):
        for j, half in enumerate("fg"):
            name = f"layers.blocks.{i}.{half}.net." if reversible else f"layers.blocks.{i}.{j}."
            if i % 2 == 0:
                weights.update({name + "fn.norm.weight": normal(rng, dim), name + "fn.norm.bias": normal(rng, dim)})
                weights.update(self_attention_weights(rng, dim, hidden, name + "fn.fn."))
            else:
                wide = 4 * dim
                weights.update({
                    name + "0.g": normal(rng, 1, dim, 1, 1), name + "0.b": normal(rng, 1, dim, 1, 1),
                    name + "1.weight": normal(rng, wide, dim, 3, 3) / (3 * dim ** 0.5),
                    name + "1.bias": normal(rng, wide),
                    name + "3.weight": normal(rng, dim, wide, 3, 3) / (3 * wide ** 0.5),
                    name + "3.bias": normal(rng, dim)})
    return {name: array.astype("float32") for name, array in weights.items()}


def pairs(maps):
    """Columns' and rows' maps in turn: both of a block along the last axis."""
    return torch.stack([torch.cat(maps[i:i + 2], -1) for i in range(0, len(maps), 2)])


def branch(w, x, name, half, heads, maps):
    """Attention along columns (half 0) or rows (half 1) with a norm, or two convolutions; maps gets the weights."""
    if name + "0.g" not in w:
        lines = x.movedim(1, -1).movedim(1 + half, -2)
        normed = F.layer_norm(lines, x.shape[1:2], w[name + "fn.norm.weight"], w[name + "fn.norm.bias"])
        out, found = self_attention(w, normed.flatten(0, 1), normed.flatten(0, 1), heads, name + "fn.fn.")
        maps.append(placed(found, lines.shape[:2], 1 + half))
        return out.reshape(lines.shape).movedim(-2, 1 + half).movedim(-1, 1)
    y = F.conv2d(channel_norm(x, w[name + "0.g"], w[name + "0.b"]), w[name + "1.weight"], w[name + "1.bias"], padding=1)
    return F.conv2d(F.leaky_relu(y), w[name + "3.weight"], w[name + "3.bias"], padding=1)


def stack(w, x, depth, heads, reversible, maps, prefix="layers."):
    if not reversible:
        for i in range(2 * depth):
            for half in range(2):
                x = x + branch(w, x, f"{prefix}blocks.{i}.{half}.", half, heads, maps)
        return x
    x1 = x2 = x
    for i in range(2 * depth):
        x1 = x1 + branch(w, x2, f"{prefix}blocks.{i}.f.net.", 0, heads, maps)
        x2 = x2 + branch(w, x1, f"{prefix}blocks.{i}.g.net.", 1, heads, maps)
    return (x1 + x2) / 2


def image_case(rng, positions=None, dim_heads=True):
    heads, depth, reversible = int(rng.choice([1, 2])), int(rng.integers(1, 4)), bool(rng.integers(2))
    dim = heads * int(rng.choice([2, 3, 4]))
    head = int(rng.choice([2, 3])) if dim_heads else dim // heads
    height, width = int(rng.choice([1, 2, 3, 5, 8])), int(rng.choice([1, 2, 4, 7]))
    config = {"dim": dim, "depth": depth, "heads": heads, "dim_heads": head, "reversible": reversible}
    weights = image_weights(rng, dim, depth, heads, heads * head, reversible)
    if positions or rng.integers(2):
        config["axial_pos_emb_shape"] = [height, width]
        weights.update(positions_weights(rng, dim, (height, width), 1, "pos_emb."))

    def forward(w, x):
        x, maps = x["x"], []
        if "axial_pos_emb_shape" in config:
            x = add_positions(w, x, 1, "none", "pos_emb.")
        return {"out": stack(w, x, depth, heads, reversible, maps), "weights": pairs(maps)}
    return config, weights, {"x": normal(rng, 2, dim, height, width)}, forward


def sequence_case(rng):
    config, weights, inputs, _ = image_case(rng)
    config.pop("axial_pos_emb_shape", None)
    weights = {name[len("layers."):]: array for name, array in weights.items() if name.startswith("layers.")}

    def forward(w, x):
        maps = []
        return {"out": stack(w, x["x"], config["depth"], config["heads"], config["reversible"], maps, ""),
                "weights": pairs(maps)}
    return config, weights, inputs, forward


def block_case(rng):
    """One reversible block, whose parameters are those of a stack's block."""
    heads, attends, reversible = int(rng.choice([1, 2])), bool(rng.integers(2)), bool(rng.integers(2))
    dim, head = heads * int(rng.choice([2, 3, 4])), int(rng.choice([2, 3]))
    config = {"dim": dim, "functions": "attention" if attends else "convolution", "heads": heads, "dim_heads": head,
              "reversible": reversible}
    prefix, net = f"layers.blocks.{int(not attends)}.", ".net." if reversible else "."
    weights = {name[len(prefix):].replace(".net.", net, 1): array
               for name, array in image_weights(rng, dim, 1, heads, heads * head, True).items() if name.startswith(prefix)}

    def forward(w, x):
        x1, x2 = x["x"].chunk(2, 1)
        x1 = x1 + branch(w, x2, "f" + net, 0, heads, [])
        return {"out": torch.cat((x1, x2 + branch(w, x1, "g" + net, 1, heads, [])), 1)}
    return config, weights, {"x": normal(rng, 2, 2 * dim, int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 2, 4])))}, forward


def pre_norm_case(rng):
    heads, dim, dim_heads = int(rng.choice([1, 2, 4])), 1 + size(rng), size(rng)
    weights = {"norm.weight": normal(rng, dim), "norm.bias": normal(rng, dim),
               **self_attention_weights(rng, dim, heads * dim_heads, "fn.")}

    def forward(w, x):
        normed = F.layer_norm(x["x"], (dim,), w["norm.weight"], w["norm.bias"])
        out, maps = self_attention(w, normed, normed, heads, "fn.")
        return {"out": out, "weights": maps}
    return {"dim": dim, "heads": heads, "dim_heads": dim_heads}, weights, {"x": normal(rng, 2, size(rng), dim)}, forward


def channel_norm_case(rng):
    dim, eps = 1 + size(rng), float(rng.choice([1e-5, 0.1]))
    weights = {"g": normal(rng, 1, dim, 1, 1), "b": normal(rng, 1, dim, 1, 1)}
    return ({"dim": dim, "eps": eps}, weights, {"x": normal(rng, 2, dim, 3, int(rng.choice([1, 2, 5])))},
            lambda w, x: {"out": channel_norm(x["x"], w["g"], w["b"], eps)})


def block_weights(rng, dim, name):
    weights = {}
    for layer in ("attention.W_q", "attention.W_k", "attention.W_v", "attention.W_o", "dense1", "dense2"):
        weights.update({f"{name}{layer}.weight": linear(rng, dim, dim), f"{name}{layer}.bias": normal(rng, dim)})
    for norm in ("ln1", "ln2"):
        weights.update({f"{name}{norm}.weight": normal(rng, dim), f"{name}{norm}.bias": normal(rng, dim)})
    return weights


def block(w, x, name, heads, axis, masked, maps):
    """x [n,y,x,d]; maps gets [n,h,y,x,y+x], zeros for the axis that is not attended along."""
    def dense(layer, t):
        return F.linear(t, w[f"{name}{layer}.weight"], w[f"{name}{layer}.bias"])

    def norm(layer, t):
        return F.layer_norm(t, t.shape[-1:], w[f"{name}{layer}.weight"], w[f"{name}{layer}.bias"])
    h = norm("ln1", x).movedim(axis, -2)
    q, k, v = (split(dense("attention." + part, h).flatten(0, -3), heads) for part in ("W_q", "W_k", "W_v"))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if masked:
        mask = torch.ones(scores.shape[-2:], dtype=scores.dtype).tril()
        scores = scores * mask - 1e9 * (1 - mask)
    found = torch.softmax(scores, -1)
    out = dense("attention.W_o", merge(found @ v))
    found = placed(found, h.shape[:2], axis)
    other = torch.zeros(*found.shape[:-1], x.shape[3 - axis], dtype=x.dtype)
    maps.append(torch.cat((found, other) if axis == 1 else (other, found), -1))
    x = x + out.reshape(h.shape).movedim(-2, axis)
    h = dense("dense1", norm("ln2", x))
    return x + dense("dense2", h * torch.sigmoid(1.702 * h))


def shifted(x, axis):
    return torch.cat((torch.zeros_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)), axis)


def transformer_case(rng):
    heads = int(rng.choice([1, 2]))
    dim, levels = heads * int(rng.choice([2, 4])), int(rng.choice([2, 5, 256]))
    height, width = int(rng.choice([1, 2, 4, 5])), int(rng.choice([1, 3, 5]))
    channels, frames = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    count, batch = channels * frames, 2
    stacks = {name: int(rng.integers(0, 4)) for name in ("exterior", "outer", "inner")}
    config = {"height": height, "width": width, "channels": channels, "frames": frames, "levels": levels, "dim": dim,
              "heads": heads, **{f"{name}_blocks": n for name, n in stacks.items()}}
    weights = {"exterior.conv.weight": normal(rng, dim, 2 * count, 3, 3) / 3, "exterior.conv.bias": normal(rng, dim),
               "embedding.weight": normal(rng, levels, dim), "norm.weight": normal(rng, dim),
               "norm.bias": normal(rng, dim), "head.weight": linear(rng, levels, dim), "head.bias": normal(rng, levels)}
    for name in ("exterior.", "positions."):
        weights.update({name + "rows": normal(rng, height, 1, dim), name + "columns": normal(rng, width, dim)})
    for name, n in stacks.items():
        for i in range(n):
            weights.update(block_weights(rng, dim, f"{name}.blocks.{i}." if name == "exterior" else f"{name}.{i}."))
    shape = (batch, frames, channels, height, width) if frames > 1 else (batch, channels, height, width)
    inputs = {"image": rng.integers(0, levels, shape).astype("float32")}
    if rng.integers(2):
        inputs["slices"] = rng.integers(0, count, batch).astype("float32")

    def slice_logits(w, image, active, blocks):  # image [s,y,x] of one example
        seen = image / (levels - 1) * (torch.arange(count) < active)[:, None, None]
        mark = (torch.arange(count) == active).to(image.dtype)[:, None, None].expand_as(image)
        h = F.conv2d(torch.cat((seen, mark))[None], w["exterior.conv.weight"], w["exterior.conv.bias"], padding=1)
        maps = []
        h = h.movedim(1, -1) + w["exterior.rows"] + w["exterior.columns"]
        for i in range(stacks["exterior"]):
            h = block(w, h, f"exterior.blocks.{i}.", heads, 1 if i % 2 else 2, False, maps)
        base = h + w["positions.rows"] + w["positions.columns"]
        h = w["embedding.weight"][image[active].long()][None]
        outer = h + base
        for i in range(stacks["outer"]):
            outer = block(w, outer, f"outer.{i}.", heads, 1 if i % 2 else 2, bool(i % 2), maps)
        inner = shifted(h, 2) + shifted(outer, 1) + base
        for i in range(stacks["inner"]):
            inner = block(w, inner, f"inner.{i}.", heads, 2, True, maps)
        blocks.append(torch.cat(maps) if maps else None)
        inner = F.layer_norm(inner, (dim,), w["norm.weight"], w["norm.bias"])
        return F.linear(inner, w["head.weight"], w["head.bias"])[0]

    def forward(w, x):
        images, blocks = x["image"].flatten(1, -3), []
        if "slices" in x:
            logits = torch.stack([slice_logits(w, images[b], int(x["slices"][b]), blocks) for b in range(batch)])
        else:
            logits = torch.stack([torch.stack([slice_logits(w, image, s, blocks) for s in range(count)])
                                  for image in images]).reshape(*shape, levels)
        return {"logits": logits} | ({"weights": torch.stack(blocks, 1)} if blocks[0] is not None else {})
    return config, weights, inputs, forward


LAYERS = {"reversible-block": block_case, "reversible-sequence": sequence_case, "pre-norm": pre_norm_case,
          "channel-layer-norm": channel_norm_case, "self-attention": self_attention_case, "axial-attention": axial_case,
          "axial-positional-embedding": positions_case, "axial-image-transformer": image_case,
          "axial-transformer": transformer_case}
