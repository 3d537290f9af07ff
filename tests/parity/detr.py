# SPDX-License-Identifier: MIT
"""Runs the code of DETR's authors and attn on the same weights: python detr.py ATTN PARITY_TOOL DETR

DETR is a checkout of facebookresearch/detr, whose code runs on random weights in float64.  ResNet-18 to 101, DC5, learned
positions and pre-norm, on a padded batch: logits, boxes, the other blocks' outputs, all attention weights.  Each term of
the loss and the gradient of each parameter, by the authors' own assignment.  The files: .pth before PyTorch 1.6 and after,
the state dict alone or as "model" with the settings of main.py; Hugging Face's directory with timm's names; timm's and
torchvision's residual networks.  Panoptic models and the notebook's are refused.  All differences are relative to the
largest element and at most 1e-4."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torchvision
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

TOLERANCE = 1e-4
NAMES = pathlib.Path(__file__).resolve().parents[2] / "data/names/detr-facebook.names"
failed = []


def report(title, off):
    print(f"{title:44} {off:.1e}")
    if not off <= TOLERANCE:
        failed.append(title)


def relative(found, expected):
    expected = np.asarray(expected, dtype=np.float64)
    return float(np.abs(np.asarray(found, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


# ---------------------------------------------------------------------------------------------- the authors' model

def arguments(detr_main, **settings):
    args = detr_main.get_args_parser().parse_args([])
    args.device = "cpu"
    for name, value in settings.items():
        setattr(args, name, value)
    return args


def random_norms(net, x):
    """Norms whose statistics are about those of the features, with random factors."""
    ends = [getattr(m, "bn3", m.bn2) for m in net.modules() if type(m).__name__ in ("BasicBlock", "Bottleneck")]

    def measure(norm, inputs):
        seen = inputs[0].detach()
        norm.running_mean.copy_(seen.mean((0, 2, 3)))
        norm.running_var.copy_(seen.var((0, 2, 3)) * (0.8 + 0.4 * torch.rand_like(norm.running_var)) + 1e-3)
        last = norm in ends  # the branches of trained networks end small
        norm.weight.copy_((0.2 if last else 1) * (0.5 + torch.rand_like(norm.weight)))
        norm.bias.copy_(0.2 * torch.randn_like(norm.bias))
    hooks = [m.register_forward_pre_hook(measure) for m in net.modules() if type(m).__name__ == "FrozenBatchNorm2d"]
    with torch.no_grad():
        net(x)
        for name, p in net.named_parameters():
            if "transformer" in name and p.ndim == 1:
                p.add_(0.1 * torch.randn_like(p))
    for hook in hooks:
        hook.remove()


def batch(nested, sizes):
    """Random pictures of these heights and widths, padded to the largest."""
    height, width = max(h for h, _ in sizes), max(w for _, w in sizes)
    x, mask = torch.zeros(len(sizes), 3, height, width), torch.ones(len(sizes), height, width, dtype=torch.bool)
    for i, (h, w) in enumerate(sizes):
        x[i, :, :h, :w] = torch.randn(3, h, w)
        mask[i, :h, :w] = False
    return nested(x.double(), mask)


def with_weights(net, x):
    """The model's outputs, and the weights of all heads by kind."""
    kept = {"encoder": [], "decoder": [], "cross": []}

    def keep(kind):
        return lambda module, inputs, out: kept[kind].append(out[1])

    def ask(module, inputs, given):
        return inputs, {**given, "need_weights": True, "average_attn_weights": False}
    hooks = []
    for name, module in net.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            kind = "cross" if "multihead" in name else "encoder" if "encoder" in name else "decoder"
            hooks += [module.register_forward_pre_hook(ask, with_kwargs=True), module.register_forward_hook(keep(kind))]
    with torch.no_grad():
        out = net(x)
    for hook in hooks:
        hook.remove()
    result = {"pred_logits": out["pred_logits"], "pred_boxes": out["pred_boxes"],
              "aux_logits": torch.stack([a["pred_logits"] for a in out["aux_outputs"]]),
              "aux_boxes": torch.stack([a["pred_boxes"] for a in out["aux_outputs"]])}
    return result | {f"{kind}_weights": torch.stack(w) for kind, w in kept.items()}


def numbers(net):
    return {name: t.float() for name, t in net.state_dict().items()}


# ------------------------------------------------------------------------------------------------------- outputs

