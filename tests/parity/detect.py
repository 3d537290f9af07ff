# SPDX-License-Identifier: MIT
"""Detecting and ten steps of fine-tuning, compared with Hugging Face's DETR in PyTorch: python detect.py ATTN

A random DETR of ResNet-18's form on pictures of two sizes, so that some are padded, which are one batch.  Boxes of one
picture must agree to 2e-3 pixels and scores to 1e-5; the losses of ten steps to 1e-4 of themselves, with the backbone's
own rate, frozen stages, frozen norms and auxiliary losses."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

STEPS, RATE, DECAY, CLIP = 10, 1e-4, 1e-4, 0.1
NAMES = ("circle", "square", "triangle")
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def model():
    torch.manual_seed(4)
    backbone = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[2, 2, 2, 2], layer_type="basic",
                            out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, backbone=None, backbone_config=backbone, d_model=32, num_queries=9,
                        encoder_layers=2, decoder_layers=3, encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0,
                        encoder_attention_heads=8, decoder_attention_heads=8, attention_dropout=0.0,
                        activation_dropout=0.0, auxiliary_loss=True, id2label=dict(enumerate(NAMES)))
    made = DetrForObjectDetection(config)
    with torch.no_grad():
        for name, buffer in made.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                buffer.uniform_(-0.2, 0.2)
    return made


def pictures(folder):
    """Six pictures with up to three objects each, and their annotations."""
    torch.manual_seed(5)
    (folder / "images").mkdir(parents=True)
    images, targets, listed, objects = [], [], [], []
    for i in range(6):
        height, width = (64, 96) if i % 2 else (80, 64)
        image = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8)
        name = f"images/{i + 1}.ppm"
        (folder / name).write_bytes(b"P6 %d %d 255\n" % (width, height) + image.numpy().tobytes())
        listed.append({"id": i + 1, "file_name": name, "width": width, "height": height})
        labels, boxes = [], []
        for k in range(i % 4):
            w, h = (int(n) for n in torch.randint(8, 30, (2,)))
            x, y = int(torch.randint(0, width - w, (1,))), int(torch.randint(0, height - h, (1,)))
            labels.append(int(torch.randint(0, 3, (1,))))
            boxes.append([(x + w / 2) / width, (y + h / 2) / height, w / width, h / height])
            objects.append({"id": len(objects) + 1, "image_id": i + 1, "category_id": labels[-1], "bbox": [x, y, w, h],
                            "area": w * h, "iscrowd": 0})
        images.append(((image.float() / 255 - MEAN) / STD).permute(2, 0, 1))
        targets.append({"class_labels": torch.tensor(labels, dtype=torch.int64),
                        "boxes": torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4)})
    (folder / "annotations.json").write_text(json.dumps(
        {"images": listed, "annotations": objects, "categories": [{"id": i, "name": n} for i, n in enumerate(NAMES)]}))
    return images, targets


def batch_of(images):
    height, width = max(i.shape[1] for i in images), max(i.shape[2] for i in images)
    x, mask = torch.zeros(len(images), 3, height, width), torch.zeros(len(images), height, width, dtype=torch.int64)
    for i, image in enumerate(images):
        x[i, :, :image.shape[1], :image.shape[2]] = image
        mask[i, :image.shape[1], :image.shape[2]] = 1
    return x.double(), mask


def compare_boxes(attn, work, net, images):
    """Of each picture alone, all boxes."""
    told = subprocess.run([attn, "detect", *(f"data/images/{i + 1}.ppm" for i in range(len(images))), "--model", "net",
                           "--threshold", "0", "--json"], cwd=work, check=True, stdout=subprocess.PIPE).stdout
    worst_score = worst_box = 0.0
    for found, image in zip(json.loads(told), images):
        with torch.no_grad():
            out = net(pixel_values=image[None].double())
        scores = out.logits[0].softmax(-1)[:, :-1].max(-1).values
        cx, cy, w, h = out.pred_boxes[0].unbind(-1)
        size = torch.tensor([found["width"], found["height"]] * 2)
        boxes = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1) * size
        for one, score in zip(found["detections"], scores.sort(descending=True).values):
            own = torch.tensor([one["box"][k] for k in ("xmin", "ymin", "xmax", "ymax")], dtype=torch.float64)
            worst_box = max(worst_box, (boxes - own).abs().max(-1).values.min().item())
            worst_score = max(worst_score, abs(score.item() - one["score"]))
    print(f"boxes: at most {worst_box:.1e} pixels from PyTorch's, scores {worst_score:.1e}")
    return worst_box > 2e-3 or worst_score > 1e-5


def compare_settings(attn, work, net, images):
    """preprocessor_config.json and config.json: followed, with the scores of the first picture, or refused by name."""
    raw = images[0] * STD[:, None, None] + MEAN[:, None, None]  # from 0 to 1
    original = json.loads((work / "net/config.json").read_text())
    bad = False
    for preparation, values in (
            ({}, images[0]), ({"do_normalize": False}, raw), ({"do_rescale": False}, (raw * 255 - MEAN[:, None, None]) / STD[:, None, None]),
            ({"rescale_factor": 1 / 127.5}, (raw * 2 - MEAN[:, None, None]) / STD[:, None, None]),
            ({"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}, raw), ({"do_resize": False, "size": 999}, images[0])):
        (work / "net/preprocessor_config.json").write_text(json.dumps({"size": 64, "max_size": 96, **preparation}))
        print(preparation, end=" ")
        bad |= compare_boxes(attn, work, net, [values])
    preparations = [{"size": {"height": 64, "width": 64}}, {"size": {"max_height": 64, "max_width": 96}}, {"resample": 3},
                    {"pad_size": {"height": 99, "width": 99}}]
    configs = [{"auxiliary_loss": True}, {"activation_function": "gelu"}, {"model_type": "table-transformer"}, {"model_type": "conditional_detr"},
               {"backbone": "resnetblur18"}, {"backbone_config": {**original["backbone_config"], "hidden_act": "gelu"}},
               {"backbone_config": {**original["backbone_config"], "downsample_in_bottleneck": True}},
               {"backbone_config": {"model_type": "timm_backbone", "output_stride": 8}},
               {"backbone_config": {"model_type": "swin"}},
               # sizes that the tensors do not have: transformers leaves out the blocks beyond them
               {"encoder_layers": 1}, {"decoder_layers": 2}, {"d_model": 64}, {"num_queries": 5}, {"decoder_ffn_dim": 96},
               {"backbone_config": {**original["backbone_config"], "depths": [1, 2, 2, 2]}},
               {"id2label": {str(i): str(i) for i in range(4)}}]
    for name, settings in [("preprocessor_config.json", s) for s in preparations] + [("config.json", s) for s in configs]:
        (work / "net/preprocessor_config.json").write_text('{"size": 64, "max_size": 96}')
        (work / "net/config.json").write_text(json.dumps(original))
        base = json.loads((work / "net" / name).read_text())
        (work / "net" / name).write_text(json.dumps({**base, **settings}))
        done = subprocess.run([attn, "detect", "data/images/1.ppm", "--model", "net"], cwd=work, capture_output=True, text=True)
        key = list(settings)[0]
        if done.returncode == 0 or key not in done.stderr:
            print(f"{name} {settings} is passed over: {done.stderr}")
            bad = True
    (work / "net/preprocessor_config.json").write_text('{"size": 64, "max_size": 96}')
    # no model_type; and dilation, which transformers' own ResNet does not have
    (work / "net/config.json").write_text(json.dumps({**{k: v for k, v in original.items() if k != "model_type"}, "dilation": True}))
    bad |= compare_boxes(attn, work, net, images[:1])
    (work / "net/config.json").write_text(json.dumps(original))
    return bad


def compare_training(attn, work, net, images, targets):
    subprocess.run([attn, "train", "detect", "--data", "data", "--from", "net", "--out", "tuned", "--size", "0", "--batch",
                    str(len(images)), "--epochs", str(STEPS), "--valid", "0", "--warmup", "0", "--schedule", "constant",
                    "--rate", str(RATE), "--weight-decay", str(DECAY), "--clip", str(CLIP), "--flip=false", "--crop=false",
                    "--dropout", "0", "--keep", "last", "--quiet"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    x, mask = batch_of(images)
    for name, p in net.named_parameters():  # transformers freezes all stages of this form, and of others the first
        if "backbone" in name:
            p.requires_grad_("embedder" not in name and "stages.0." not in name)
    trained = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
    groups = [{"params": [p for name, p in trained if "backbone" in name], "lr": RATE / 10},
              {"params": [p for name, p in trained if "backbone" not in name]}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=DECAY)
    net.train()
    torch.set_default_dtype(torch.float64)  # of the weights of classes
    losses = []
    for _ in range(STEPS):
        loss = net(pixel_values=x, pixel_mask=mask, labels=targets).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
    lines = [line.split("\t") for line in (work / "tuned/history.tsv").read_text().splitlines()]
    column = lines[0].index("train_loss")
    worst = max(abs(float(line[column]) / loss - 1) for line, loss in zip(lines[1:], losses))
    print(f"loss: at most {worst:.1e} of itself from PyTorch's in {STEPS} steps ({losses[0]:.4f} to {losses[-1]:.4f})")
    return worst > 1e-4


def main():
    attn = str(pathlib.Path(sys.argv[1]).resolve())
    work = pathlib.Path(tempfile.mkdtemp())
    images, targets = pictures(work / "data")
    net = model()
    net.save_pretrained(work / "net")
    (work / "net/preprocessor_config.json").write_text(json.dumps({"size": 64, "max_size": 96}))
    # transformers computes the losses of all blocks only with a setting that also norms their states, which the first weights,
    # 1 and 0, leave as they are; attn refuses it
    config = json.loads((work / "net/config.json").read_text())
    (work / "net/config.json").write_text(json.dumps({**config, "auxiliary_loss": False}))
    net = net.double().eval()
    bad = compare_boxes(attn, work, net, images)
    bad |= compare_settings(attn, work, net, images)
    sys.exit(compare_training(attn, work, net, images, targets) or bad)


if __name__ == "__main__":
    main()
