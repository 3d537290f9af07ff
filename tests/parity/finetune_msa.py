# SPDX-License-Identifier: MIT
"""Ten steps of fine-tuning an MSA Transformer beside PyTorch's: python finetune_msa.py ATTN

From a random checkpoint in the form of ESM-MSA-1b's, with its published names.  What a step hides is drawn here by the same
generator (Philox4x32-10) from the same streams.  The loss must agree to 1e-4, each parameter's change to 1e-4 of it."""
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
    """src/base/rng.h: the n-th number of a stream is a function of (seed, stream, n)."""

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
    """Tokens and labels of a step, as src/apps/msa_sample.c draws them: streams of a part are columns, rows, what is hidden."""
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
                    "--optimiser", "adamw", "--weight-decay", str(DECAY), "--clip", "0", "--mask", str(SHARE), "--dropout", "0",
                    "--label-smoothing", "0", "--keep", "last", "--seed", str(SEED), "--quiet"],
                   cwd=work, check=True, stdout=subprocess.DEVNULL)
    lines = [line.split("\t") for line in (work / "tuned/history.tsv").read_text().splitlines()]
    column = lines[0].index("train_loss")
    return [float(line[column]) for line in lines[1:]], read_safetensors(work / "tuned/model.safetensors")


def main():
    torch.manual_seed(6)
    alignment = ["".join((LETTERS + "-")[i] for i in torch.randint(0, 21 if row else 20, (COLUMNS,))) for row in range(ROWS)]
    losses, tuned = train_attn(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(tempfile.mkdtemp()), alignment)
    begun = parameters()
    p = {name: tensor.double().requires_grad_() for name, tensor in begun.items()}
    optimiser = torch.optim.AdamW(p.values(), lr=RATE, weight_decay=DECAY)
    assert len(losses) == STEPS, losses
    worst = 0
    for step, its in enumerate(losses):
        tokens, labels = batch(alignment, step)
        loss = functional.cross_entropy(forward(p, tokens).flatten(0, 1), labels.flatten(), ignore_index=-1)
        worst = max(worst, abs(loss.item() - its))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"loss: at most {worst:.1e} from PyTorch's in {STEPS} steps ({losses[0]:.4f} to {losses[-1]:.4f})")
    off = {}
    for name, expected in p.items():
        if name.endswith("k_proj.bias"):  # softmax does not see it: its gradient is rounding alone, which Adam makes steps of
            assert expected.grad.norm() < 1e-12, f"{name} has a gradient of {expected.grad.norm()}"
            continue
        change = (expected.detach() - begun[name].double()).norm()
        off[name] = ((tuned[name].double() - expected.detach()).norm() / change).item()
    name = max(off, key=off.get)
    print(f"{len(off)} parameters: at most {off[name]:.1e} of their change ({name})")
    sys.exit(worst > 1e-4 or off[name] > 1e-4)


if __name__ == "__main__":
    main()
