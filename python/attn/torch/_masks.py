# SPDX-License-Identifier: MIT
"""Masks of Hugging Face's transformers in the engine's forms: bands, keys, chunks, sequences."""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, NamedTuple, Optional, cast

import torch
from torch import Tensor

from .. import _form
from . import _ops


class Pattern(NamedTuple):
    """The pairs of query i and key j, indices in the call, that a mask has: lo <= j - i <= hi,
    `keys` [B,k] is True for j, both are in one chunk of `chunk` positions, and in one of the
    sequences that `offsets` [S+1] divides the positions of the whole batch into."""

    lo: Optional[int] = None
    hi: Optional[int] = None
    keys: Optional[Tensor] = None
    chunk: int = 0
    offsets: Optional[Tensor] = None
    longest: int = 0  # of the sequences


class Mask(Tensor):
    """A boolean mask (B,1,q,k), known by its pattern, without memory; or one without a pattern.  An
    operation of PyTorch makes the numbers that it needs.  Parts and copies of a mask are masks.  A
    sum of a mask and scores is that of eager attention, whose masks are 0 or the least number: some
    models attend by functions of their own."""

    pattern: Optional[Pattern]
    make: Callable[[], Tensor]
    made: Optional[Tensor]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def of(shape: tuple[int, ...], pattern: Optional[Pattern],
           make: Callable[[], Tensor]) -> "Mask":
        new: Any = Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
        found: Mask = new(Mask, shape, dtype=torch.bool, device="cpu")
        found.pattern, found.make, found.made = pattern, make, None
        return found

    def dense(self) -> Tensor:
        """The mask as an ordinary tensor."""
        if self.made is None:
            with torch.no_grad():
                self.made = self.make().expand(self.shape)
        return self.made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        from torch.utils._pytree import tree_map_only

        def opened(x: Mask) -> Tensor:
            return x.dense()

        packet, kwargs = function.overloadpacket, kwargs or {}
        if packet in (_aten.add, _aten.add_):
            scores = [x for x in args if isinstance(x, Tensor) and x.is_floating_point()]
            if scores:
                args = tree_map_only(Mask, lambda x: to_add(x.dense(), scores[0].dtype), args)
        found = function(*tree_map_only(Mask, opened, args), **tree_map_only(Mask, opened, kwargs))
        if packet in _parts_of and isinstance(found, Tensor) and found.dtype == torch.bool:
            return Mask.of(tuple(found.shape), None, lambda: found)
        return found

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"attn.torch.Mask({tuple(self.shape)}, {self.pattern})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.dense().contiguous().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.dense().clone()


_aten = torch.ops.aten
_parts_of = frozenset((
    _aten.alias, _aten.clone, _aten.detach, _aten.expand, _aten.permute, _aten.select, _aten.slice,
    _aten.squeeze, _aten.transpose, _aten.unsqueeze, _aten.view, _aten._unsafe_view, _aten._to_copy,
    _aten.index_select, _aten.repeat))


