# SPDX-License-Identifier: MIT
"""Ten steps of fine-tuning an MSA Transformer, compared with PyTorch's: python finetune_msa.py ATTN [--all]

From a random checkpoint in the form of ESM-MSA-1b's, with its published names.  A step's masks are drawn here by the
same generator (Philox4x32-10) from the same streams.  The loss must agree to 1e-4 with PyTorch's in float64, each
parameter's change to 1e-4 of it, or as nearly as PyTorch's own f32 does.  --all: nine configurations."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional

from finetune import read_safetensors

STEPS, LAYERS, WIDTH, HEADS, FFN, ROWS, COLUMNS = 10, 2, 32, 2, 64, 12, 47
RATE, DECAY, SHARE, SEED = 1e-3, 0.5, 0.4, 1
# Most rows of the table of row positions change by the decay alone: a small decay would be lost in f32's own rounding.
LETTERS = "LAGVSERTIDPKQNFYMHWC"  # ids 4 to 23; the gap is 30, <mask> 32
GAP, MASK = 30, 32


class Generator:
    """src/engine/base/rng.h: the n-th number of a stream is a function of (seed, stream, n)."""

    def __init__(self, stream, counter=0):
        self.stream, self.counter = stream, counter

    def word(self):
        low = 0xFFFFFFFF
        block = self.counter >> 2
        c = [block & low, block >> 32, self.stream & low, self.stream >> 32]
        k = [SEED & low, SEED >> 32]
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(q >> 32) ^ c[1] ^ k[0], q & low, (p >> 32) ^ c[3] ^ k[1], p & low]
            k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
        self.counter += 1
        return c[(self.counter - 1) & 3]

    def number(self):
        high = self.word()
        return high << 32 | self.word()

    def below(self, n):
        while (x := self.number()) < 2**64 % n:
            pass
        return x % n

    def uniform(self):
        return (self.number() >> 11) * 2.0**-53


def batch(alignment, step):
    """Tokens and labels of a step, as src/apps/msa/sample.c draws them: streams of a part are columns, rows, what is hidden."""
    order = list(range(ROWS))
    rows = Generator(3 * step + 1)
    for i in range(ROWS - 2, 0, -1):  # the query stays first
        j = rows.below(i + 1)
        order[1 + i], order[1 + j] = order[1 + j], order[1 + i]
    tokens = [id for row in order for id in [0] + [GAP if x == "-" else 4 + LETTERS.index(x) for x in alignment[row]]]
    labels = [-1] * len(tokens)
    for i, id in enumerate(tokens):
        draw = Generator(3 * step + 2, i << 8)
        if id <= 3 or draw.uniform() >= SHARE:
            continue
        labels[i] = id
        fate = draw.uniform()
        if fate < 0.8:
            tokens[i] = MASK
        elif fate < 0.9:
            other = draw.below(21)
            tokens[i] = GAP if other == 20 else 4 + other
    shape = (ROWS, COLUMNS + 1)
    return torch.tensor(tokens).reshape(shape), torch.tensor(labels).reshape(shape)


def shapes():
    pair = lambda name, out, *into: {name + ".weight": (out, *into), name + ".bias": (out,)}
    found = {"embed_tokens.weight": (33, WIDTH), "embed_positions.weight": (64 + 2, WIDTH),
             "msa_position_embedding": (1, 1024, 1, WIDTH), "lm_head.bias": (33,)}
    found |= pair("emb_layer_norm_before", WIDTH) | pair("emb_layer_norm_after", WIDTH)
    found |= pair("lm_head.dense", WIDTH, WIDTH) | pair("lm_head.layer_norm", WIDTH)
    for i in range(LAYERS):
        for side in ("row", "column"):
            for letter in ("q", "k", "v", "out"):
                found |= pair(f"layers.{i}.{side}_self_attention.layer.{letter}_proj", WIDTH, WIDTH)
            found |= pair(f"layers.{i}.{side}_self_attention.layer_norm", WIDTH)
        found |= pair(f"layers.{i}.feed_forward_layer.layer.fc1", FFN, WIDTH)
        found |= pair(f"layers.{i}.feed_forward_layer.layer.fc2", WIDTH, FFN)
        found |= pair(f"layers.{i}.feed_forward_layer.layer_norm", WIDTH)
    return found


def parameters():
    torch.manual_seed(4)
    return {name: 1 + 0.1 * torch.randn(shape) if "norm" in name and "weight" in name else 0.2 * torch.randn(shape)
            for name, shape in shapes().items()}


def published(name):
    """As the files have it: with prefixes, and "row" where the code says "column"."""
    swapped = name.replace("row_", "ROW").replace("column_", "row_").replace("ROW", "column_")
    return "encoder." + ("" if name.startswith("lm_head") else "sentence_encoder.") + swapped


def forward(p, tokens):
    """Rao et al. 2021: tied row attention, column attention, feed-forward; norms before; [R,C] -> [R,C,33]."""
    rows, columns = tokens.shape
    size = WIDTH // HEADS
    norm = lambda h, name: functional.layer_norm(h, (WIDTH,), p[name + ".weight"], p[name + ".bias"])
    linear = lambda h, name: functional.linear(h, p[name + ".weight"], p[name + ".bias"])
    heads = lambda h, name: linear(h, name).view(rows, columns, HEADS, size)
    h = p["embed_tokens.weight"][tokens] + p["embed_positions.weight"][torch.arange(columns) + 2]
    h = norm(h + p["msa_position_embedding"][0, :rows], "emb_layer_norm_before")
    for i in range(LAYERS):
        for side, scores, values, scale in (("row", "rihd,rjhd->hij", "hij,rjhd->rihd", (size * rows) ** -0.5),
                                            ("column", "icho,jcho->hcij", "hcij,jcho->icho", size**-0.5)):
            at = f"layers.{i}.{side}_self_attention."
            x = norm(h, at + "layer_norm")
            q, k, v = (heads(x, f"{at}layer.{letter}_proj") for letter in "qkv")
            weights = torch.softmax(scale * torch.einsum(scores, q, k), -1)
            h = h + linear(torch.einsum(values, weights, v).reshape(rows, columns, WIDTH), at + "layer.out_proj")
        at = f"layers.{i}.feed_forward_layer."
        h = h + linear(functional.gelu(linear(norm(h, at + "layer_norm"), at + "layer.fc1")), at + "layer.fc2")
    h = norm(h, "emb_layer_norm_after")
    h = norm(functional.gelu(linear(h, "lm_head.dense")), "lm_head.layer_norm")
    return functional.linear(h, p["embed_tokens.weight"], p["lm_head.bias"])


def train_attn(attn, work, alignment):
    (work / "data").mkdir()
    (work / "data/one.a3m").write_text("".join(f">s{i}\n{row}\n" for i, row in enumerate(alignment)))
    arguments = argparse.Namespace(arch="msa_transformer", layers=LAYERS, embed_dim=WIDTH, ffn_embed_dim=FFN,
                                   attention_heads=HEADS, max_positions=64, embed_positions_msa=True)
    state = {published(name): tensor for name, tensor in parameters().items()}
    torch.save({"args": arguments, "model": state}, work / "esm.pt")
    subprocess.run([attn, "train", "msa", "--data", "data", "--from", "esm.pt", "--out", "tuned", "--epochs", str(STEPS), "--steps",
                    "1", "--batch", "1", "--valid", "0", "--warmup", "0", "--schedule", "constant", "--rate", str(RATE),
                    "--optimizer", "adamw", "--weight-decay", str(DECAY), "--clip", "0", "--mask", str(SHARE), "--dropout", "0",
                    "--label-smoothing", "0", "--keep", "last", "--seed", str(SEED), "--quiet"],
                   cwd=work, check=True, stdout=subprocess.DEVNULL)
    lines = [line.split("\t") for line in (work / "tuned/history.tsv").read_text().splitlines()]
    column = lines[0].index("train_loss")
    return [float(line[column]) for line in lines[1:]], read_safetensors(work / "tuned/model.safetensors")


def train_torch(begun, alignment, dtype):
    """The same ten steps by PyTorch: the losses, the parameters, and the root of the mean of each number's squared gradients."""
    p = {name: tensor.clone().to(dtype).requires_grad_() for name, tensor in begun.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=RATE, weight_decay=DECAY)
    losses, squares = [], {name: 0 for name in p}
    for step in range(STEPS):
        tokens, labels = batch(alignment, step)
        loss = functional.cross_entropy(forward(p, tokens).flatten(0, 1), labels.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        for name, tensor in p.items():
            squares[name] = squares[name] + tensor.grad.double()**2 / STEPS
        optimizer.step()
    return losses, {name: tensor.detach().double() for name, tensor in p.items()}, {n: s.sqrt() for n, s in squares.items()}


def deviations(tuned, expected, begun):
    """Of each parameter, the difference over its change.  Softmax is invariant to the bias of the keys: its gradient is
    rounding alone, which Adam makes steps of."""
    return {name: ((tuned[name].double() - tensor).norm() / (tensor - begun[name].double()).norm()).item()
            for name, tensor in expected.items() if not name.endswith("k_proj.bias")}


def where(tuned, expected, begun, gradients, name):
    """The numbers that make half of a parameter's squared difference: how many, and how their gradients compare with the largest."""
    off = ((tuned[name].double() - expected[name])**2).flatten()
    order = off.argsort(descending=True)
    n = int((off[order].cumsum(0) < 0.5 * off.sum()).sum()) + 1
    g = gradients[name].flatten()
    return n, off.numel(), (g[order[:n]].median() / g.max()).item()


def compare(attn, name, settings):
    globals().update(settings)
    torch.manual_seed(6)
    alignment = ["".join((LETTERS + "-")[i] for i in torch.randint(0, 21 if row else 20, (COLUMNS,))) for row in range(ROWS)]
    with tempfile.TemporaryDirectory() as work:
        losses, tuned = train_attn(attn, pathlib.Path(work), alignment)
    begun = parameters()
    assert len(losses) == STEPS, losses
    wanted, exact, gradients = train_torch(begun, alignment, torch.float64)
    _, single, _ = train_torch(begun, alignment, torch.float32)
    for k in (name for name in exact if name.endswith("k_proj.bias")):
        assert gradients[k].max() < 1e-12, f"{k} has a gradient of {gradients[k].max()}"
    worst = max(abs(a - b) for a, b in zip(losses, wanted))
    off, its = deviations(tuned, exact, begun), deviations(single, exact, begun)
    name_of, most = max(off.items(), key=lambda item: item[1])
    n, of, small = where(tuned, exact, begun, gradients, name_of)
    print(f"{name}: loss {worst:.1e} off; parameters at most {most:.1e} of their change ({name_of}), PyTorch's own f32 {max(its.values()):.1e};"
          f" half of it in {n} of {of} numbers, whose gradients are {small:.0e} of the largest")
    return worst <= 1e-4 and most <= max(1e-4, 1.2 * max(its.values())), most <= 1e-4


CONFIGURATIONS = {"usual": {}, "deeper": {"LAYERS": 4}, "wider": {"WIDTH": 64, "HEADS": 4, "FFN": 128}, "one head": {"HEADS": 1},
                  "more rows": {"ROWS": 20, "COLUMNS": 31}, "fewer columns": {"COLUMNS": 23}, "small rate": {"RATE": 1e-4},
                  "large rate": {"RATE": 3e-3}, "small decay": {"DECAY": 0.1}}


def main():
    torch.set_num_threads(1)
    usual = {key: globals()[key] for settings in CONFIGURATIONS.values() for key in settings}
    attn = str(pathlib.Path(sys.argv[1]).resolve())
    chosen = CONFIGURATIONS if sys.argv[2:] == ["--all"] else {"usual": {}}
    good, close = zip(*(compare(attn, name, usual | settings) for name, settings in chosen.items()))
    print(f"{sum(close)} of {len(close)} configurations within 1e-4, {sum(good)} within that or 1.2 times PyTorch's own f32")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
