# SPDX-License-Identifier: MIT
"""Pictures: classes, objects, and pictures drawn anew. Results are those of Hugging Face's pipelines."""
from __future__ import annotations

import ctypes
import operator
from typing import Any, Iterable, List, Optional, Tuple, TypedDict, Union, overload

import numpy as np

from . import _library as c
from ._application import Application, Images, Picture, optional_path, taken
from ._arrays import Array, shown
from ._errors import ArgumentError
from ._library import lib
from ._model import Path, _path


class ClassScore(TypedDict):
    label: str
    score: float


class Box(TypedDict):
    xmin: float
    ymin: float
    xmax: float
    ymax: float


class FoundObject(TypedDict):
    score: float
    label: str
    box: Box


class CocoResult(TypedDict):
    image_id: int
    category_id: int
    bbox: List[float]
    score: float


def _names(function: Any, handle: Any) -> List[str]:
    found: List[str] = []
    while True:
        name = function(handle, len(found))
        if name is None:
            return found
        found.append(name.decode())


class Classifier(Application):
    """A classifier of pictures from its directory, or a published Vision Transformer (names="vit-timm", ...).

        classifier = attn.Classifier("clothes")
        classifier("shirt.png")                        # [{"label": "shirt", "score": 0.93}, ...]
        classifier(["a.png", "b.png"], top_k=1)        # a list of such lists

    A picture is a path, an array [height, width] or [height, width, 3] of uint8, or PIL's.
    """

    def __init__(self, path: Path, *, names: Optional[Path] = None, precision: Optional[str] = None, threads: int = 0) -> None:
        folder, foreign = _path(path), optional_path(names)
        super().__init__(path, lambda made, context: int(lib.classifier_load(made, context, folder, foreign)),
                         lib.classifier_destroy, precision, threads)
        self.labels: List[str] = _names(lib.classifier_class_name, self._handle)

    def _about(self) -> str:
        return f"{len(self.labels)} classes, "

    @overload
    def __call__(self, images: Picture, top_k: int = 5) -> List[ClassScore]: ...  # type: ignore

    @overload
    def __call__(self, images: Iterable[Picture], top_k: int = 5) -> List[List[ClassScore]]: ...

    def __call__(self, images: Union[Picture, Iterable[Picture]], top_k: int = 5
                 ) -> Union[List[ClassScore], List[List[ClassScore]]]:
        """The top_k likeliest classes of a picture, or of each of several: [{"label", "score"}], the best first."""
        try:
            best = min(operator.index(top_k), len(self.labels))
        except TypeError:
            raise ArgumentError(f"top_k is {shown(top_k)}, which is not a whole number") from None
        if best < 1:
            raise ArgumentError(f"top_k is {top_k}; it must be at least 1")
        with self._context.lock, Images(self._context, images) as given:
            guesses = (c.Prediction * max(given.n * best, 1))()
            if given.n:
                self._context.check(lib.classifier_classify(self._handle, given.structs, given.n, best, guesses))
            results = [[ClassScore(label=self.labels[g.label], score=g.probability)
                        for g in guesses[i * best:(i + 1) * best]] for i in range(given.n)]
        return results[0] if given.single else results


