# SPDX-License-Identifier: MIT
"""The right object for a model at a path."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, Optional, Union

from . import _library as c
from ._alignments import Alignments
from ._application import optional_path, precision_of
from ._encoder import Encoder
from ._library import Context, lib
from ._model import Model, Path, _path, load
from ._translator import Translator
from ._vision import Classifier, Detector, Generator

# By the kind of training that makes such a model (attn_trainer_of). An application of a new kind is one more row.
_KINDS: Dict[str, Callable[..., Any]] = {
    "translate": lambda path, precision, threads, names: Translator(path, names=names, intra_threads=threads,
                                                                    compute_type=precision_of(precision, "precision")),
    "classify": lambda path, precision, threads, names: Classifier(path, precision=precision, threads=threads, names=names),
    "detect": lambda path, precision, threads, names: Detector(path, precision=precision, threads=threads, names=names),
    "images": lambda path, precision, threads, names: Generator(path, precision=precision, threads=threads, names=names),
    "msa": lambda path, precision, threads, names: Alignments(path, precision=precision, threads=threads, names=names),
}


def kind_of(path: Path, names: Optional[Path] = None) -> Optional[str]:
    context, found = Context(1), ctypes.POINTER(c.Trainer)()
    context.hold(context)
    try:
        context.check(lib.trainer_of(ctypes.byref(found), context.pointer, _path(path), optional_path(names)))
        kind: Optional[bytes] = found.contents.kind if found else None
        return kind.decode() if kind else None
    finally:
        context.drop(context)


def open_model(path: Path, *, precision: Optional[str] = None, threads: int = 0, names: Optional[Path] = None
               ) -> Union[Translator, Classifier, Detector, Generator, Alignments, Encoder, Model]:
    """Opens a model by what it is for: a directory of a training, of MarianMT, of Marian, of an encoder, of a DETR or of a Vision
    Transformer, or a file of weights of ESM, of a DETR or of a Vision Transformer.

    Returns a Translator, Classifier, Detector, Generator or Alignments; an Encoder for a directory of an encoder with its
    tokenizer and for a .pt file of ESM-2; a Model, as attn.load does, where the model is for none of these tasks. names: a
    names file for weights with foreign names, or the name of a built-in one."""
    kind = kind_of(path, names)
    own = kind if names is None else kind_of(path)
    if own is None and os.path.isfile(path) and os.fspath(path).endswith(".pt"):  # of ESM-2, by its tensors
        return Encoder(path, precision=precision, threads=threads, names=None if names is None else os.fspath(names))
    if kind in _KINDS:
        opened: Union[Translator, Classifier, Detector, Generator, Alignments] = _KINDS[kind](path, precision, threads, names)
        return opened
    model = load(path, precision=precision, threads=threads, names=names)
    if model.architecture.name == "transformer-encoder" and model._folder is not None:
        encoder = Encoder._of_model(model, model._folder)
        if encoder._info.tokenizer or encoder._info.protein:
            encoder._model = model  # which must live longer
            return encoder
    return model
