# SPDX-License-Identifier: MIT
"""Published encoders: texts and proteins to vectors, with the calls of sentence-transformers."""
from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np

from . import _library as c
from ._errors import ArgumentError, UnsupportedError
from ._library import Context, lib

Array = np.ndarray[Any, Any]
Texts = Union[str, Iterable[str]]
_POOLS = ("own", "mean", "cls", "max", "last", "none")
_OWN, _YES = 0, 1


class Encoder:
    """An encoder as it was published: a directory of Hugging Face or sentence-transformers (BERT, RoBERTa, DistilBERT,
    ModernBERT, ESM-2), or a .pt file of ESM-2.

        encoder = attn.Encoder("all-MiniLM-L6-v2")
        vectors = encoder.encode(["How are you?", "Fine."])          # [2, 384], float32

    Several threads may use one encoder: their calls run one at a time.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], precision: Optional[str] = None, threads: int = 0,
                 max_length: int = 0, regression: Optional[str] = None, names: Optional[str] = None) -> None:
        """`precision` is "f32", "fma", "bf16" or "int8". `max_length` is the most tokens of a text; 0: what the
        directory says. `regression` is the file of ESM's contact regression, if it is not beside the checkpoint."""
        from ._model import _path, _precision
        chosen = _precision(precision)
        context = Context(threads, chosen)
        lib.context_set_inference(context.pointer, True)
        options = c.EncoderLoadOptions(precision=chosen, max_length=max_length)
        if regression is not None:
            options.regression = _path(regression)
        if names is not None:
            options.names = _path(names)
        self._open(context, lambda made: lib.encoder_load(made, context.pointer, _path(os.fspath(path)),
                                                          ctypes.byref(options)))

    def _open(self, context: Context, make: Any) -> None:
        self._context, self._encoder = context, ctypes.c_void_p()
        self._model: Any = None  # which lives longer
        context.hold(id(self))
        try:
            with context.lock:
                context.check(make(ctypes.byref(self._encoder)))
        except BaseException:
            context.drop(id(self))
            raise
        self._info = lib.encoder_about(self._encoder).contents

    @classmethod
    def _of_model(cls, model: Any, folder: str) -> "Encoder":
        """An encoder of a loaded model and of the files beside its weights. The model must live longer."""
        from ._model import _path
        made = cls.__new__(cls)
        made._open(model._context, lambda to: lib.encoder_wrap(to, model._model, _path(folder)))
        return made

    def __del__(self) -> None:
        encoder = getattr(self, "_encoder", None)
        if encoder and lib is not None:
            with self._context.lock:
                lib.encoder_destroy(encoder)
            self._context.drop(id(self))
        self._model = None  # is destroyed after the encoder

    def __repr__(self) -> str:
        what = "proteins" if self._info.protein else "texts"
        return f"<attn.Encoder of {what}: {self.dim} channels, at most {self.max_seq_length} tokens>"

    @property
    def dim(self) -> int:
        """Channels of a vector."""
        return int(self._info.dim)

    @property
    def max_seq_length(self) -> int:
        """Most tokens of a text, with special tokens. Longer texts are cut; longer proteins are computed in windows."""
        return int(self._info.max_length)

    def get_sentence_embedding_dimension(self) -> int:
        """Returns `dim`, under the name of sentence-transformers."""
        return self.dim

    def _tokens(self, texts: Sequence[str]) -> Any:
        """The tokens of the texts; free them with _free. The lock is held."""
        tokens = (c.EncoderText * len(texts))()
        try:
            for i, text in enumerate(texts):
                if not isinstance(text, str):
                    raise ArgumentError(f"sentence {i} is not a text: {text!r}")
                data = text.encode("utf-8", "replace")
                self._context.check(lib.encoder_tokens(self._encoder, data, len(data), ctypes.byref(tokens[i])),
                                    f"sentence {i}" if len(texts) > 1 else "")
        except BaseException:
            self._free(tokens)
            raise
        return tokens

    def _free(self, tokens: Any) -> None:
        for text in tokens:
            lib.encoder_text_free(self._encoder, ctypes.byref(text))

    def _run(self, tokens: Any, options: c.EncoderOptions) -> tuple[Array, list[int]]:
        """The vectors of all tokens' texts, and how many rows each has."""
        counts = [int(lib.encoder_rows(self._encoder, ctypes.byref(text), ctypes.byref(options))) for text in tokens]
        vectors = np.empty((sum(counts), self.dim), np.float32)
        self._context.check(lib.encoder_run(self._encoder, tokens, len(tokens), ctypes.byref(options),
                                            vectors.ctypes.data_as(ctypes.c_void_p)))
        return vectors, counts

    def encode(self, sentences: Texts, prompt_name: Optional[str] = None, prompt: Optional[str] = None,
               batch_size: int = 32, show_progress_bar: Optional[bool] = None,
               output_value: str = "sentence_embedding", precision: str = "float32", convert_to_numpy: bool = True,
               convert_to_tensor: bool = False, device: Optional[str] = None, normalize_embeddings: bool = False,
               truncate_dim: Optional[int] = None, pool: str = "own") -> Any:
        """Computes the vectors of texts, as SentenceTransformer.encode does: [texts, dim], or [dim] for a single text.

        `prompt` stands before each text; `prompt_name` is one of the directory's prompts. output_value
        "token_embeddings" gives a list of arrays [tokens, dim]. With convert_to_tensor the result is a tensor of
        PyTorch, and without convert_to_numpy a list of arrays. normalize_embeddings divides by the length; vectors of
        a directory with a module Normalize are divided anyway. `truncate_dim` keeps the first channels. `pool` is
        "own" (the directory's pooling), "mean", "cls", "max" or "last". Texts are sorted by length and computed
        together without padding, so that `batch_size` changes nothing but speed; `show_progress_bar` is ignored.
        Raises UnsupportedError for another `device` or `precision` than "cpu" and "float32".
        """
        if device not in (None, "cpu"):
            raise UnsupportedError(f'device is {device!r}; only "cpu" is supported')
        if precision != "float32":
            raise UnsupportedError(f"precision is {precision!r}; the vectors can only be float32 (the precision of products is an "
                                   "argument of attn.Encoder)")
        if output_value not in ("sentence_embedding", "token_embeddings"):
            raise UnsupportedError(f'output_value is {output_value!r}; expected "sentence_embedding" or "token_embeddings"')
        if pool not in _POOLS or pool == "none":
            raise ArgumentError(f"pool must be one of {', '.join(_POOLS[:-1])}, not {pool!r}")
        if batch_size < 1:
            raise ArgumentError(f"batch_size is {batch_size}; it must be at least 1")
        if truncate_dim is not None and truncate_dim < 1:
            raise ArgumentError(f"truncate_dim is {truncate_dim}; it must be at least 1")
        if isinstance(sentences, (bytes, bytearray)) or not hasattr(sentences, "__iter__"):
            raise ArgumentError(f"sentences must be a text or several texts, not {sentences!r:.80}")
        many = output_value == "token_embeddings"
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        options = c.EncoderOptions(pool=_POOLS.index("none" if many else pool),
                                   normalize=_YES if normalize_embeddings else _OWN)
        with self._context.lock:
            own = None if prompt is None else c.text(prompt, "prompt")
            named = None if prompt_name is None else c.text(prompt_name, "prompt_name")
            self._context.check(lib.encoder_prompt(self._encoder, own, named))
            tokens = self._tokens(texts)
            try:
                vectors, counts = self._run(tokens, options)
            finally:
                self._free(tokens)
        vectors = vectors if truncate_dim is None else vectors[:, :truncate_dim]
        if truncate_dim is not None and normalize_embeddings and not many:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return self._given(vectors, counts, many, single, convert_to_numpy, convert_to_tensor)

    @staticmethod
    def _given(vectors: Array, counts: list[int], many: bool, single: bool, as_numpy: bool, as_tensor: bool) -> Any:
        convert: Any = lambda x: x
        if as_tensor:
            convert = importlib.import_module("torch").from_numpy
        if many:
            rows = np.cumsum([0, *counts])
            parts = [convert(vectors[a:b]) for a, b in zip(rows[:-1], rows[1:])]
            return parts[0] if single else parts
        if single:
            return convert(vectors[0])
        return convert(vectors) if as_numpy or as_tensor else [convert(x) for x in vectors]

    def _encode_as(self, name: str, sentences: Texts, how: dict[str, Any]) -> Any:
        if how.get("prompt") is None and how.get("prompt_name") is None:
            with self._context.lock:
                known = lib.encoder_prompt(self._encoder, None, name.encode()) == 0
                if not known:
                    lib.context_clear_error(self._context.pointer)
            how["prompt_name"] = name if known else None
        return self.encode(sentences, **how)

    def encode_query(self, sentences: Texts, **how: Any) -> Any:
        """Does the same as `encode`, with the directory's prompt "query" if it has one."""
        return self._encode_as("query", sentences, how)

    def encode_document(self, sentences: Texts, **how: Any) -> Any:
        """Does the same as `encode`, with the directory's prompt "document" if it has one."""
        return self._encode_as("document", sentences, how)

    @staticmethod
    def similarity(a: Any, b: Any) -> Array:
        """Returns the cosine of each row of `a` with each row of `b`."""
        unit: Any = lambda x: x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
        return np.asarray(unit(np.atleast_2d(np.asarray(a))) @ unit(np.atleast_2d(np.asarray(b))).T)

    def contacts(self, protein: str) -> Array:
        """Returns the probability [residues, residues] that two residues of a protein are within 8 A (ESM-2). NaN: no
        window of a long protein has both."""
        with self._context.lock:
            tokens = self._tokens([protein])
            try:
                n = max(int(tokens[0].n) - 2, 0)
                found = np.empty((n, n), np.float32)
                self._context.check(lib.encoder_contacts(self._encoder, ctypes.byref(tokens[0]),
                                                         found.ctypes.data_as(ctypes.c_void_p)))
            finally:
                self._free(tokens)
        return found
