# SPDX-License-Identifier: MIT
"""Masks of Hugging Face's transformers in the engine's forms: bands, keys, chunks, sequences."""
from __future__ import annotations

import functools
import inspect
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
    """A boolean mask (B,1,q,k): its pattern, without memory, or the tensor `made`.

    The pattern holds all that the numbers depend on, as it was when the mask was requested.  The first
    use by others makes the numbers for good: each operation, those that write among them, then has the
    ordinary tensor `made`, and so has attn.  Parts and copies of a mask are masks.  A sum of a mask and
    scores is that of eager attention, whose masks are 0 or the least number: some models attend by
    functions of their own."""

    sizes: tuple[int, ...]  # the shape; reading that is an operation
    pattern: Optional[Pattern]
    made: Optional[Tensor]
    shared: bool  # whether others have `made`, and may write to it

    @staticmethod
    def of(sizes: tuple[int, ...], pattern: Optional[Pattern], made: Optional[Tensor] = None,
           shared: bool = False) -> "Mask":
        new: Any = Tensor  # some releases of PyTorch give what makes subclasses no types
        found: Mask = new._make_wrapper_subclass(Mask, sizes, dtype=torch.bool, device="cpu")
        if _no_memory is not None:
            _no_memory(found)
        found.sizes, found.pattern, found.made, found.shared = sizes, pattern, made, shared
        return found

    def known(self) -> Optional[Pattern]:
        """The pattern, if the mask is still as it was requested."""
        return None if self.shared else self.pattern

    def dense(self) -> Tensor:
        """The mask as an ordinary tensor, for reading."""
        if self.made is None:
            with torch.no_grad():
                self.made = _pairs(cast(Pattern, self.pattern), self.sizes)
        return self.made

    def share(self) -> Tensor:
        """The mask as an ordinary tensor, for others."""
        if not self.shared:
            self.made, self.shared = self.dense().contiguous(), True
        return self.dense()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _PROPERTIES and not args[0].shared:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs or {})
        named = function.__self__ if function.__name__ in ("__get__", "__set__") else function
        return _applied(function, named.__name__, args, kwargs or {})

    @_ops._classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """For operations that do not ask __torch_function__, as vmap's."""
        return _applied(function, function.overloadpacket.__name__, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"attn.torch.Mask({self.sizes}, {self.pattern})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        shared: Any = self.share()
        return shared.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.dense().clone(memory_format=torch.contiguous_format)


# What reads memory without PyTorch's operations, as an extension in C++, gets an error; without this, no memory.
_no_memory = getattr(torch._C, "_set_throw_on_mutable_data_ptr", None)
_PROPERTIES = frozenset(
    [getattr(Tensor, name).__get__ for name in (
        "device", "dtype", "is_cpu", "is_cuda", "is_meta", "is_mps", "is_nested", "is_quantized", "is_sparse", "is_xpu",
        "layout", "ndim", "requires_grad", "shape")]
    + [getattr(Tensor, name) for name in (
        "__len__", "dim", "element_size", "get_device", "is_complex", "is_floating_point", "ndimension", "nelement", "numel",
        "size")]
    + [torch.is_complex, torch.is_floating_point, torch.numel])
_PARTS = frozenset((
    "H", "T", "__getitem__", "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "bool", "broadcast_to", "chunk", "clone",
    "contiguous", "cpu", "data", "detach", "expand", "expand_as", "flatten", "index_select", "mH", "mT", "movedim", "moveaxis",
    "narrow", "permute", "ravel", "repeat", "repeat_interleave", "reshape", "reshape_as", "select", "slice", "split", "squeeze",
    "swapaxes", "swapdims", "t", "tensor_split", "tile", "to", "transpose", "type", "type_as", "unbind", "unflatten",
    "unsqueeze", "view", "view_as"))
_SUMS = frozenset(("__add__", "__iadd__", "__radd__", "add", "add_"))


def _applied(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """An operation of others on masks."""
    from torch.utils._pytree import tree_leaves, tree_map_only

    given = tree_leaves((args, kwargs))
    masks = [x for x in given if isinstance(x, Mask)]

    def opened(x: Mask) -> Tensor:
        return x.share()

    if name in _SUMS and not (name in ("__iadd__", "add_") and isinstance(args[0], Mask)):
        scores = next((x for x in given if isinstance(x, Tensor) and not isinstance(x, Mask) and x.is_floating_point()), None)
        if scores is not None:
            dtype = scores.dtype

            def opened(x: Mask) -> Tensor:
                return to_add(x.dense(), dtype)

    with torch._C.DisableTorchFunctionSubclass():
        found = function(*tree_map_only(Mask, opened, args), **tree_map_only(Mask, opened, kwargs))
    for x in masks:
        if found is x.made:
            return x
    return tree_map_only(Tensor, _part, found) if name in _PARTS else found


def _part(x: Tensor) -> Tensor:
    return Mask.of(tuple(x.shape), None, x, True) if x.dtype == torch.bool and x.is_cpu and type(x) is Tensor else x


def _pairs(pattern: Pattern, sizes: tuple[int, ...]) -> Tensor:
    """A pattern as a mask of all pairs."""
    batch, _, queries, keys = sizes
    i, j = torch.arange(queries, device="cpu")[:, None], torch.arange(keys, device="cpu")
    seen = torch.ones(1, 1, queries, keys, dtype=torch.bool, device="cpu")
    if pattern.lo is not None:
        seen &= j - i >= pattern.lo
    if pattern.hi is not None:
        seen &= j - i <= pattern.hi
    if pattern.chunk:
        seen &= j // pattern.chunk == i // pattern.chunk
    if pattern.keys is not None:
        seen = seen & pattern.keys[:, None, None, :]
    if pattern.offsets is not None:
        positions = torch.arange(batch * queries, dtype=torch.int32, device="cpu")
        sequence = torch.bucketize(positions, pattern.offsets, right=True).view(batch, 1, queries)
        seen = seen & (sequence[..., None] == sequence[..., None, :])
    return seen.expand(sizes)


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
    if name == "causal_mask_function":
        return [("band", None, 0)]
    if name == "bidirectional_mask_function":
        return []
    held = {variable: cell.cell_contents
            for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}
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
    if visible is not None:
        visible = None if bool(visible.all()) else visible.clone()
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
    known = _interfaces.get(kind)
    if known is not None:
        return known
    for base in kind.__mro__:
        *folder, file = base.__module__.split(".")
        found = sys.modules.get(".".join([*folder, file.replace("configuration_", "modeling_")]))
        if found is not None and file.startswith("configuration_"):
            _interfaces[kind] = hasattr(found, "ALL_ATTENTION_FUNCTIONS") and not _extends_masks(found)
            return _interfaces[kind]
    return True


_interfaces: dict[type, bool] = {}


def _extends_masks(file: Any) -> bool:
    """Whether models that know eager attention's masks only append to them, as DeepSeek-V4's attention does."""
    kinds = [x for x in vars(file).values() if isinstance(x, type) and x.__module__ == file.__name__]
    if any(getattr(x, "_supports_sdpa", False) for x in kinds):
        return False
    forwards = [inspect.unwrap(x.__dict__["forward"]) for x in kinds if inspect.isfunction(x.__dict__.get("forward"))]
    names = [set(x.__code__.co_names) for x in forwards]
    return any({"ALL_ATTENTION_FUNCTIONS", "cat", "pad"} <= x for x in names)


@functools.lru_cache(maxsize=1)
def _theirs() -> Any:
    from transformers import masking_utils

    return masking_utils


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
         mask_function: Optional[Callable[..., Any]] = None,
         attention_mask: Optional[Tensor] = None, **options: Any) -> Optional[Tensor]:
    """The function that transformers calls for masks: a Mask where the engine has a form for it, or
    the mask of all pairs, made at once, since what it depends on may change, as a cache's length does.
    A single query that sees all keys needs none.  Graphs get the mask of PyTorch's own attention, and
    models whose attention is not the registered function that of eager attention."""
    theirs = _theirs()
    function = theirs.causal_mask_function if mask_function is None else mask_function

    def made(of: Callable[..., Any], **others: Any) -> Any:
        return of(**{"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
                     "kv_offset": kv_offset, "mask_function": function, "attention_mask": attention_mask, **options, **others})

    if options.get("config") is not None and not _by_interface(type(options["config"])):
        return cast(Tensor, made(theirs.eager_mask))
    if _ops.watched():
        return cast(Optional[Tensor], made(theirs.sdpa_mask))
    if q_length == 1 and attention_mask is None and function is theirs.causal_mask_function and not kv_offset \
            and options.get("allow_is_causal_skip") and q_offset == kv_length - 1:
        return None  # as below, in less time
    if attention_mask is None and function is getattr(theirs, "bidirectional_mask_function", None) \
            and options.get("allow_is_bidirectional_skip") and torch.device(options.get("device", "cpu")).type == "cpu":
        return None  # all keys, which modules of encoders see without a mask
    whole = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    if torch.device(options.get("device", "cpu")).type != "cpu":
        return cast(Tensor, made(theirs.sdpa_mask, **whole))
    parts = _parts(function)
    pattern = None
    if parts is not None:
        padding = theirs.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        pattern = _pattern(parts, padding, (batch_size, q_length, kv_length), int(q_offset), int(kv_offset))
    if pattern is None:
        return Mask.of((batch_size, 1, q_length, kv_length), None, made(theirs.sdpa_mask, **whole))
    if q_length == 1 and options.get("allow_is_causal_skip") and pattern.keys is None and not pattern.chunk \
            and pattern.offsets is None and seen(pattern, 1, kv_length) == (0, kv_length):
        return None
    return Mask.of((batch_size, 1, q_length, kv_length), pattern)


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
