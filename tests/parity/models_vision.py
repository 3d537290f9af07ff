# SPDX-License-Identifier: MIT
"""Cases of whole networks over images, with small settings."""
import math

import torch
from torch.nn import functional as F

from draw import linear, merge, normal, split
from layers_axial import image_case
from layers_spatial import (axis_distances, batch_norm, batch_norm_weights, conv1, non_local, non_local_weights,
                            positions, window_taps)


def conv_weights(rng, name, out, ins, k, bias=False):
    weights = {name + ".weight": linear(rng, out, ins * k * k).reshape(out, ins, k, k)}
    return weights | ({name + ".bias": normal(rng, out) / 3} if bias else {})


def norm_weights(rng, name, d):
    return {name + ".weight": 1 + normal(rng, d) / 5, name + ".bias": normal(rng, d) / 5}


def linear_weights(rng, name, out, ins, bias=True):
    weights = {name + ".weight": linear(rng, out, ins)}
    return weights | ({name + ".bias": normal(rng, out) / 3} if bias else {})


def affine(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


# ------------------------------------------------------------------------------------------------------ ViT

ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
               "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


def cubic(n, to):
    """The matrix [to,n] of bicubic interpolation, Keys' kernel with a = -3/4, edges repeated."""
    matrix = torch.zeros(to, n, dtype=torch.float64)
    for i in range(to):
        at = (i + 0.5) * n / to - 0.5
        for j in range(math.floor(at) - 1, math.floor(at) + 3):
            d, a = abs(at - j), -0.75
            weight = ((a + 2) * d - (a + 3)) * d * d + 1 if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            matrix[i, min(max(j, 0), n - 1)] += weight if d < 2 else 0
    return matrix


def draw_sides(rng, grids):
    """Sides of an image and of a patch, and how many patches there are."""
    patch, grid = (int(rng.choice([1, 2, 4])),) * 2, (int(rng.choice(grids)),) * 2
    sides = (grid[0] * patch[0] + int(rng.integers(patch[0])),) * 2
    if rng.integers(2):  # sides that differ
        patch, grid = (tuple(int(n) for n in rng.integers(1, 5, 2)) for _ in range(2))
        sides = tuple(n * p + int(rng.integers(p)) for n, p in zip(grid, patch))
    return sides, patch, grid


def one_or_both(sides):
    return sides[0] if sides[0] == sides[1] else list(sides)


def patch_weights(rng, d, ins, patch):
    return {"patch_embedding.conv.weight": linear(rng, d, ins * patch[0] * patch[1]).reshape(d, ins, *patch),
            "patch_embedding.conv.bias": normal(rng, d) / 3}


def vit_case(rng):
    heads, (sides, patch, grid) = int(rng.choice([1, 2, 3])), draw_sides(rng, [1, 2, 3])
    d, mlp, ins = 4 * heads, int(rng.choice([5, 16])), int(rng.choice([1, 3]))
    c = {"img_size": one_or_both(sides), "patch_size": one_or_both(patch), "num_hiddens": d,
         "mlp_num_hiddens": mlp, "num_heads": heads, "num_blks": int(rng.choice([1, 2, 3])),
         "num_classes": int(rng.choice([2, 5])), "in_channels": ins, "use_bias": bool(rng.integers(2)),
         "layer_norm_eps": float(rng.choice([1e-5, 1e-6])), "hidden_act": str(rng.choice(list(ACTIVATIONS))),
         "interpolate_positions": bool(rng.integers(2))}
    rows, cols = (int(n) for n in rng.integers(1, 6, 2)) if c["interpolate_positions"] else grid
    weights = {"cls_token": normal(rng, 1, 1, d), "pos_embedding": normal(rng, 1, 1 + grid[0] * grid[1], d),
               "patch_embedding.conv.weight": linear(rng, d, ins * patch[0] * patch[1]).reshape(d, ins, *patch),
               "patch_embedding.conv.bias": normal(rng, d), **norm_weights(rng, "head.0", d),
               **linear_weights(rng, "head.1", c["num_classes"], d)}
    for i in range(c["num_blks"]):
        name = f"blks.{i}."
        for part in "qkvo":
            weights |= linear_weights(rng, f"{name}attention.W_{part}", d, d, c["use_bias"])
        weights |= norm_weights(rng, name + "ln1", d) | norm_weights(rng, name + "ln2", d)
        weights |= linear_weights(rng, name + "mlp.dense1", mlp, d) | linear_weights(rng, name + "mlp.dense2", d, mlp)

    def norm(w, name, x):
        return F.layer_norm(x, (d,), w[name + ".weight"], w[name + ".bias"], c["layer_norm_eps"])

    def forward(w, x):
        y = F.conv2d(x["x"], w["patch_embedding.conv.weight"], w["patch_embedding.conv.bias"], patch)
        y = y.flatten(2).mT
        places = w["pos_embedding"][0, 1:].unflatten(0, grid)
        if (rows, cols) != grid:
            down, across = cubic(grid[0], rows).to(places.dtype), cubic(grid[1], cols).to(places.dtype)
            places = torch.einsum("yi,xj,ijc->yxc", down, across, places)
        y = torch.cat((w["cls_token"] + w["pos_embedding"][:, :1] + 0 * y[:, :1], y + places.flatten(0, 1)), 1)
        maps = []
        for i in range(c["num_blks"]):
            name = f"blks.{i}."
            q, k, v = (split(affine(w, f"{name}attention.W_{part}", norm(w, name + "ln1", y)), heads) for part in "qkv")
            maps.append(torch.softmax(q @ k.mT / math.sqrt(d // heads), -1))
            y = y + affine(w, name + "attention.W_o", merge(maps[-1] @ v))
            hidden = ACTIVATIONS[c["hidden_act"]](affine(w, name + "mlp.dense1", norm(w, name + "ln2", y)))
            y = y + affine(w, name + "mlp.dense2", hidden)
        return {"logits": affine(w, "head.1", norm(w, "head.0", y[:, 0])), "weights": torch.stack(maps)}
    size = sides if (rows, cols) == grid else (rows * patch[0], cols * patch[1])
    return c, weights, {"x": normal(rng, 2, ins, *size)}, forward


# ------------------------------------------------------------------------------------------- axial classifier

def axial_classifier_case(rng):
    heads, (sides, patch, grid) = int(rng.choice([1, 2, 3])), draw_sides(rng, [1, 2, 5])
    d, mlp, ins = 4 * heads, int(rng.choice([5, 16])), int(rng.choice([1, 3]))
    c = {"img_size": one_or_both(sides), "patch_size": one_or_both(patch), "num_hiddens": d, "mlp_num_hiddens": mlp, "num_heads": heads,
         "num_blks": int(rng.choice([1, 2])), "num_classes": 3, "in_channels": ins}
    weights = {"positions.param_0": normal(rng, 1, grid[0], 1, d), "positions.param_1": normal(rng, 1, 1, grid[1], d),
               **patch_weights(rng, d, ins, patch), **norm_weights(rng, "head.0", d),
               **linear_weights(rng, "head.1", 3, d)}
    parts = [f"blks.{i}.{axis}." for i in range(c["num_blks"]) for axis in ("rows", "columns")]
    for name in parts:
        for part in "qkvo":
            weights |= linear_weights(rng, f"{name}attention.W_{part}", d, d, False)
        weights |= norm_weights(rng, name + "ln1", d) | norm_weights(rng, name + "ln2", d)
        weights |= linear_weights(rng, name + "mlp.dense1", mlp, d) | linear_weights(rng, name + "mlp.dense2", d, mlp)

    def norm(w, name, x):
        return F.layer_norm(x, (d,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def forward(w, x):
        y = F.conv2d(x["x"], w["patch_embedding.conv.weight"], w["patch_embedding.conv.bias"], patch).movedim(1, 3)
        y = y + w["positions.param_0"] + w["positions.param_1"]
        maps = {"rows": [], "columns": []}
        for name in parts:
            axis = "columns" if name.endswith("columns.") else "rows"
            y = y.transpose(1, 2) if axis == "columns" else y
            z = y.flatten(0, 1)
            q, k, v = (split(affine(w, f"{name}attention.W_{part}", norm(w, name + "ln1", z)), heads) for part in "qkv")
            maps[axis].append(torch.softmax(q @ k.mT / math.sqrt(d // heads), -1))
            z = z + affine(w, name + "attention.W_o", merge(maps[axis][-1] @ v))
            z = z + affine(w, name + "mlp.dense2", F.gelu(affine(w, name + "mlp.dense1", norm(w, name + "ln2", z))))
            y = z.unflatten(0, y.shape[:2])
            y = y.transpose(1, 2) if axis == "columns" else y
        logits = affine(w, "head.1", norm(w, "head.0", y.flatten(1, 2).mean(1)))
        return {"logits": logits, "rows": torch.stack(maps["rows"]), "columns": torch.stack(maps["columns"])}
    return c, weights, {"x": normal(rng, 2, ins, *sides)}, forward


# ------------------------------------------------------------------------------------- axial image classifier

def axial_image_classifier_case(rng):
    """The seed's stack of layers_axial.py, which is given the patches."""
    stack, weights, inputs, run = image_case(rng, positions=True, dim_heads=False)
    _, dim, *grid = inputs["x"].shape
    patch, ins = tuple(int(n) for n in rng.integers(1, 4, 2)), int(rng.choice([1, 3]))
    sides = tuple(n * p + int(rng.integers(p)) for n, p in zip(grid, patch))
    c = {key: stack[key] for key in ("dim", "depth", "heads", "reversible")}
    c |= {"img_size": one_or_both(sides), "patch_size": one_or_both(patch), "in_channels": ins, "num_classes": 3}
    weights |= patch_weights(rng, dim, ins, patch) | linear_weights(rng, "head", 3, dim)

    def forward(w, x):
        y = F.conv2d(x["x"], w["patch_embedding.conv.weight"], w["patch_embedding.conv.bias"], patch)
        found = run(w, {"x": y})
        return {"logits": affine(w, "head", found["out"].mean((2, 3))), "weights": found["weights"]}
    return c, weights, {"x": normal(rng, 2, ins, *sides)}, forward


# ------------------------------------------------------------------------------------------- non-local network

def non_local_net_case(rng):
    c = {"img_size": int(rng.choice([16, 19])), "in_channels": int(rng.choice([1, 3])), "num_classes": 3,
         "mode": str(rng.choice(["embedded-gaussian", "gaussian", "dot-product", "concatenation"])),
         "sub_sample": bool(rng.integers(2)), "bn_layer": bool(rng.integers(2)), "dropout": 0.0}
    train, ins, weights = bool(rng.integers(2)), c["in_channels"], {}
    for i, out in enumerate((32, 64, 128)):
        weights |= conv_weights(rng, f"conv_{i + 1}.0", out, ins, 3, True) | batch_norm_weights(rng, f"conv_{i + 1}.1", out)
        ins = out
    blocks = [c | {"dimension": 2, "in_channels": n} for n in (32, 64)]
    for i, block in enumerate(blocks):
        # Scores of a size at which softmax has not yet chosen one key: else gradients of what it compares vanish.
        weights |= {name: array / 4 if "theta" in name or "phi" in name else array
                    for name, array in non_local_weights(rng, block, f"nl_{i + 1}.").items()}
    weights |= linear_weights(rng, "fc.0", 256, 128 * (c["img_size"] // 8) ** 2) | linear_weights(rng, "fc.3", 3, 256)

    def forward(w, x):
        y, maps = x["x"], {}
        for i in range(3):
            y = F.conv2d(y, w[f"conv_{i + 1}.0.weight"], w[f"conv_{i + 1}.0.bias"], padding=1)
            y = F.max_pool2d(torch.relu(batch_norm(w, f"conv_{i + 1}.1", y, train)), 2)
            if i < 2:
                y, maps[f"nl_map_{i + 1}"] = non_local(w, blocks[i], y, f"nl_{i + 1}.", train)
        return {"logits": affine(w, "fc.3", torch.relu(affine(w, "fc.0", y.flatten(1)))), **maps}
    return c | {"train": train}, weights, {"x": normal(rng, 2, c["in_channels"], c["img_size"], c["img_size"])}, forward


# ------------------------------------------------------------------- ResNets of stand-alone self-attention

def window_attention(w, name, x, heads, k, padding):
    """Scores without a scale; relative rows for the first half of all channels, columns for the second."""
    h, width = x.shape[2:]
    taps = [window_taps(n, 1, k, padding == "shift") for n in (h, width)]
    inside = [(t >= 0) & (t < n) for t, n in zip(taps, (h, width))]
    both = inside[0][:, None, :, None] & inside[1][None, :, None, :]
    blocks = x[:, :, taps[0].clamp(0, h - 1)][..., taps[1].clamp(0, width - 1)].movedim(4, 3) * both
    q, keys, values = (conv1(w, f"{name}.{part}", of).unflatten(1, (heads, -1))
                       for part, of in (("query", x), ("key", blocks), ("value", blocks)))
    rows = [axis_distances(n, 1, t, w[f"{name}.{axis}_embedding.weight"], k - 1 if padding == "shift" else k // 2)
            for n, t, axis in zip((h, width), taps, ("row", "col"))]
    r = positions(w, None, *rows).movedim(-1, 0).unflatten(0, (heads, -1))
    scores = torch.einsum("bhcyx,bhcyxij->bhyxij", q, keys) + torch.einsum("bhcyx,hcyxij->bhyxij", q, r)
    scores = scores.masked_fill(~both, -math.inf) if padding == "mask" else scores
    maps = torch.softmax(scores.flatten(-2), -1).unflatten(-1, (k, k))
    return torch.einsum("bhyxij,bhcyxij->bhcyx", maps, values).flatten(1, 2)


def stem_weights(rng, ins, width):
    weights = {"init.0.emb_a": normal(rng, width, 4), "init.0.emb_b": normal(rng, width, 4),
               "init.0.emb_mix": normal(rng, 4, width)}
    for part in "query_conv", "key_conv", *(f"value_conv.{m}" for m in range(4)):
        weights |= conv_weights(rng, "init.0." + part, width, ins, 1)
    return weights


def attention_stem(w, x):
    """[b,c,y,x]: each block of 4 x 4 for itself; a pixel's value is by a matrix mixed for its place in the block."""
    h, width = (n // 4 for n in x.shape[2:])
    p = torch.softmax(torch.einsum("mc,ca->ma", w["init.0.emb_mix"], w["init.0.emb_a"])[:, :, None]
                      + torch.einsum("mc,cb->mb", w["init.0.emb_mix"], w["init.0.emb_b"])[:, None], 0)
    out = torch.zeros(x.shape[0], w["init.0.emb_a"].shape[0], 4 * h, 4 * width, dtype=x.dtype)
    for at in ((i, j) for i in range(h) for j in range(width)):
        y0, x0 = 4 * at[0], 4 * at[1]
        block = x[:, :, y0:y0 + 4, x0:x0 + 4]
        q, k = (conv1(w, f"init.0.{part}_conv", block) for part in ("query", "key"))
        v = sum(p[m] * conv1(w, f"init.0.value_conv.{m}", block) for m in range(4))
        maps = torch.softmax(torch.einsum("bcij,bckl->bijkl", q, k).flatten(-2), -1).unflatten(-1, (4, 4))
        out[:, :, y0:y0 + 4, x0:x0 + 4] = torch.einsum("bijkl,bckl->bcij", maps, v)
    return out


def sasa_resnet_case(rng):
    heads, k, width = 2, 3, 4
    c = {"depth": "26", "stem": str(rng.choice(["conv", "small", "attention"])), "in_channels": int(rng.choice([1, 3])), "width": width,
         "kernel_size": k, "num_heads": heads, "padding": str(rng.choice(["zero", "mask"])), "num_classes": 3}
    train, stem, ins = bool(rng.integers(2)), 7 if c["stem"] == "conv" else 3, width
    attends = c["stem"] == "attention"
    weights = stem_weights(rng, c["in_channels"], width) if attends else \
        conv_weights(rng, "init.0", width, c["in_channels"], stem)
    weights |= batch_norm_weights(rng, "init.1", width)
    blocks = []
    for stage, n in enumerate((1, 2, 4, 1)):
        for i in range(n):
            name, inner = f"layer{stage + 1}.{i}", width << stage
            stride = 2 if stage and not i else 1
            blocks.append((name, stride, bool(stride > 1 or ins != 4 * inner)))
            weights |= conv_weights(rng, name + ".conv1.0", inner, ins, 1) | batch_norm_weights(rng, name + ".conv1.1", inner)
            for part in "query", "key", "value":
                weights |= conv_weights(rng, f"{name}.conv2.0.{part}", inner, inner, 1)
            weights |= {f"{name}.conv2.0.{axis}_embedding.weight": normal(rng, k, inner // 2) / 3 for axis in ("row", "col")}
            weights |= batch_norm_weights(rng, name + ".conv2.1", inner)
            weights |= conv_weights(rng, name + ".conv3.0", 4 * inner, inner, 1) | batch_norm_weights(rng, name + ".conv3.1", 4 * inner)
            if blocks[-1][2]:
                weights |= conv_weights(rng, name + ".shortcut.0", 4 * inner, ins, 1)
                weights |= batch_norm_weights(rng, name + ".shortcut.1", 4 * inner)
            ins = 4 * inner
    weights |= linear_weights(rng, "dense", 3, ins)

    def forward(w, x):
        if attends:
            y = F.max_pool2d(batch_norm(w, "init.1", attention_stem(w, x["x"]), train), 4)
        else:
            y = F.conv2d(x["x"], w["init.0.weight"], stride=2 if stem == 7 else 1, padding=stem // 2)
            y = torch.relu(batch_norm(w, "init.1", y, train))
            y = F.max_pool2d(y, 3, 2, 1) if stem == 7 else y
        for name, stride, has_shortcut in blocks:
            z = torch.relu(batch_norm(w, name + ".conv1.1", conv1(w, name + ".conv1.0", y), train))
            z = window_attention(w, name + ".conv2.0", z, heads, k, c["padding"])
            z = conv1(w, name + ".conv3.0", torch.relu(batch_norm(w, name + ".conv2.1", z, train)))
            z = batch_norm(w, name + ".conv3.1", z, train)
            z = F.avg_pool2d(z, stride) if stride > 1 else z
            if has_shortcut:
                y = batch_norm(w, name + ".shortcut.1",
                               F.conv2d(y, w[name + ".shortcut.0.weight"], stride=stride), train)
            y = torch.relu(z + y)
        return {"logits": affine(w, "dense", y.mean((2, 3)))}
    if train or rng.integers(2):  # norms over a batch behind each other: float32 loses the first ones' gradients
        c["dtype"] = "f64"
    side = 34 if attends else 32 if stem == 7 else 16  # 34: two rows and columns are in no block
    return c | {"train": train}, weights, {"x": normal(rng, 3, c["in_channels"], side, side)}, forward



# -------------------------------------------------------------------- position-sensitive axial attention

def axial_weights(rng, name, d, groups, length):
    each = d // groups
    weights = {name + ".qkv_transform.weight": linear(rng, 2 * d, d)[..., None],
               name + ".relative": normal(rng, 2 * each, 2 * length - 1) / 2,
               name + ".flatten_index": normal(rng, length * length)}  # not used
    for norm, n in (("bn_qkv", 2 * d), ("bn_similarity", 3 * groups), ("bn_output", 2 * d)):
        weights |= batch_norm_weights(rng, f"{name}.{norm}", n)
    return weights


def position_sensitive(w, name, x, groups, train):
    """x [n,c,l] along its last axis; tables are read at key - query for keys and the other way round for the rest."""
    n, d, length = x.shape
    each = d // groups
    qkv = batch_norm(w, name + ".bn_qkv", conv1(w, name + ".qkv_transform", x), train)
    q, k, v = qkv.unflatten(1, (groups, 2 * each)).split([each // 2, each // 2, each], 2)
    at = torch.arange(length)
    table = w[name + ".relative"][:, at[:, None] - at + length - 1]  # [c,i,j]
    rq, rk, rv = table.split([each // 2, each // 2, each], 0)
    parts = [torch.einsum("ngci,ngcj->ngij", q, k), torch.einsum("ngci,cij->ngij", q, rq),
             torch.einsum("ngcj,cji->ngij", k, rk)]
    scores = batch_norm(w, name + ".bn_similarity", torch.cat(parts, 1), train).unflatten(1, (3, groups)).sum(1)
    maps = torch.softmax(scores, -1)
    both = [torch.einsum("ngij,ngcj->ngci", maps, v), torch.einsum("ngij,cij->ngci", maps, rv)]
    y = torch.stack([part.flatten(1, 2) for part in both], 2).flatten(1, 2)
    return batch_norm(w, name + ".bn_output", y, train).unflatten(1, (d, 2)).sum(2), maps


def position_sensitive_case(rng):
    groups, length, other = int(rng.choice([1, 2])), int(rng.choice([2, 3, 6])), int(rng.choice([1, 3, 4]))
    d, width, train = groups * int(rng.choice([2, 4])), bool(rng.integers(2)), bool(rng.integers(2))
    name = "layer"
    weights = {key[len(name) + 1:]: array for key, array in axial_weights(rng, name, d, groups, length).items()}

    def forward(w, x):
        turned = (x["x"] if width else x["x"].mT).movedim(1, 2)  # [n,lines,c,l]
        named = {f"{name}.{key}": array for key, array in w.items()}
        y, maps = position_sensitive(named, name, turned.flatten(0, 1), groups, train)
        y = y.unflatten(0, turned.shape[:2]).movedim(1, 2)
        return {"out": y if width else y.mT, "weights": maps.unflatten(0, turned.shape[:2])}
    c = {"in_planes": d, "out_planes": d, "groups": groups, "kernel_size": length, "axis": "width" if width else "height"}
    return c | {"train": train}, weights, {"x": normal(rng, 3, d, *((other, length) if width else (length, other)))}, forward


def axial_resnet_case(rng):
    """In float64 only: the gradients of the norms over scores are sums of many numbers that nearly cancel, which no
    float32 finds.  Nine pictures, so that the last stage, of one pixel each, has a variance to divide by."""
    groups, classes, side, ins = 2, 3, 32, int(rng.choice([1, 3]))
    c = {"depth": "26", "s": 0.0625, "groups": groups, "img_size": side, "in_channels": ins, "num_classes": classes}
    train, stem, d, length = bool(rng.integers(2)), 4, 4, side // 4
    weights = conv_weights(rng, "conv1", stem, ins, 7) | batch_norm_weights(rng, "bn1", stem)
    blocks, ins = [], stem
    for stage, n in enumerate((1, 2, 4, 1)):
        for i in range(n):
            name, inner, stride = f"layer{stage + 1}.{i}", 2 * d << stage, 2 if stage and not i else 1
            blocks.append((name, stride, stride > 1 or ins != 2 * inner))
            weights |= conv_weights(rng, name + ".conv_down", inner, ins, 1) | batch_norm_weights(rng, name + ".bn1", inner)
            for axis in "hight", "width":
                weights |= axial_weights(rng, f"{name}.{axis}_block", inner, groups, length)
            weights |= conv_weights(rng, name + ".conv_up", 2 * inner, inner, 1)
            weights |= batch_norm_weights(rng, name + ".bn2", 2 * inner)
            if blocks[-1][2]:
                weights |= conv_weights(rng, name + ".downsample.0", 2 * inner, ins, 1)
                weights |= batch_norm_weights(rng, name + ".downsample.1", 2 * inner)
            ins, length = 2 * inner, length // stride
    weights |= linear_weights(rng, "fc", classes, ins)

    def along(w, name, x, axis):  # x [b,c,h,w]; lines along `axis` are computed one by one
        lines = x.movedim(axis, -1).movedim(1, 2)
        y, maps = position_sensitive(w, name, lines.flatten(0, 1), groups, train)
        return y.unflatten(0, lines.shape[:2]).movedim(2, 1).movedim(-1, axis), maps.unflatten(0, lines.shape[:2])

    def forward(w, x):
        y = F.conv2d(x["x"], w["conv1.weight"], stride=2, padding=3)
        y = F.max_pool2d(torch.relu(batch_norm(w, "bn1", y, train)), 3, 2, 1)
        for name, stride, has_downsample in blocks:
            z = torch.relu(batch_norm(w, name + ".bn1", conv1(w, name + ".conv_down", y), train))
            z, columns = along(w, name + ".hight_block", z, 2)
            z, rows = along(w, name + ".width_block", z, 3)
            z = F.avg_pool2d(z, stride) if stride > 1 else z
            z = batch_norm(w, name + ".bn2", conv1(w, name + ".conv_up", torch.relu(z)), train)
            if has_downsample:
                y = batch_norm(w, name + ".downsample.1",
                               F.conv2d(y, w[name + ".downsample.0.weight"], stride=stride), train)
            y = torch.relu(z + y)
        return {"logits": affine(w, "fc", y.mean((2, 3))), "weights": torch.stack((columns, rows))}
    return c | {"train": train, "dtype": "f64"}, weights, {"x": normal(rng, 9, c["in_channels"], side, side)}, forward


LAYERS = {"vit": vit_case, "axial-classifier": axial_classifier_case,
          "axial-image-classifier": axial_image_classifier_case, "axial-resnet": axial_resnet_case,
          "non-local-net": non_local_net_case, "sasa-resnet": sasa_resnet_case,
          "position-sensitive-attention": position_sensitive_case}