def to_add(given: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as the numbers that eager attention adds to scores."""
    zero = torch.zeros((), dtype=dtype, device=given.device)
    return torch.where(given, zero, torch.finfo(dtype).min)


def _parts(function: Any) -> Optional[list[tuple[Any, ...]]]:
    """The restrictions that one of transformers' own mask functions stands for; None for others.
    These functions are closures: their names and variables tell."""
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return None
    name = function.__qualname__.split(".")[0]
    held = {variable: cell.cell_contents
            for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}
    if name == "causal_mask_function":
        return [("band", None, 0)]
    if name == "bidirectional_mask_function":
        return []
    if name == "sliding_window_overlay":
        return [("band", 1 - held["sliding_window"], None)]
    if name == "sliding_window_bidirectional_overlay":
        return [("band", -held["sliding_window"], held["sliding_window"])]
    if name == "packed_sequence_mask_function":
        return [("sequences", held["packed_sequence_mask"])]
    if name == "chunked_overlay":
        return [("chunk", held["chunk_size"], held["left_padding"])]
    if name == "and_masks":
        found: list[tuple[Any, ...]] = []
        for inner in map(_parts, held["mask_functions"]):
            if inner is None:
                return None
            found += inner
        return found
    if name == "remap_positions_for_packed_sequence":
        # Positions count up by one in a sequence: differences of indices are those of positions.
        inner = _parts(held["mask_function"])
        return None if inner is None else [*inner, ("remapped",)]
    return None


def _narrower(one: Optional[int], other: Optional[int], choose: Any) -> Optional[int]:
    return other if one is None else one if other is None else choose(one, other)


def _pattern(parts: list[tuple[Any, ...]], padding: Optional[Tensor], shape: tuple[int, int, int],
             q_offset: int, kv_offset: int) -> Optional[Pattern]:
    """The pattern of these parts; None where the engine has no form for it."""
    batch, queries, keys = shape
    lo = hi = None
    chunks, sequences, remapped = [], [], False
    for kind, *rest in parts:
        if kind == "band":
            lo, hi = _narrower(lo, rest[0], max), _narrower(hi, rest[1], min)
        elif kind == "chunk":
            chunks.append(rest)
        elif kind == "sequences":
            sequences.append(rest[0])
        else:
            remapped = True
    ahead = q_offset - kv_offset
    lo, hi = (None if side is None else side + ahead for side in (lo, hi))
    visible = None if padding is None else padding[:, kv_offset:kv_offset + keys].to(torch.bool)
    if visible is not None and visible.shape not in ((batch, keys), (1, keys)):
        return None
    if visible is not None and bool(visible.all()):
        visible = None
    if chunks:
        size, left = chunks[0]
        if len(chunks) > 1 or sequences or bool((left != 0).any()):
            return None
        if queries == 1:
            begin = q_offset // size * size - kv_offset
            return Pattern(_narrower(lo, begin, max), hi, visible)
        return None if q_offset or kv_offset else Pattern(lo, hi, visible, size)
    if not sequences:
        return None if remapped else Pattern(lo, hi, visible)
    if len(sequences) > 1 or visible is not None or queries != keys or q_offset or kv_offset:
        return None
    numbers = sequences[0].expand(batch, queries)
    starts = torch.ones(batch, queries, dtype=torch.bool, device="cpu")
    starts[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    first = starts.flatten().nonzero()[:, 0]
    offsets = torch.nn.functional.pad(first, (0, 1), value=batch * queries)
    return Pattern(lo, hi, None, 0, offsets.to(torch.int32), int(offsets.diff().max()))


def _by_interface(kind: type) -> bool:
    """Whether models of a class of configs attend by the functions that are registered: the file of
    these models has them.  Without such a file they do."""
    for base in kind.__mro__:
        *folder, file = base.__module__.split(".")
        found = sys.modules.get(".".join([*folder, file.replace("configuration_", "modeling_")]))
        if found is not None and file.startswith("configuration_"):
            return hasattr(found, "ALL_ATTENTION_FUNCTIONS")
    return True


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
         mask_function: Optional[Callable[..., Any]] = None,
         attention_mask: Optional[Tensor] = None, **options: Any) -> Optional[Tensor]:
    """The function that transformers calls for masks: a Mask where the engine has a form for it, or
    one without a form.  Graphs get the mask of PyTorch's own attention, and models whose attention
    is not the registered function that of eager attention."""
    from transformers import masking_utils as theirs

    function = theirs.causal_mask_function if mask_function is None else mask_function
    said: dict[str, Any] = {
        "batch_size": batch_size, "q_length": q_length, "kv_length": kv_length,
        "q_offset": q_offset, "kv_offset": kv_offset, "mask_function": function,
        "attention_mask": attention_mask, **options}
    if options.get("config") is not None and not _by_interface(type(options["config"])):
        return cast(Tensor, theirs.eager_mask(**said))
    if _ops.watched():
        return cast(Optional[Tensor], theirs.sdpa_mask(**said))
    said.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    make = functools.partial(theirs.sdpa_mask, **said)
    if torch.device(options.get("device", "cpu")).type != "cpu":
        return cast(Tensor, make())
    form, parts = (batch_size, 1, q_length, kv_length), _parts(function)
    if parts is None:
        return Mask.of(form, None, make)
    padding = theirs.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    shape = batch_size, q_length, kv_length
    pattern = _pattern(parts, padding, shape, int(q_offset), int(kv_offset))
    return Mask.of(form, pattern, make)


def seen(pattern: Pattern, queries: int, keys: int) -> tuple[int, int]:
    """The range of keys outside of which no query sees any."""
    first = 0 if pattern.lo is None else min(max(pattern.lo, 0), keys)
    end = keys if pattern.hi is None else max(min(pattern.hi + queries, keys), first)
    return first, end


def band(pattern: Pattern, queries: int, first: int, keys: int) -> tuple[int, ...]:
    """A pattern's band as a relation of indices, for a slice of the keys that starts at `first`."""
    lo = None if pattern.lo is None or pattern.lo - first <= 1 - queries else pattern.lo - first
    hi = None if pattern.hi is None or pattern.hi - first >= keys - 1 else pattern.hi - first
    if lo is None and hi is None:
        return ()
    return (_form.BAND, ord("q"), ord("k"), -_form.OPEN if lo is None else lo,
            _form.OPEN if hi is None else hi)
