# SPDX-License-Identifier: MIT
"""Alignments of protein families: the MSA Transformer's contacts, embeddings and scores of mutations."""
from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union, overload

import numpy as np

from . import _library as c
from ._application import Application, optional_path
from ._arrays import Array
from ._errors import ArgumentError
from ._library import lib
from ._model import Path, _path

# A path; or sequences, or (name, sequence) pairs as facebookresearch/esm takes them, the query first.
Family = Union[str, "os.PathLike[str]", Iterable[Union[str, Tuple[str, str]]]]
_LETTERS = "ACDEFGHIKLMNPQRSTVWY"
_SYMBOLS = "LAGVSERTIDPKQNFYMHWCXBUZO"  # tokens 4 and on
_MASK = 32
_CHOICES = ("diverse", "first", "random", "weighted")


class Embedding(NamedTuple):
    """Representations of a family: `rows` [R, L, D] without <cls>, and `mean` [D] of the query over its columns."""

    rows: Array
    mean: Array


class Alignments(Application):
    """An MSA Transformer: ESM-MSA-1b or ESM-MSA-1 as downloaded (.pt), or a directory of attn.

        model = attn.Alignments("esm_msa1b_t12_100M_UR50S.pt")
        model.contacts("family.a3m")                             # probabilities [L, L]
        model.score("family.a3m", ["A42G", "A42G:L50P"])         # log-likelihood ratios
        model.embed([("query", "MKV-LI"), ("other", "MRVALI")])  # an Embedding

    A family is a path (a3m, a2m, FASTA, Stockholm, Clustal, also .gz), or sequences of equal length, the query first. L is
    the number of columns and R the number of sequences that are read. depth, select ("diverse", "first", "random",
    "weighted") and seed say which ones. memory bounds the planned bytes of a run.
    """

    def __init__(self, path: Path, *, regression: Optional[Path] = None, names: Optional[Path] = None,
                 precision: Optional[str] = None, threads: int = 0, memory: int = 0) -> None:
        """regression: the contact regression's file; default: the one beside the checkpoint."""
        folder = _path(path)
        options = c.MsaLoadOptions(regression=optional_path(regression), names=optional_path(names))
        super().__init__(path, lambda made, context: int(lib.msa_load(made, context, folder, ctypes.byref(options))),
                         lib.msa_destroy, precision, threads)
        self._memory = memory

    def _read(self, family: Family, depth: int, select: str, seed: int) -> "_Read":
        if select not in _CHOICES:
            raise ArgumentError(f"select must be one of {', '.join(_CHOICES)}, not {select!r}")
        options = c.MsaFamilyOptions(depth=depth, choice=_CHOICES.index(select), seed=seed)
        return _Read(self._context, family, options)

    def _run(self, tokens: Array, **wanted: Any) -> c.MsaResult:
        result, options = c.MsaResult(), c.MsaOptions(memory=self._memory, **wanted)
        rows, cols = tokens.shape
        self._context.check(lib.msa_run(self._handle, tokens.ctypes.data, 1, rows, cols, ctypes.byref(options),
                                        ctypes.byref(result)))
        return result

    def contacts(self, family: Family, *, depth: int = 128, select: str = "diverse", seed: int = 1) -> Array:
        """The probability [L, L] that two residues are within 8 A of each other."""
        with self._context.lock, self._read(family, depth, select, seed) as read:
            return _first(self._run(read.tokens, contacts=True).contacts)

    def logits(self, family: Family, *, depth: int = 128, select: str = "diverse", seed: int = 1) -> Array:
        """The logits [R, 1 + L, 33] of the symbols at <cls> and each residue."""
        with self._context.lock, self._read(family, depth, select, seed) as read:
            return _first(self._run(read.tokens, logits=True).logits)

    def row_attentions(self, family: Family, *, depth: int = 128, select: str = "diverse", seed: int = 1) -> Array:
        """The weights [layers, heads, 1 + L, 1 + L] that all rows share."""
        with self._context.lock, self._read(family, depth, select, seed) as read:
            return _first(self._run(read.tokens, row_maps=True).row_maps)

    def embed(self, family: Family, layer: int = -1, *, depth: int = 128, select: str = "diverse",
              seed: int = 1) -> Embedding:
        """The representations after `layer` (0: the embedding; -1: the last layer, normalized)."""
        with self._context.lock, self._read(family, depth, select, seed) as read:
            layers = (ctypes.c_int64 * 1)(layer)
            result = self._run(read.tokens, layers=layers, nlayers=1)
            rows = _first(result.representations[0])[:, 1:]
        return Embedding(rows, rows[0].mean(axis=0))

    @overload
    def score(self, family: Family, mutations: str, *, offset: int = 0, depth: int = 128,  # type: ignore
              select: str = "diverse", seed: int = 1) -> float: ...

    @overload
    def score(self, family: Family, mutations: Iterable[str], *, offset: int = 0, depth: int = 128,
              select: str = "diverse", seed: int = 1) -> List[float]: ...

    def score(self, family: Family, mutations: Union[str, Iterable[str]], *, offset: int = 0, depth: int = 128,
              select: str = "diverse", seed: int = 1) -> Union[float, List[float]]:
        """The score of each mutation, such as "A42G" or "A42G:L50P": the sum over its changes of log p(new) - log p(old),
        where p is predicted with the residue of the query masked. A single text gives a single number. Residues count
        from 1 + offset, over all residues of the query."""
        listed = [mutations] if isinstance(mutations, str) else list(mutations)
        with self._context.lock, self._read(family, depth, select, seed) as read:
            changes = [read.changes(m, offset) for m in listed]
            known: Dict[int, Array] = {}
            for column in sorted({column for parts in changes for column, _, _ in parts}):
                known[column] = self._masked(read.tokens, column + 1)
            scores = [sum(float(known[column][new] - known[column][old]) for column, old, new in parts)
                      for parts in changes]
        return scores[0] if isinstance(mutations, str) else scores

    def _masked(self, tokens: Array, at: int) -> Array:
        """Log-probabilities of the symbols at a place of the query that is masked."""
        there = tokens[0, at]
        tokens[0, at] = _MASK
        try:
            logits = _first(self._run(tokens, logits=True).logits)[0, at].astype(np.float64)
        finally:
            tokens[0, at] = there
        largest = logits.max()
        probabilities: Array = logits - largest - np.log(np.exp(logits - largest).sum())
        return probabilities


