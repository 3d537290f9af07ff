# SPDX-License-Identifier: MIT
"""Ten steps of low-rank adapters, compared with peft's: python lora.py ATTN

A Vision Transformer from a random timm checkpoint with a new head, adapters on queries, values and the first layer of each
feed-forward network.  The directory that attn begins is loaded by peft itself, from the adapter's files as they are, and
trained in float64.  The loss must agree to 1e-4, each trained parameter's change to 1e-4 of it; and what `attn convert` merges
must be what peft merges."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch

import finetune
from finetune import BLOCKS, DECAY, PATCH, RATE, SIDE, STEPS, WIDTH, checkpoint, pictures, read_safetensors

RANK, ALPHA = 3, 6.0


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.W_q, self.W_k, self.W_v, self.W_o = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, h):
        weights = torch.softmax(self.W_q(h) @ self.W_k(h).transpose(1, 2) / math.sqrt(WIDTH), -1)
        return self.W_o(weights @ self.W_v(h))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = torch.nn.LayerNorm(WIDTH, eps=1e-6), torch.nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = Attention()
        self.mlp = torch.nn.ModuleDict({"dense1": torch.nn.Linear(WIDTH, 2 * WIDTH), "dense2": torch.nn.Linear(2 * WIDTH, WIDTH)})

    def forward(self, h):
        h = h + self.attention(self.ln1(h))
        return h + self.mlp.dense2(torch.nn.functional.gelu(self.mlp.dense1(self.ln2(h))))


class Model(torch.nn.Module):
    """attn's names, so that peft finds the modules that the adapter's files name."""

    def __init__(self, classes):
        super().__init__()
        self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embedding = torch.nn.Parameter(torch.zeros(1, 1 + (SIDE // PATCH) ** 2, WIDTH))
        self.patch_embedding = torch.nn.ModuleDict({"conv": torch.nn.Conv2d(1, WIDTH, PATCH, PATCH)})
        self.blks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH, eps=1e-6), torch.nn.Linear(WIDTH, classes))

    def forward(self, x):
        h = self.patch_embedding.conv(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls_token.expand(len(x), -1, -1), h], 1) + self.pos_embedding
        for block in self.blks:
            h = block(h)
        return self.head(h[:, 0])


def distance(found, expected, begun):
    change = (expected - begun).norm().item()
    return (found.double() - expected).norm().item() / max(change, 1e-30)


def main():
    attn = str(pathlib.Path(sys.argv[1]).resolve())
    work = pathlib.Path(tempfile.mkdtemp())
    x, labels = pictures(work / "data" / "train")
    for name in "abc":
        (work / "data" / "test" / name).mkdir(parents=True)
        (work / "data" / "test" / name / "0.pgm").write_bytes((work / "data" / "train" / name / "0.pgm").read_bytes())
    torch.save(checkpoint(5), work / "timm.pt")
    common = ["train", "classify", "--data", "data", "--from", "timm.pt", "--heads", str(WIDTH // 64), "--batch", str(len(x)),
              "--valid", "0", "--warmup", "0",
              "--schedule", "constant", "--rate", str(RATE), "--weight-decay", str(DECAY), "--clip", "0", "--shift", "0",
              "--flip=false", "--keep", "last", "--lora", str(RANK), "--lora-on", r"blks\.\d\.(attention\.W_[qv]|mlp\.dense1)",
              "--lora-alpha", str(ALPHA), "--quiet"]
    for directory, epochs in (("begun", 0), ("tuned", STEPS)):
        subprocess.run([attn, *common, "--out", directory, "--epochs", str(epochs)], cwd=work, check=True,
                       stdout=subprocess.DEVNULL)
    begun, tuned = (read_safetensors(work / d / "adapter_model.safetensors") for d in ("begun", "tuned"))
    model = Model(3)
    model.load_state_dict(read_safetensors(work / "begun" / "base.safetensors"))
    model = peft.PeftModel.from_pretrained(model.double(), str(work / "begun"), is_trainable=True).double()
    whole = {"base_model.model.head.1.weight", "base_model.model.head.1.bias"}
    state = dict(model.named_parameters())
    own = lambda name: name.replace(".default.", ".")
    for name, p in state.items():
        p.requires_grad_(own(name) in begun)
    for name in whole:
        assert torch.equal(state[name].float(), begun[name]), f"{name} does not begin as the directory says"
    assert {own(n) for n, p in state.items() if p.requires_grad} == set(begun), "peft finds other parameters"
    trained = {own(n): p for n, p in state.items() if p.requires_grad}
    x = (x - x.mean()) / x.std(correction=0)
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    lines = [line.split("\t") for line in (work / "tuned/history.tsv").read_text().splitlines()]
    worst = max(abs(float(line[1]) - loss) for line, loss in zip(lines[1:], losses))
    print(f"loss: at most {worst:.1e} from peft's in {STEPS} steps ({losses[0]:.4f} to {losses[-1]:.4f})")
    off = {name: distance(tuned[name], p.detach(), begun[name].double()) for name, p in trained.items()}
    name = max(off, key=off.get)
    print(f"{len(off)} trained parameters: at most {off[name]:.1e} of their change ({name})")
    subprocess.run([attn, "convert", "tuned", "-o", "merged"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    merged = read_safetensors(work / "merged/model.safetensors")
    reference = Model(3)
    reference.load_state_dict(read_safetensors(work / "tuned" / "base.safetensors"))
    reference = peft.PeftModel.from_pretrained(reference, str(work / "tuned"))
    expected = reference.merge_and_unload().state_dict()
    expected |= {name[len("base_model.model."):]: tuned[name] for name in whole}
    assert set(expected) == set(merged), set(expected) ^ set(merged)
    furthest = max((merged[n] - expected[n]).abs().max().item() for n in merged)
    print(f"merged: at most {furthest:.1e} from what peft merges")
    sys.exit(worst > 1e-4 or off[name] > 1e-4 or furthest > 1e-6)


if __name__ == "__main__":
    main()
