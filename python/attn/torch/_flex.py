# SPDX-License-Identifier: MIT
"""PyTorch's flex_attention by attn on the CPU, forward and backward, under `enable`.

PyTorch's function stays what it is: the higher-order operator that it calls gets kernels for the CPU.  Two private functions of
its module are replaced while attn is enabled, since they refuse gradients on the CPU before the operator is called, and
since compiled graphs are kept on disk by what the function passes to the operator.
"""
from __future__ import annotations

import importlib.abc
import importlib.util
import math
import sys
import threading
from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor

from .. import _form
from .._form import Problem
from . import _engine, _ops, _score_mods, _sdpa
from ._score_mods import DISTANCE, Band, Refused

_MODULE = "torch.nn.attention.flex_attention"
_MARK = "attn"  # of kernel_options: the call may be attn's
_NO_BLOCKS = 1 << 30  # the block size of a mask that PyTorch makes where none is given
_TAKEN = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16))


class _Call(threading.local):
    left = False  # whether the operator's call under way is PyTorch's


_call = _Call()


# ------------------------------------------------------------------------------------------------ the call


def _refuse_tensors(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> None:
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.device.type != "cpu" or x.dtype not in _TAKEN:
            raise Refused(f"{name} is of {x.dtype} on {x.device}; expected float32, float64, bfloat16 or float16 on the CPU")
        if x.dtype != q.dtype:
            raise Refused(f"{name} is of {x.dtype}, query of {q.dtype}; they must have one type")
    if options.get("OUTPUT_MAX"):
        raise Refused("max_scores is requested; attn does not return the largest scores")


def _blocks(given: Sequence[Any], shape: Sequence[Any]) -> tuple[tuple[Any, ...], Optional[Tensor]]:
    """The relation and the blocks [B or 1, H or 1, ...] of a BlockMask's parts."""
    if len(given) < 7 or isinstance(given[0], Tensor) or not isinstance(given[2], Tensor):
        raise Refused("the BlockMask has the form of another version of PyTorch, which is not supported")
    queries, keys = given[-3], given[-2]
    if queries >= _NO_BLOCKS and keys >= _NO_BLOCKS:
        return (), None
    across = -(-shape[3] // keys)

    def dense(count: Tensor, indices: Tensor) -> Tensor:
        places = indices.shape[-1]
        there = torch.arange(places, device=count.device) < count.unsqueeze(-1)
        at = torch.where(there, indices, places).long()
        return torch.zeros(*count.shape, places + 1, dtype=torch.bool, device=count.device).scatter(
            -1, at, torch.ones_like(at, dtype=torch.bool))[..., :across]

    found = dense(given[2], given[3])
    if given[4] is not None:
        found = found | dense(given[4], given[5])
    found = found[:, :, :-(-shape[2] // queries)].contiguous()
    return (_form.BLOCKS, ord("q"), ord("k"), queries, keys), found


def _range(visible: Tensor, queries: int) -> Optional[Band]:
    """The band of what is visible at n - m from 1 - queries up, where it is one."""
    places = visible.nonzero()
    if not len(places):
        return None
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 != len(places):
        return None
    return Band(None if first == 0 else first + 1 - queries, None if last + 1 == len(visible) else last + 1 - queries)


def _relation(bands: Sequence[Band]) -> tuple[int, ...]:
    lows = [band.lo for band in bands if band.lo is not None]
    highs = [band.hi for band in bands if band.hi is not None]
    if not lows and not highs:
        return ()
    return (_form.BAND, ord("q"), ord("k"), max(lows) if lows else -_form.OPEN, min(highs) if highs else _form.OPEN)


def _pairs(x: Tensor, queries: Any, keys: Any) -> Tensor:
    """The numbers that `table` found by distance, for all pairs."""
    at = torch.arange(keys, device=x.device) - torch.arange(queries, device=x.device).unsqueeze(1) + queries - 1
    return x[:, :, 0, at]


def _attended(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Sequence[Any], scale: float,
              of_scores: Sequence[Any], of_masks: Sequence[Any], values: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exp in base 2, and zeros for the largest scores.  values: tensors have numbers that may be read."""
    batch, heads, queries, _ = q.shape
    keys, shared = k.shape[2], k.shape[1]
    shape = batch, heads, queries, keys
    graph = _score_mods.graph_of(score_mod, True)
    score = _score_mods.score_of(graph)
    masks = _score_mods.graph_of(block_mask[-1], False)
    bands, conditions = score.bands, [] if score.mask is None else [(graph, score.mask, of_scores)]
    if not masks.always(masks.output):
        more, rest = masks.condition(masks.output)
        bands += more
        conditions += [] if rest is None else [(masks, rest, of_masks)]
    mask: Optional[Tensor] = None
    for which, wanted, buffers in conditions:
        found = _score_mods.table(which, wanted, shape, buffers, q.device).to(torch.bool)
        if wanted.kind == DISTANCE:
            band = _range(found.flatten(), queries) if values and found.numel() == found.shape[-1] else None
            if band is not None:
                bands += (band,)
                continue
            found = _pairs(found, queries, keys)
        mask = found if mask is None else mask & found
    bias: Optional[Tensor] = None
    index: Optional[Tensor] = None
    by_index: tuple[Any, ...] = ()
    letters = ""
    sums = _engine.sums_of(q.dtype)
    if score.bias is not None:
        bias = _score_mods.table(graph, score.bias, shape, of_scores, q.device).to(sums)
        if score.bias.kind == DISTANCE:
            bias = bias[:, :, 0].permute(2, 0, 1)
            bias = bias.expand(bias.shape[0], bias.shape[1], heads)
            bias = bias.squeeze(1) if bias.shape[1] == 1 else bias.expand(-1, batch, -1)
            bias = bias.contiguous()
            letters = "1(XY)" if bias.dim() == 2 else "1A(XY)"
            index = torch.arange(bias.shape[0], dtype=torch.int32, device=q.device)
            by_index = (_form.INDEX, ord("q"), ord("k"), -1, 1, queries - 1, queries + keys - 1)
        else:
            letters = "A(XY)qk"
    relations, blocks = _blocks(block_mask, shape)
    times = 1.0 if score.times is None else _score_mods.number(score.times, graph.env((), of_scores))
    factor = scale * _score_mods.number(score.factor, graph.env((), of_scores)) * times
    softcap = 0.0 if score.times is None else abs(times)
    if not math.isfinite(factor) or softcap and not 1e-30 <= softcap <= 1e30 or score.times is not None and not softcap:
        raise Refused(f"the factor of scores is {factor}; it must be finite" if not math.isfinite(factor)
                      else f"the softcap of scores is {softcap}; it must be 1e-30 to 1e30")
    score_kind, factor = _sdpa._scale_of(factor, q.shape[-1])
    memory = "Aq(XY)v" if q.stride(1) < q.stride(2) and heads > 1 else "A(XY)qv"
    form = f"A(XY)qc,AXkc,AXkv->A(XY)qv;{memory};{letters};{'' if mask is None else 'A(XY)qk'}"
    problem = Problem(form, factor, 0.0, relations + _relation(bands) + by_index, score_kind, softcap)
    half = q.dtype == torch.float16
    tensors = (q.float(), k.float(), v.float()) if half else (q, k, v)
    o, lse = _ops.attend(problem, *tensors, bias, mask, index=index, blocks=blocks)
    lse = lse.reshape(batch, shared, heads // max(shared, 1), queries).flatten(1, 2) / math.log(2)
    return (o.to(q.dtype) if half else o), lse, torch.zeros_like(lse, requires_grad=False)


# ------------------------------------------------------------------------------------------------ the kernels


class Hooks:
    """The kernels and functions that attn changes, and those of PyTorch."""

    def __init__(self, on: Callable[[], bool], slower: Callable[[Tensor], Optional[str]], count: Callable[[], None],
                 count_other: Callable[[str, str], None]) -> None:
        self.on, self.slower, self.count, self.count_other = on, slower, count, count_other
        self.operator: Any = getattr(torch._higher_order_ops, "flex_attention", None)
        self.beneath: dict[Any, Any] = {}
        self.replaced: dict[str, Any] = {}

    # ---------------------------------------------------------------------------------------- the operator

    def register(self) -> None:
        keys = torch._C.DispatchKey
        kernels = getattr(self.operator, "py_kernels", {})  # none in versions without the operator
        for key, other in ((keys.AutogradCPU, keys.Autograd), (keys.CPU, keys.CompositeExplicitAutograd)):
            if key not in kernels and other in kernels:  # another package's kernel stays
                self.beneath[key] = kernels[other]
                self.operator.py_impl(key)(self.kernel(key))
        self.forget()

    def remove(self) -> None:
        for key in self.beneath:
            self.operator.py_kernels.pop(key, None)
        self.forget()
        self.beneath.clear()

    def forget(self) -> None:
        if self.beneath:
            self.operator._dispatch_cache.clear()

    def kernel(self, key: Any) -> Callable[..., Any]:
        beneath = self.beneath[key]

        def kernel(q: Tensor, k: Tensor, v: Tensor, score_mod: Any, block_mask: Any, scale: float,
                   kernel_options: dict[str, Any], of_scores: Sequence[Any] = (), of_masks: Sequence[Any] = ()) -> Any:
            why: Optional[str] = None
            records = _ops.records(*(x for x in (q, k, v, *of_scores) if isinstance(x, Tensor)))
            if self.on() and not _call.left:
                kind, traced = type(q), _traced(q, k, v, *block_mask, *of_scores, *of_masks)
                if traced or _ops.eager() and kind in _ops._PLAIN:
                    try:
                        _refuse_tensors(q, k, v, kernel_options)
                        slower = None if records else self.slower(q)  # PyTorch has no backward pass
                        if slower is not None:
                            raise Refused(slower)
                        found = _attended(q, k, v, score_mod, block_mask, scale, of_scores, of_masks, not traced)
                        if not traced:
                            self.count()
                        return found
                    except Refused as error:
                        why = str(error)
            options = {name: x for name, x in kernel_options.items() if name != _MARK}
            if why is not None:
                if records:
                    raise NotImplementedError("FlexAttention does not support backward on CPU, and attn does not compute it: "
                                              f"{why}")
                if not torch.compiler.is_compiling():
                    self.count_other("PyTorch", f"flex_attention: {why}")
            before, _call.left = _call.left, _call.left or why is not None
            try:
                return beneath(q, k, v, score_mod, block_mask, scale, options, of_scores, of_masks)
            finally:
                _call.left = before

        return kernel

    # ---------------------------------------------------------------------------------------- the module

    def switch(self) -> None:
        """Replaces the two functions while attn is enabled, once their module is there."""
        module: Any = sys.modules.get(_MODULE)
        if self.on():
            if module is None or not hasattr(module, "flex_attention"):
                _watch.hooks = self
                if _watch not in sys.meta_path:
                    sys.meta_path.insert(0, _watch)
            elif self.beneath and not self.replaced and hasattr(module, "_validate_device") and hasattr(module, "_apply_kernel_options"):
                validate, options = module._validate_device, module._apply_kernel_options

                def _validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
                    if query.device.type != "cpu":
                        validate(query, key, value)

                def _apply_kernel_options(*given: Any, **named: Any) -> Any:
                    found = options(*given, **named)
                    found[_MARK] = True
                    return found

                self.replaced = {"_validate_device": (validate, _validate_device),
                                 "_apply_kernel_options": (options, _apply_kernel_options)}
                for name, (_, mine) in self.replaced.items():
                    setattr(module, name, mine)
        else:
            if _watch in sys.meta_path:
                sys.meta_path.remove(_watch)
            for name, (theirs, mine) in self.replaced.items():
                if getattr(module, name, None) is mine:
                    setattr(module, name, theirs)
            self.replaced = {}


def _traced(*inputs: Any) -> bool:
    """Whether the call is one that AOTAutograd traces."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    tensors = [x for x in inputs if isinstance(x, Tensor)]
    return all(type(x) is FunctionalTensor for x in tensors)


class _Watch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Notices the import of PyTorch's module, which attn does not import itself: it takes a second."""

    hooks: Optional[Hooks] = None
    busy = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != _MODULE or self.busy:
            return None
        self.busy = True
        try:
            spec: Any = importlib.util.find_spec(fullname)
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            self.theirs, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.theirs.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.theirs
        self.theirs.exec_module(module)
        if self.hooks is not None:
            self.hooks.switch()


_watch = _Watch()