class Detector(Application):
    """A detector of objects: a directory of attn or of Hugging Face, or a checkpoint of DETR's authors (.pth).

        detector = attn.Detector("detr-r50.pth")
        detector("street.jpg", threshold=0.7)
        # [{"score": 0.99, "label": "car", "box": {"xmin": 12.3, "ymin": ..., "xmax": ..., "ymax": ...}}, ...]

    The numbers of a box are in pixels, and not rounded, as they are in transformers. A picture is as for Classifier.
    """

    def __init__(self, path: Path, *, names: Optional[Path] = None, class_names: Optional[Path] = None, size: int = 0,
                 precision: Optional[str] = None, threads: int = 0) -> None:
        """size: the short side in pixels to which pictures are resized; 0: the model's own."""
        folder = _path(path)
        options = c.DetectorOptions(names=optional_path(names), class_names=optional_path(class_names), size=size)
        super().__init__(path, lambda made, context: int(lib.detector_load(made, context, folder, ctypes.byref(options))),
                         lib.detector_destroy, precision, threads)
        self.labels: List[str] = _names(lib.detector_class_name, self._handle)
        self._ids = [lib.detector_class_id(self._handle, i) for i in range(len(self.labels))]

    def _about(self) -> str:
        return f"{len(self.labels)} classes, "

    def _found(self, images: Union[Picture, Iterable[Picture]]) -> Tuple[List[Any], bool]:
        queries = lib.detector_queries(self._handle)
        with self._context.lock, Images(self._context, images) as given:
            results = []
            for i in range(given.n):
                found = (c.Detection * queries)()
                self._context.check(lib.detector_detect(self._handle, ctypes.byref(given.structs[i]), found))
                results.append(found)
        return results, given.single

    @overload
    def __call__(self, images: Picture, threshold: float = 0.5) -> List[FoundObject]: ...  # type: ignore

    @overload
    def __call__(self, images: Iterable[Picture], threshold: float = 0.5) -> List[List[FoundObject]]: ...

    def __call__(self, images: Union[Picture, Iterable[Picture]], threshold: float = 0.5
                 ) -> Union[List[FoundObject], List[List[FoundObject]]]:
        """The objects of a picture, or of each of several, whose score is at least `threshold`, the best first."""
        try:
            least = float(threshold)
        except (TypeError, ValueError):
            raise ArgumentError(f"threshold is {shown(threshold)}, which is not a number") from None
        results, single = self._found(images)
        listed = [[FoundObject(score=f.score, label=self.labels[f.label],
                               box=Box(xmin=f.left, ymin=f.top, xmax=f.right, ymax=f.bottom))
                   for f in found if f.score >= least] for found in results]
        return listed[0] if single else listed

    def coco(self, images: Iterable[Picture], image_ids: Iterable[int]) -> List[CocoResult]:
        """All boxes of each picture as COCO's results, which coco_evaluate takes: {image_id, category_id, bbox, score}."""
        pictures, ids = list(images), [int(i) for i in image_ids]
        if len(pictures) != len(ids):
            raise ArgumentError(f"{len(ids)} ids are given for {len(pictures)} pictures; expected one for each")
        results, _ = self._found(pictures)
        return [CocoResult(image_id=image, category_id=self._ids[f.label],
                           bbox=[f.left, f.top, f.right - f.left, f.bottom - f.top], score=f.score)
                for image, found in zip(ids, results) for f in found]


class Generator(Application):
    """A generator of pictures or videos from its directory (attn train images).

        generator = attn.Generator("drawn")
        pictures = generator.draw(4, seed=1)            # uint8 [4, height, width] or [4, height, width, 3]
        generator.complete("half.png", rows=14)
    """

    def __init__(self, path: Path, *, names: Optional[Path] = None, precision: Optional[str] = None, threads: int = 0) -> None:
        folder, foreign = _path(path), optional_path(names)
        super().__init__(path, lambda made, context: int(lib.generator_load(made, context, folder, foreign)),
                         lib.generator_destroy, precision, threads)
        self.frames: int = lib.generator_frames(self._handle)

    def _about(self) -> str:
        return f"videos of {self.frames} frames, " if self.frames > 1 else "pictures, "

    def draw(self, n: int = 1, *, seed: int = 0, temperature: float = 1.0) -> Array:
        """Draws n pictures [n, height, width(, 3)], or videos [n, frames, height, width(, 3)]. The same seed gives the
        same pictures, and picture i is the same for every n."""
        options = c.GeneratorOptions(seed=seed, temperature=temperature)
        images = (c.Image * max(n * self.frames, 1))()
        with self._context.lock:
            self._context.check(lib.generator_draw(self._handle, n, ctypes.byref(options), images))
            arrays = np.stack(taken(self._context, images, n * self.frames))
        return arrays.reshape(n, self.frames, *arrays.shape[1:]) if self.frames > 1 else arrays

    def complete(self, image: Union[Picture, Iterable[Picture]], rows: int, *, seed: int = 0,
                 temperature: float = 1.0) -> Array:
        """Draws what is below the first `rows` rows of a picture; for videos, of the last of the given frames, and all
        later frames."""
        done = (c.Image * self.frames)()
        with self._context.lock, Images(self._context, image) as given:
            options = c.GeneratorOptions(seed=seed, temperature=temperature, frames=given.n)
            self._context.check(lib.generator_complete(self._handle, given.structs, rows, ctypes.byref(options), done))
            arrays: Array = np.stack(taken(self._context, done, self.frames))
        first: Array = arrays[0]
        return arrays if self.frames > 1 else first
