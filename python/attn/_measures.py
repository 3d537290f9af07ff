# SPDX-License-Identifier: MIT
"""How good translations and detections are, equal to sacreBLEU and pycocotools."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _library as c
from ._application import text_array
from ._arrays import Array, as_array
from ._errors import ArgumentError
from ._library import Context, lib
from ._model import Path, _path


class Bleu(NamedTuple):
    """Corpus BLEU, with sacreBLEU's names."""

    score: float  # 0 to 100
    precisions: List[float]
    bp: float  # brevity penalty
    sys_len: int
    ref_len: int


# The references of each hypothesis, or sacreBLEU's streams, which are several lists of one reference for each hypothesis.
References = Union[Sequence[str], Sequence[Sequence[Optional[str]]]]


def _texts(hypotheses: Iterable[str], references: Iterable[Any]) -> Tuple[Any, Any, Any, int]:
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, (str, bytes)):
            raise ArgumentError(f"{name} must be a list of texts, not the single text {texts!r:.80}")
    said = [c.text(h, "a hypothesis") for h in hypotheses]
    given = list(references)
    streams: List[List[Optional[str]]] = [given] if all(isinstance(r, str) for r in given) else [list(r) for r in given]
    if not given or any(len(stream) != len(said) for stream in streams):
        raise ArgumentError(f"{len(said)} hypotheses are given, but {', '.join(str(len(s)) for s in streams) or 'no'} references; "
                            "expected a list with one reference for each hypothesis, or several such lists")
    right, counts = [], []
    for i in range(len(said)):
        some = [c.text(stream[i], "a reference") for stream in streams if stream[i] is not None]
        if not some:
            raise ArgumentError(f"hypothesis {i} has no reference")
        right += some
        counts.append(len(some))
    return text_array(said), text_array(right), (ctypes.c_int64 * max(len(counts), 1))(*counts), len(said)


def _measure(function: Any, result: Any, hypotheses: Iterable[str], references: References) -> None:
    said, right, counts, n = _texts(hypotheses, references)
    context = Context(1)
    context.hold(context)
    try:
        context.check(function(ctypes.byref(result), context.pointer, said, right, counts, n))
    finally:
        context.drop(context)


def bleu(hypotheses: Iterable[str], references: References) -> Bleu:
    """Corpus BLEU as sacrebleu.corpus_bleu computes it with its defaults (tokenizer 13a, exponential smoothing)."""
    result = c.Bleu()
    _measure(lib.bleu_corpus, result, hypotheses, references)
    return Bleu(result.score, list(result.precisions), result.brevity_penalty, result.prediction_length,
                result.reference_length)


def chrf(hypotheses: Iterable[str], references: References) -> float:
    """Corpus chrF2, 0 to 100, as sacrebleu.corpus_chrf computes it with its defaults."""
    result = ctypes.c_double()
    _measure(lib.chrf_corpus, result, hypotheses, references)
    return result.value


class CocoCategory(NamedTuple):
    id: int
    name: str
    objects: int  # in the annotations, without crowds
    ap: float  # -1: there are none


class CocoScores(NamedTuple):
    """COCO's evaluation of boxes. `stats` has the twelve numbers of pycocotools' COCOeval.stats, in its order; `named`
    has them as "AP", "AP50", "AP75", "APsmall", "APmedium", "APlarge", "AR1", "AR10", "AR100", "ARsmall", ..."""

    stats: Array
    named: Dict[str, float]
    categories: List[CocoCategory]
    left_out: int  # detections of categories that the annotations lack


def _detections(results: Any) -> Any:
    """The library's structs of a list of COCO's results, or of an array [n, 7] as COCO.loadRes takes it."""
    if not isinstance(results, (list, tuple)) and hasattr(results, "shape"):
        rows = as_array(results, "results").astype(np.float64)
        if rows.ndim != 2 or rows.shape[1] != 7:
            raise ArgumentError(f"results has the shape {list(rows.shape)}; expected [n, 7]: image, left, top, width, "
                                "height, score, category")
        values = [(int(r[0]), int(r[6]), *map(float, r[1:6])) for r in rows]
    else:
        values = []
        for i, one in enumerate(results):
            try:
                left, top, width, height = one["bbox"]
                values.append((int(one["image_id"]), int(one["category_id"]), float(left), float(top), float(width),
                               float(height), float(one["score"])))
            except (KeyError, TypeError, ValueError) as error:
                raise ArgumentError(f"result {i} must be {{image_id, category_id, bbox, score}}: {error!r}") from None
    structs = (c.CocoDetection * max(len(values), 1))()
    for i, value in enumerate(values):
        structs[i] = c.CocoDetection(*value)
    return structs, len(values)


def coco_evaluate(annotations: Union[Path, Mapping[str, Any]], results: Any, threads: int = 0) -> CocoScores:
    """Evaluates detections as pycocotools' COCOeval with iouType "bbox" does.

    annotations: COCO's file, its contents as a dict, or a pycocotools.coco.COCO. results: COCO's file of results, a list
    of {image_id, category_id, bbox, score} as Detector.coco gives it, or an array [n, 7] of image, left, top, width, height,
    score and category."""
    if hasattr(annotations, "dataset"):
        annotations = annotations.dataset
    if isinstance(annotations, Mapping):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "annotations.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(annotations, file)
            return coco_evaluate(path, results, threads)
    context, found = Context(threads), c.CocoResult()
    context.hold(context)
    try:
        if isinstance(results, (str, os.PathLike)):
            status = lib.coco_evaluate(ctypes.byref(found), context.pointer, _path(annotations), _path(results), None, 0)
        else:
            structs, n = _detections(results)
            status = lib.coco_evaluate(ctypes.byref(found), context.pointer, _path(annotations), None, structs, n)
        context.check(status)
        named = {lib.coco_measure_name(i).decode(): found.measures[i] for i in range(c.COCO_MEASURES)}
        categories = [CocoCategory(k.id, k.name.decode(), k.objects, k.ap) for k in found.categories[:found.n]]
        return CocoScores(np.array(list(named.values())), named, categories, found.left_out)
    finally:
        lib.coco_result_free(context.pointer, ctypes.byref(found))
        context.drop(context)
