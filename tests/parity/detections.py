#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares COCO's evaluation of boxes in attn with pycocotools on random detections.

    detections.py ATTN [--rounds N] [--seed S]      prints the largest difference; exit code 1 if it exceeds 1e-9
    detections.py ATTN --images N                   the processor time of both for N images of 100 detections
    detections.py --fixture                         the cases and numbers of tests/test_boxes.c

The cases have crowds, areas that differ from the boxes', equal scores and overlaps, categories without objects, images without
detections, more than 100 detections in an image, ids with holes and in any order, among them 0, and boxes
without area.
"""
import argparse
import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile

import numpy as np

NAMES = ["AP", "AP50", "AP75", "APsmall", "APmedium", "APlarge", "AR1", "AR10", "AR100", "ARsmall", "ARmedium", "ARlarge"]


def box(rng, tied):
    """Boxes of a coarse grid overlap alike; the others do not."""
    if tied:
        return [float(v) for v in rng.integers(0, 6, 2) * 20] + [float(v) for v in rng.integers(0, 4, 2) * 20]
    return [round(float(v), 3) for v in (rng.uniform(-20, 500), rng.uniform(-20, 300), *np.exp(rng.uniform(0, 5.5, 2)))]


def near(rng, b):
    return [v + float(rng.normal(0, 0.1)) * max(b[2 + i % 2], 1) if i < 2 else v * float(np.exp(rng.normal(0, 0.15))) for i, v in enumerate(b)]


def random_case(rng, images=12, categories=5, most_objects=12, most_detections=160):
    image_ids = rng.choice(2000, images, replace=False) - 1000
    category_ids = rng.choice(90, categories, replace=False) + 1
    tied, first_id = bool(rng.integers(2)), int(rng.integers(3)) - 1  # pycocotools takes a match with the id 0 for none
    annotations, results = [], []
    for image in image_ids:
        objects = []
        for _ in range(rng.integers(0, most_objects)):
            b = box(rng, tied)
            objects.append((int(rng.choice(category_ids[:-1])), b))  # the last category has no objects
            area = b[2] * b[3] * (float(rng.uniform(0.3, 1)) if rng.integers(2) else 1)
            if rng.integers(12) == 0:
                area = float(rng.choice([32 ** 2, 96 ** 2]))
            annotations.append({"id": len(annotations) + first_id, "image_id": int(image), "category_id": objects[-1][0], "bbox": b, "area": area,
                                "iscrowd": int(rng.integers(8) == 0)})
        if rng.integers(6) == 0:
            continue
        for _ in range(rng.integers(0, most_detections)):
            if objects and rng.integers(3):
                category, b = objects[rng.integers(len(objects))]
                b = b if tied and rng.integers(2) else near(rng, b)
            else:
                category, b = int(rng.choice(category_ids)), box(rng, tied)
            if rng.integers(20) == 0:
                b = [b[0], b[1], -b[2], b[3]]
            score = int(rng.integers(1, 10)) / 10 if rng.integers(2) else float(rng.uniform())
            results.append({"image_id": int(image), "category_id": category, "bbox": b, "score": score})
    if rng.integers(3) == 0 and len(category_ids) > 2:  # one category takes all: more than 100 detections in a group
        for r in results:
            r["category_id"] = int(category_ids[0])
    order = rng.permutation(len(results))
    return ({"images": [{"id": int(i), "width": 640, "height": 480} for i in image_ids], "annotations": annotations,
             "categories": [{"id": int(c), "name": f"c{c}"} for c in category_ids]}, [results[i] for i in order])


def evaluated(annotations, results):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    with contextlib.redirect_stdout(io.StringIO()) as said:
        truth = COCO()
        truth.dataset = annotations
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    text = "".join(line + "\n" for line in said.getvalue().splitlines() if "@[" in line)
    by_category = []
    for k in range(len(evaluation.params.catIds)):
        p = evaluation.eval["precision"][:, :, k, 0, 2]
        by_category.append(float(np.mean(p[p > -1])) if (p > -1).any() else -1.0)
    return [float(v) for v in evaluation.stats], by_category, text


def attn(command, annotations, results, *options):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("annotations.json", "results.json")]
        for path, content in zip(paths, (annotations, results)):
            with open(path, "w") as file:
                json.dump(content, file)
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run([command, "eval", "--coco", paths[1], "--data", paths[0], *options], capture_output=True, text=True)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    if run.returncode:
        raise SystemExit(f"attn: {run.stderr}")
    return run.stdout, seconds


def compare(command, rounds, seed):
    worst = 0
    for i in range(rounds):
        rng = np.random.default_rng([seed, i])
        annotations, results = random_case(rng, images=int(rng.integers(1, 30)), categories=int(rng.integers(2, 8)))
        if not results:
            continue
        stats, by_category, text = evaluated(annotations, results)
        printed, _ = attn(command, annotations, results)
        for theirs, ours in zip(text.splitlines(), printed.splitlines()):
            if theirs[:-5] != ours[:-5] or abs(float(theirs.split()[-1]) - float(ours.split()[-1])) > 0.0011:
                raise SystemExit(f"round {i}: the printed lines differ:\n{theirs}\n{ours}")
        got = json.loads(attn(command, annotations, results, "--json")[0])
        own = [got[name] for name in NAMES] + [c["AP"] for c in got["categories"]]
        worst = max([worst] + [abs(a - b) for a, b in zip(own, stats + by_category, strict=True)])
    print(f"{rounds} rounds, largest difference {worst:.3g}")
    return worst > 1e-9


def fixture_case(seed):
    """The case of tests/test_boxes.c: the same numbers in the same order."""
    state = seed

    def below(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        return (state >> 33) % n

    images = [{"id": i * 37 % 101 - 20} for i in range(10)]
    annotations, results = [], []
    for i, image in enumerate(images):
        first = len(annotations)
        for _ in range(below(8)):
            x, y, w, h = below(8) * 16 - 8, below(8) * 16 - 8, 8 + below(12) * 12, 8 + below(12) * 12
            annotations.append({"id": len(annotations) + 1, "image_id": image["id"], "category_id": 5 + 3 * below(3), "bbox": [x, y, w, h],
                                "area": w * h * (1 + below(4)) / 4, "iscrowd": int(below(7) == 0)})
        for _ in range(0 if i == 3 else 130 if i == 5 else below(20)):
            if len(annotations) > first and below(3):
                near_to = annotations[first + below(len(annotations) - first)]
                x, y, w, h = near_to["bbox"]
                category, x, y, w = near_to["category_id"], x + below(9) - 4, y + below(9) - 4, w + below(5)
            else:
                category, x, y, w, h = 5 + 3 * below(4), below(8) * 16, below(8) * 16, 8 + below(12) * 12, 8 + below(12) * 12
            results.append({"image_id": image["id"], "category_id": 5 if i == 5 else category, "bbox": [x, y, w, h], "score": below(20) / 20})
    return {"images": images, "annotations": annotations, "categories": [{"id": 5 + 3 * k, "name": str(k)} for k in range(4)]}, results


def print_fixture():
    for seed in (1, 2, 3):
        annotations, results = fixture_case(seed)
        stats, by_category, _ = evaluated(annotations, results)
        print(f"    {{{seed}, {len(annotations['annotations'])}, {len(results)},\n     {{{', '.join(repr(v) for v in stats)}}},\n"
              f"     {{{', '.join(repr(v) for v in by_category)}}}}},")


def race(command, images):
    rng = np.random.default_rng(0)
    annotations, results = random_case(rng, images=4, categories=80)
    annotations.update(annotations=[], images=[])
    results = []
    ids = [c["id"] for c in annotations["categories"]]
    for image in range(images):
        annotations["images"].append({"id": image + 1, "width": 640, "height": 480})
        objects = [(int(rng.choice(ids)), box(rng, False)) for _ in range(rng.integers(0, 15))]
        for category, b in objects:
            annotations["annotations"].append({"id": len(annotations["annotations"]) + 1, "image_id": image + 1, "category_id": category,
                                               "bbox": b, "area": b[2] * b[3], "iscrowd": 0})
        for _ in range(100):
            category, b = objects[rng.integers(len(objects))] if objects and rng.integers(2) else (int(rng.choice(ids)), box(rng, False))
            results.append({"image_id": image + 1, "category_id": category, "bbox": near(rng, b), "score": float(rng.uniform())})
    text = json.dumps(annotations), json.dumps(results)
    import pycocotools.cocoeval  # noqa: F401, so that its import is not counted
    begin = time.process_time()
    stats, by_category, _ = evaluated(json.loads(text[0]), json.loads(text[1]))
    whole = time.process_time() - begin
    printed, seconds = attn(command, annotations, results, "--json")
    got = json.loads(printed)
    worst = max(abs(a - b) for a, b in zip([got[n] for n in NAMES] + [c["AP"] for c in got["categories"]], stats + by_category, strict=True))
    print(f"{images} images, {len(annotations['annotations'])} objects, {len(results)} detections, with reading: pycocotools {whole:.2f} s, "
          f"attn {seconds:.2f} s, difference {worst:.3g}")
    return worst > 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attn", nargs="?")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int)
    parser.add_argument("--fixture", action="store_true")
    arguments = parser.parse_args()
    if arguments.fixture:
        return print_fixture()
    if arguments.images:
        return race(arguments.attn, arguments.images)
    return compare(arguments.attn, arguments.rounds, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