class _Read:
    """An alignment as tokens [R, C], inside a `with` that holds the context's lock."""

    def __init__(self, context: c.Context, family: Family, options: c.MsaFamilyOptions) -> None:
        self._context, self._family, self._options, self._struct = context, family, options, c.MsaFamily()

    def __enter__(self) -> "_Read":
        read, options = ctypes.byref(self._struct), ctypes.byref(self._options)
        if isinstance(self._family, (str, os.PathLike)):
            self._context.check(lib.msa_family_read(read, self._context.pointer, _path(os.fspath(self._family)), options))
        else:
            text = _fasta(self._family)
            self._context.check(lib.msa_family_parse(read, self._context.pointer, text, len(text), b"the sequences.fasta",
                                                     options))
        rows, cols = self._struct.rows, self._struct.cols
        self.tokens: Array = np.ctypeslib.as_array(self._struct.tokens, (rows, cols)).copy()
        self._query = (self._struct.query or b"").decode()
        self._numbers = [self._struct.numbers[i] for i in range(cols - 1)]
        return self

    def __exit__(self, *_: Any) -> None:
        lib.msa_family_free(self._context.pointer, ctypes.byref(self._struct))

    def changes(self, mutation: str, offset: int) -> Sequence[Tuple[int, int, int]]:
        """The changes of "A42G:L50P" as (column, token before, token after)."""
        found: List[Tuple[int, int, int]] = []
        for part in mutation.split(":"):
            match = re.fullmatch(rf"([{_LETTERS}])(-?\d+)([{_LETTERS}])", part)
            if not match:
                raise ArgumentError(f"{mutation!r} is not a mutation such as A42G or A42G:L50P; the amino acids are {_LETTERS}")
            old, number, new = match[1], int(match[2]) - offset, match[3]
            if not 1 <= number <= len(self._query):
                raise ArgumentError(f"{mutation}: there is no residue {match[2]}; the query has the residues {offset + 1} to "
                                    f"{offset + len(self._query)}")
            if self._query[number - 1] != old:
                raise ArgumentError(f"{mutation}: residue {match[2]} of the query is {self._query[number - 1]}, not {old}")
            if number not in self._numbers:
                raise ArgumentError(f"{mutation}: residue {match[2]} of the query is an insertion, which the model does not "
                                    "read")
            column = self._numbers.index(number)
            if any(column == other for other, _, _ in found):
                raise ArgumentError(f"{mutation} replaces residue {match[2]} twice")
            found.append((column, 4 + _SYMBOLS.index(old), 4 + _SYMBOLS.index(new)))
        return found


def _fasta(family: Iterable[Union[str, Tuple[str, str]]]) -> bytes:
    lines = []
    for i, item in enumerate(family):
        name, sequence = (str(i), item) if isinstance(item, str) else item
        lines.append(f">{name}\n{sequence}\n")
    if not lines:
        raise ArgumentError("a family must have at least one sequence, the query")
    return c.text("".join(lines), "the sequences")


def _first(tensor: int) -> Array:
    """A copy of the result for the one alignment of a run."""
    shape = lib.tensor_shape(tensor)
    sizes = tuple(shape[i] for i in range(1, lib.tensor_rank(tensor)))
    data = ctypes.cast(lib.tensor_data(tensor), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(data, sizes).copy() if 0 not in sizes else np.zeros(sizes, np.float32)