def attn_outputs(attn, folder, weights, config, inputs, outputs, names):
    command = [attn, "run", "--weights", str(weights), "--config", json.dumps(config), "--quiet"]
    command += ["--names", names] if names else []
    for name, x in inputs.items():
        np.save(folder / f"in_{name}.npy", x)
        command += ["--input", f"{name}={folder}/in_{name}.npy"]
    for name in outputs:
        command += ["--output", f"{name}={folder}/out_{name}.npy"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {name: np.load(folder / f"out_{name}.npy") for name in outputs}


SMALL = {"hidden_dim": 64, "nheads": 4, "dim_feedforward": 96, "enc_layers": 2, "dec_layers": 3, "num_queries": 11}
CASES = {
    "R18": {"backbone": "resnet18", **SMALL},
    "R34": {"backbone": "resnet34", **SMALL},
    "R50, as published": {},
    "R101": {"backbone": "resnet101", **SMALL},
    "R50-DC5": {"dilation": True, **SMALL},
    "R18, learned positions": {"backbone": "resnet18", "position_embedding": "learned", **SMALL},
    "R18, pre-norm": {"backbone": "resnet18", "pre_norm": True, **SMALL},
}


def compare_outputs(attn, folder, build, main, nested):
    for title, settings in CASES.items():
        torch.manual_seed(3)
        args = arguments(main, **settings)
        net, _, _ = build(args)
        net.double().eval()
        x = batch(nested, [(96, 128), (128, 80)])
        random_norms(net, x)
        net.load_state_dict({k: v.float().double() for k, v in net.state_dict().items()})
        torch.save({"model": numbers(net)}, folder / "net.pth")
        expected = with_weights(net, x)
        found = attn_outputs(attn, folder, folder / "net.pth", {"nheads": args.nheads, "dilation": args.dilation},
                             {"x": x.tensors.float().numpy(), "mask": x.mask.numpy().astype(np.int32)}, expected,
                             "detr-facebook")
        for name, y in expected.items():
            report(f"{title}: {name}", relative(found[name], y.numpy()))


# ----------------------------------------------------------------------------------------------------------- loss

def attn_names(tensors):
    """Tensors by attn's names, as the names file says."""
    found = {}
    rules = [line.split() for line in NAMES.read_text().splitlines() if re.match(r"[a-z._\\(].*\s\S+", line)]
    rules = [r for r in rules if r[0] not in ("attn", "arch", "set", "size", "count", "when")]
    for name, x in tensors.items():
        for pattern, to, *how in rules:
            matched = re.fullmatch(pattern, name)
            if not matched or to == "-":
                continue
            if how[:1] == ["part"]:
                i, n = map(int, how[1].split("/"))
                found[matched.expand(to)] = x.chunk(n)[i]
            else:
                found[matched.expand(to)] = x.flatten(1) if how == ["squeeze"] else x
    return {name: x.detach().contiguous().numpy() for name, x in found.items()}


def compare_loss(tool, folder, build, main, nested):
    import safetensors_file
    torch.manual_seed(4)
    args = arguments(main, backbone="resnet18", dropout=0.0, **SMALL)
    net, criterion, _ = build(args)
    net.double().eval()
    x = batch(nested, [(96, 128), (128, 80), (64, 64)])
    random_norms(net, x)
    targets = []
    for n in (3, 0, 11):
        boxes = torch.cat([0.2 + 0.6 * torch.rand(n, 2), 0.05 + 0.35 * torch.rand(n, 2)], 1)
        targets.append({"labels": torch.randint(0, 91, (n,)), "boxes": boxes.double()})
    assigned = []
    matcher = criterion.matcher.forward

    def keep(outputs, wanted):
        assigned.append(matcher(outputs, wanted))
        return assigned[-1]
    criterion.matcher.forward = keep
    criterion.double()
    out = net(x)
    losses = criterion(out, targets)
    sum(losses[k] * criterion.weight_dict[k] for k in losses if k in criterion.weight_dict).backward()

    case = folder / "loss"
    case.mkdir()
    queries = []  # of each block but the last, then of the last, which the authors assign first
    for block in assigned[1:] + assigned[:1]:
        for (query, target), wanted in zip(block, targets):
            row = np.full(len(wanted["labels"]), -1, np.int32)
            row[target.numpy()] = query.numpy()
            queries.append(row)
    begin = np.cumsum([0] + [len(t["labels"]) for t in targets])
    safetensors_file.write(str(case / "targets.safetensors"), {
        "begin": begin.astype(np.int32), "classes": torch.cat([t["labels"] for t in targets]).numpy().astype(np.int32),
        "boxes": torch.cat([t["boxes"] for t in targets]).numpy(), "query": np.concatenate(queries)}, double=True)
    safetensors_file.write(str(case / "inputs.safetensors"),
                           {"x": x.tensors.numpy(), "mask": x.mask.numpy()}, double=True)
    safetensors_file.write(str(case / "weights.safetensors"), attn_names(net.state_dict()), double=True)
    (case / "config.json").write_text(json.dumps(
        {"architecture": "detr", "dtype": "f64", "backbone": "resnet18", "norm": "frozen", "num_classes": 91, "dropout": 0.0,
         **SMALL}))
    subprocess.run([tool, str(case)], check=True)
    terms = safetensors_file.read(str(case / "out_terms.safetensors"))
    for own, term in (("classes", "loss_ce"), ("l1", "loss_bbox"), ("giou", "loss_giou")):
        factor = criterion.weight_dict[term]
        report(f"loss: {own}", abs(terms[own].item() / (factor * losses[term].item()) - 1))
        inner = sum(factor * losses[f"{term}_{i}"].item() for i in range(args.dec_layers - 1))
        report(f"loss: {own} of the inner blocks", abs(terms[f"aux_{own}"].item() / inner - 1))
    found = safetensors_file.read(str(case / "out_grads.safetensors"))
    expected = attn_names({name: p.grad for name, p in net.named_parameters() if p.grad is not None})
    if set(found) != set(expected):
        failed.append(f"gradients of {sorted(set(found) ^ set(expected))[:4]}")
    largest = max(np.abs(g).max() for g in expected.values())
    # Some gradients are zero by mathematics (biases of keys, the first self-attention of queries): what rounding leaves of
    # them is measured by the model's largest gradient.
    report(f"gradients of {len(found)} parameters", max(
        float(np.abs(found[n] - g).max() / (np.abs(g).max() if np.abs(g).max() > 1e-12 * largest else largest))
        for n, g in expected.items() if n in found))


# ---------------------------------------------------------------------------------------------------------- files

def detections(attn, folder, path):
    told = subprocess.run([attn, "detect", "picture.ppm", "--model", str(path), "--threshold", "0", "--size", "96", "--json"],
                          cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(told)[0]["detections"]


def compare_found(title, found, logits, boxes, width, height):
    """Boxes and scores by falling score, as the authors' PostProcess has them."""
    score, label = logits.softmax(-1)[0, :, :-1].max(-1)
    order = score.sort(descending=True, stable=True).indices
    cx, cy, w, h = boxes[0, order].unbind(-1)
    size = np.array([width, height] * 2)
    corners = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1).numpy() * size
    own = np.array([[f["box"][k] for k in ("xmin", "ymin", "xmax", "ymax")] for f in found])
    report(f"{title}: boxes", relative(own, corners))
    report(f"{title}: scores", relative([f["score"] for f in found], score[order].numpy()))
    if [f["id"] for f in found] != label[order].tolist():
        failed.append(f"{title}: labels")


def compare_files(attn, folder, build, main, nested):
    height, width = 96, 128
    torch.manual_seed(5)
    picture = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
    (folder / "picture.ppm").write_bytes(b"P6 %d %d 255\n" % (width, height) + picture.numpy().tobytes())
    mean, std = torch.tensor([0.485, 0.456, 0.406]).double(), torch.tensor([0.229, 0.224, 0.225]).double()
    pixels = ((picture.double() / 255 - mean) / std).permute(2, 0, 1)[None]
    x = nested(pixels, torch.zeros(1, height, width, dtype=torch.bool))
    args = arguments(main, dilation=True, **SMALL | {"nheads": 2})
    net, _, _ = build(args)
    net.double().eval()
    random_norms(net, x)
    with torch.no_grad():
        net.class_embed.weight.mul_(8)
        out = net(x)
    plain = numbers(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    whole = {"model": plain, "optimizer": optimizer.state_dict(), "epoch": 7, "args": args,
             "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 200).state_dict()}
    for title, new in (("main.py's .pth", True), ("main.py's .pth before PyTorch 1.6", False)):
        torch.save(whole, folder / "whole.pth", _use_new_zipfile_serialization=new)
        compare_found(title, detections(attn, folder, folder / "whole.pth"), out["pred_logits"], out["pred_boxes"], width, height)
    # Without the settings of main.py heads are 8, and nothing is dilated.
    args = arguments(main, **SMALL | {"nheads": 8})
    net, _, _ = build(args)
    net.double().eval().load_state_dict({k: v.double() for k, v in plain.items()})
    with torch.no_grad():
        out = net(x)
    for title, new, value in (("state dict", True, plain), ("state dict as model", False, {"model": plain})):
        torch.save(value, folder / "plain.pth", _use_new_zipfile_serialization=new)
        compare_found(title, detections(attn, folder, folder / "plain.pth"), out["pred_logits"], out["pred_boxes"], width, height)
    return pixels


def refuse(attn, folder, state, words):
    torch.save({"model": state}, folder / "other.pth")
    told = subprocess.run([attn, "detect", "picture.ppm", "--model", "other.pth"], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    print(told.stdout.strip())
    if told.returncode != 2 or words not in told.stdout:
        failed.append(f"refused: {words}")


class Notebook(nn.Module):
    """The tensors of the small model in the authors' notebook."""
    def __init__(self):
        super().__init__()
        self.backbone = torchvision.models.resnet18()
        del self.backbone.fc
        self.conv = nn.Conv2d(512, 32, 1)
        self.transformer = nn.Transformer(32, 4, 2, 2, 48)
        self.linear_class, self.linear_bbox = nn.Linear(32, 92), nn.Linear(32, 4)
        self.query_pos = nn.Parameter(torch.rand(9, 32))
        self.row_embed, self.col_embed = nn.Parameter(torch.rand(50, 16)), nn.Parameter(torch.rand(50, 16))


def compare_refusals(attn, folder, build, main):
    net, _, _ = build(arguments(main, masks=True, dataset_file="coco_panoptic", enc_layers=1, dec_layers=1))
    refuse(attn, folder, net.state_dict(), "panoptic segmentation")
    refuse(attn, folder, Notebook().state_dict(), "notebook")


# ---------------------------------------------------------------------------------------------- others' networks

def compare_resnets(attn, folder):
    nets = {f"torchvision {n}": getattr(torchvision.models, n)(num_classes=7) for n in ("resnet18", "resnet50")}
    try:
        import timm
        nets |= {f"timm {n}": timm.create_model(n, pretrained=False, num_classes=7) for n in ("resnet34", "resnet50")}
    except ImportError as error:
        print(f"skipped: {error}")
    torch.manual_seed(6)
    x = torch.randn(2, 3, 64, 96)
    for title, net in nets.items():
        net.train()
        with torch.no_grad():
            for _ in range(20):
                net(torch.randn(4, 3, 64, 96))
        torch.save(net.state_dict(), folder / "resnet.pth")
        with torch.no_grad():
            expected = net.double().eval()(x.double())
        found = attn_outputs(attn, folder, folder / "resnet.pth", {}, {"x": x.numpy()}, ["logits"],
                             "resnet-torchvision")
        report(f"{title}: logits", relative(found["logits"], expected))


def compare_hugging_face(attn, folder, pixels):
    try:
        from transformers import DetrConfig, DetrForObjectDetection
        torch.manual_seed(8)
        config = DetrConfig(use_timm_backbone=True, backbone="resnet50", use_pretrained_backbone=False, d_model=64,
                            num_queries=11, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=96, decoder_ffn_dim=96,
                            encoder_attention_heads=4, decoder_attention_heads=4, num_labels=91)
        net = DetrForObjectDetection(config).eval()
    except ImportError as error:
        print(f"skipped: {error}")
        return
    net.save_pretrained(folder / "face")
    (folder / "face/preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": 96, "longest_edge": 128}}))
    with torch.no_grad():
        out = net.double()(pixel_values=pixels)
    compare_found("Hugging Face's, timm's names", detections(attn, folder, "face"), out.logits, out.pred_boxes,
                  pixels.shape[3], pixels.shape[2])


def main():
    attn, tool = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    source = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else "build/detr")
    if not (source / "models/detr.py").is_file():
        print(f"skipped: {source} is no checkout of facebookresearch/detr")
        sys.exit(0)
    sys.path.insert(0, str(source.resolve()))
    try:
        import main as detr_main
        from models import backbone, build_model
        from util.misc import NestedTensor
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(0)
    backbone.is_main_process = lambda: False  # weights would be loaded from the network
    assert isinstance(arguments(detr_main), argparse.Namespace)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        compare_outputs(attn, folder, build_model, detr_main, NestedTensor)
        compare_loss(tool, folder, build_model, detr_main, NestedTensor)
        pixels = compare_files(attn, folder, build_model, detr_main, NestedTensor)
        compare_refusals(attn, folder, build_model, detr_main)
        compare_resnets(attn, folder)
        compare_hugging_face(attn, folder, pixels)
    for title in failed:
        print(f"failed: {title}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
