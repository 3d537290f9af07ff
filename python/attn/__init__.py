# SPDX-License-Identifier: MIT
"""Attention on NumPy arrays by the C library attn: the engine, every layer and model, and finished applications.

    o = attn.attend(q, k, v, causal=True)                        # q, k, v [B,T,H,D], any strides
    layer = attn.build("multi-head-attention", {"num_hiddens": 64, "num_heads": 4})
    y = layer(x, x, x)                                           # x [B,T,64]
    grads = layer.backward(dy)                                   # {"queries": ..., "keys": ..., "values": ...}
    vectors = attn.Encoder("all-MiniLM-L6-v2").encode(["How are you?"])    # [1,384]
    attn.plot.explore(weights, tokens, "page.html")              # pictures: attn.plot
    attn.open("en-fr").translate("Where is the station?")        # Translator, Classifier, Detector, Generator, Alignments
    attn.bleu(hypotheses, references).score                      # as sacreBLEU; coco_evaluate: as pycocotools
"""
from . import plot
from ._alignments import Alignments, Embedding
from ._architectures import Architecture, Setting, Port, architectures
from ._attend import attend, attend_backward
from ._encoder import Encoder
from ._errors import (ArgumentError, BusyError, Error, FileError, FormatError, InternalError, InterruptError,
                      NotFoundError, OutOfMemoryError, ShapeError, UnsupportedError)
from ._library import lib as _lib
from ._measures import Bleu, CocoCategory, CocoScores, bleu, chrf, coco_evaluate
from ._model import Model, build, load
from ._neighborhood import neighborhood_attention, neighborhood_attention_backward
from ._open import open_model as open
from ._translator import Translation, Translator
from ._vision import Classifier, Detector, Generator

__version__: str = _lib.version().decode()

__all__ = ["Alignments", "Architecture", "ArgumentError", "Bleu", "BusyError", "Classifier", "CocoCategory", "CocoScores",
           "Detector", "Embedding", "Encoder", "Error", "FileError", "FormatError", "Generator", "InternalError", "InterruptError",
           "Model", "NotFoundError", "OutOfMemoryError", "Port", "Setting", "ShapeError", "Translation", "Translator",
           "UnsupportedError", "architectures", "attend", "attend_backward", "bleu", "build", "chrf", "coco_evaluate",
           "load", "neighborhood_attention", "neighborhood_attention_backward", "open", "plot"]
