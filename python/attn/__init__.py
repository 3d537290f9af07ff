# SPDX-License-Identifier: MIT
"""Attention on NumPy arrays by the C library attn: the engine, every layer and model.

    o = attn.attend(q, k, v, causal=True)                        # q, k, v [B,T,H,D], any strides
    layer = attn.build("multi-head-attention", {"num_hiddens": 64, "num_heads": 4})
    y = layer(x, x, x)                                           # x [B,T,64]
    grads = layer.backward(dy)                                   # {"queries": ..., "keys": ..., "values": ...}
    vectors = attn.Encoder("all-MiniLM-L6-v2").encode(["How are you?"])    # [1,384]
    attn.plot.explore(weights, tokens, "page.html")              # pictures: attn.plot
"""
from . import plot
from ._architectures import Architecture, Setting, Port, architectures
from ._attend import attend, attend_backward
from ._encoder import Encoder
from ._errors import (ArgumentError, BusyError, Error, FileError, FormatError, InternalError, InterruptError,
                      NotFoundError, OutOfMemoryError, ShapeError, UnsupportedError)
from ._library import lib as _lib
from ._model import Model, build, load
from ._neighborhood import neighborhood_attention, neighborhood_attention_backward

__version__: str = _lib.version().decode()

__all__ = ["Architecture", "ArgumentError", "BusyError", "Encoder", "Error", "FileError", "FormatError", "InternalError",
           "InterruptError", "Setting", "Model", "NotFoundError", "OutOfMemoryError", "Port", "ShapeError",
           "UnsupportedError", "architectures", "attend", "attend_backward", "build", "load", "neighborhood_attention",
           "neighborhood_attention_backward", "plot"]
