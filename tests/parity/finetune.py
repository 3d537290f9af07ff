# SPDX-License-Identifier: MIT
"""Ten steps of fine-tuning, compared with PyTorch's: python finetune.py ATTN

A Vision Transformer from a random timm checkpoint with a new head and half of it frozen, on pictures that are one batch, so
that their order means nothing.  The loss must agree to 1e-4, each parameter's change to 1e-4 of it."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch

STEPS, SIDE, PATCH, WIDTH, HEADS, BLOCKS, RATE, DECAY = 10, 8, 2, 64, 1, 2, 1e-3, 0.05


def checkpoint(classes):
    torch.manual_seed(3)
    shapes = {"cls_token": (1, 1, WIDTH), "pos_embed": (1, 1 + (SIDE // PATCH) ** 2, WIDTH),
              "patch_embed.proj.weight": (WIDTH, 1, PATCH, PATCH), "patch_embed.proj.bias": (WIDTH,),
              "norm.weight": (WIDTH,), "norm.bias": (WIDTH,), "head.weight": (classes, WIDTH), "head.bias": (classes,)}
    for i in range(BLOCKS):
        b = f"blocks.{i}."
        shapes |= {b + "norm1.weight": (WIDTH,), b + "norm1.bias": (WIDTH,), b + "norm2.weight": (WIDTH,),
                   b + "norm2.bias": (WIDTH,), b + "attn.qkv.weight": (3 * WIDTH, WIDTH), b + "attn.qkv.bias": (3 * WIDTH,),
                   b + "attn.proj.weight": (WIDTH, WIDTH), b + "attn.proj.bias": (WIDTH,),
                   b + "mlp.fc1.weight": (2 * WIDTH, WIDTH), b + "mlp.fc1.bias": (2 * WIDTH,),
                   b + "mlp.fc2.weight": (WIDTH, 2 * WIDTH), b + "mlp.fc2.bias": (WIDTH,)}
    return {name: 1 + 0.1 * torch.randn(shape) if "norm" in name and "weight" in name else 0.1 * torch.randn(shape)
            for name, shape in shapes.items()}


def forward(p, x):
    norm = lambda h, name: torch.nn.functional.layer_norm(h, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-6)
    linear = lambda h, name: torch.nn.functional.linear(h, p[name + ".weight"], p[name + ".bias"])
    h = torch.nn.functional.conv2d(x, p["patch_embed.proj.weight"], p["patch_embed.proj.bias"], stride=PATCH)
    h = torch.cat([p["cls_token"].expand(len(x), -1, -1), h.flatten(2).transpose(1, 2)], 1) + p["pos_embed"]
    for i in range(BLOCKS):
        b = f"blocks.{i}."
        q, k, v = linear(norm(h, b + "norm1"), b + "attn.qkv").chunk(3, -1)
        h = h + linear(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(WIDTH), -1) @ v, b + "attn.proj")
        h = h + linear(torch.nn.functional.gelu(linear(norm(h, b + "norm2"), b + "mlp.fc1")), b + "mlp.fc2")
    return linear(norm(h, "norm")[:, 0], "head")


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, about in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in about["data_offsets"])
            found[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(about["shape"])
    return found


def timm_name(own):
    """The name in the checkpoint, and which third of it."""
    name = own.replace("blks.", "blocks.").replace("patch_embedding.conv", "patch_embed.proj")
    name = name.replace("pos_embedding", "pos_embed").replace("head.0", "norm").replace("head.1", "head")
    name = name.replace("ln1", "norm1").replace("ln2", "norm2").replace("mlp.dense", "mlp.fc")
    for third, letter in enumerate("qkv"):
        if f"attention.W_{letter}" in name:
            return name.replace(f"attention.W_{letter}", "attn.qkv"), third
    return name.replace("attention.W_o", "attn.proj"), None


def pictures(folder):
    torch.manual_seed(5)
    images, labels = [], []
    for label, name in enumerate(("a", "b", "c")):
        (folder / name).mkdir(parents=True)
        for i in range(8):
            image = torch.randint(0, 256, (SIDE, SIDE)) // (1 + label)
            (folder / name / f"{i}.pgm").write_bytes(b"P5 %d %d 255\n" % (SIDE, SIDE) + bytes(image.flatten().tolist()))
            images.append(image)
            labels.append(label)
    x = torch.stack(images)[:, None].double() / 255
    return x, torch.tensor(labels)


def main():
    attn = str(pathlib.Path(sys.argv[1]).resolve())
    work = pathlib.Path(tempfile.mkdtemp())
    x, labels = pictures(work / "data" / "train")
    (work / "data" / "test" / "a").mkdir(parents=True)
    for name in "abc":
        (work / "data" / "test" / name).mkdir(exist_ok=True)
        (work / "data" / "test" / name / "0.pgm").write_bytes((work / "data" / "train" / name / "0.pgm").read_bytes())
    torch.save(checkpoint(5), work / "timm.pt")
    common = ["train", "classify", "--data", "data", "--from", "timm.pt", "--heads", str(WIDTH // 64), "--batch", str(len(x)),
              "--valid", "0", "--warmup", "0",
              "--schedule", "constant", "--rate", str(RATE), "--weight-decay", str(DECAY), "--clip", "0", "--shift", "0",
              "--flip=false", "--keep", "last", "--freeze", r"blks\.0\..*|cls_token|pos_embedding|patch_embedding.*", "--quiet"]
    for directory, epochs in (("begun", 0), ("tuned", STEPS)):
        subprocess.run([attn, *common, "--out", directory, "--epochs", str(epochs)], cwd=work, check=True,
                       stdout=subprocess.DEVNULL)
    begun, tuned = read_safetensors(work / "begun/model.safetensors"), read_safetensors(work / "tuned/model.safetensors")
    p = {name: tensor.double() for name, tensor in checkpoint(5).items()}
    p["head.weight"], p["head.bias"] = begun["head.1.weight"].double(), begun["head.1.bias"].double()
    for own, tensor in begun.items():
        name, third = timm_name(own)
        its = p[name] if third is None else p[name].chunk(3)[third]
        assert torch.equal(its.float(), tensor), f"{own} does not begin as {name}"
    trained = [name for name in p if name.startswith(("blocks.1.", "norm.", "head."))]
    for name in trained:
        p[name] = p[name].clone().requires_grad_()
    x = (x - x.mean()) / x.std(correction=0)
    optimizer = torch.optim.AdamW([p[name] for name in trained], lr=RATE, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(forward(p, x), labels, label_smoothing=0.1)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    lines = [line.split("\t") for line in (work / "tuned/history.tsv").read_text().splitlines()]
    column = lines[0].index("loss") if "loss" in lines[0] else lines[0].index("train_loss")
    worst = max(abs(float(line[column]) - loss) for line, loss in zip(lines[1:], losses))
    print(f"loss: at most {worst:.1e} from PyTorch's in {STEPS} steps ({losses[0]:.4f} to {losses[-1]:.4f})")
    bad = worst > 1e-4
    worst = 0
    for own, tensor in tuned.items():
        name, third = timm_name(own)
        expected = (p[name] if third is None else p[name].chunk(3)[third]).detach()
        change = (expected - begun[own].double()).norm().item()
        off = (tensor.double() - expected).norm().item()
        if name not in trained:
            assert torch.equal(tensor, begun[own]), f"{own} is frozen and has changed"
            continue
        if own.endswith("W_k.bias"):  # softmax is invariant to it: its gradient is rounding alone, which Adam makes
                                      # steps of
            gradient = p[name].grad.chunk(3)[third].norm().item()
            assert gradient < 1e-12, f"{own} has a gradient of {gradient}"
            continue
        worst = max(worst, off / change)
        if off > 1e-4 * change:
            print(f"{own}: {off / change:.1e} of its change from PyTorch's")
            bad = True
    print(f"parameters: at most {worst:.1e} of their change")
    sys.exit(bad)


if __name__ == "__main__":
    main()
