# SPDX-License-Identifier: MIT
"""attn.torch.optimize: a model for inference, whose linear layers hold packed weights."""
from __future__ import annotations

import copy
import sys
from collections import Counter
from typing import Any, Iterator, Optional, Union

import torch
from torch import Tensor, nn

from .._errors import ArgumentError, UnsupportedError
from . import _fuse, _linear, _multihead, _packed, _transformers
from ._packed import PackedWeight

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_WHOLE = (torch.float32, torch.bfloat16)  # to which a whole model is converted


# ------------------------------------------------------------------------------------------ what is taken


def _linear_like(module: nn.Module) -> Iterator[tuple[str, bool]]:
    """The weights of a module that its forward pass multiplies by, and whether they are [in,out]."""
    kind, conv1d = type(module), _fuse._conv1d()
    if isinstance(module, nn.Linear) and _fuse.usual_forward(module):
        yield "weight", False
    elif conv1d is not None and isinstance(module, conv1d) and _fuse.usual_forward(module):
        yield "weight", True
    elif isinstance(module, nn.MultiheadAttention) and kind.forward is nn.MultiheadAttention.forward:
        if module.in_proj_weight is not None:
            yield "in_proj_weight", False


def _others(module: nn.Module) -> Iterator[str]:
    """Why a module that multiplies is left as it is."""
    if isinstance(module, nn.Linear) and not _fuse.usual_forward(module):
        yield f"{type(module).__name__} has a forward pass of its own"
    elif isinstance(module, nn.Bilinear):
        yield "Bilinear"
    elif isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)):
        yield f"{type(module).__name__} multiplies by a kernel of PyTorch's own"


def _refusal(module: nn.Module, name: str, form: Optional[str]) -> Optional[str]:
    """Why a weight is not packed."""
    weight = module._parameters.get(name)
    if weight is None:
        return f"{name} is no parameter, but is computed from others"
    if type(weight) not in (nn.Parameter, Tensor) and not isinstance(weight, PackedWeight):
        return f"{name} is a {type(weight).__name__}"
    if isinstance(weight, PackedWeight):
        return "packed already" if form is None or weight.form == form else f"packed already, as {weight.form}"
    if weight.device.type != "cpu" or weight.layout != torch.strided:
        return f"{name} is on {weight.device}" if weight.device.type != "cpu" else f"{name} is sparse"
    if weight.dtype not in _TYPES:
        return f"{name} is of {weight.dtype}"
    if weight.dim() != 2 or weight.numel() == 0:
        return f"{name} has the shape {tuple(weight.shape)}"
    if form == "int8" and not bool(torch.isfinite(weight).all()):
        return f"{name} has a number that is not finite"
    if form == "int8" and weight.shape[1] > 130_000:
        return f"{name} has rows too long for int8"
    return None


def _sharing(model: nn.Module) -> set[int]:
    """The ids of tensors whose memory is also that of another tensor of the model: what is written to one of them is read from
    the other, which a packed weight could not follow."""
    places = []
    for one in {id(x): x for x in (*model.parameters(), *model.buffers())}.values():
        if isinstance(one, PackedWeight) or one.device.type != "cpu" or one.layout != torch.strided or one.numel() == 0 \
                or type(one) not in (nn.Parameter, Tensor):
            continue
        places.append((*_linear._extent(one), id(one)))
    places.sort()
    found: set[int] = set()
    end, last = 0, 0  # of the tensor that reaches furthest
    for first, behind, one_id in places:
        if first < end:
            found.update((one_id, last))
        if behind > end:
            end, last = behind, one_id
    return found


def _form_for(weight: Tensor, form: Optional[str]) -> str:
    return form or ("bf16" if weight.dtype is torch.bfloat16 else "f32")


# --------------------------------------------------------------------------------------------- state dicts


def _unpack_state(module: nn.Module, state: Any, prefix: str, _: Any) -> None:
    """The original tensors in place of packed ones, in a state dict."""
    for name, weight in module._parameters.items():
        if not isinstance(weight, PackedWeight) or not isinstance(state.get(prefix + name), PackedWeight):
            continue
        if not weight.exact:
            raise UnsupportedError(f"attn: {prefix + name} is packed as {weight.form}, which has rounded it, so that a state dict cannot "
                                   "have the original numbers; take the state dict of the original model")
        state[prefix + name] = weight.dense()


def _watch_state(module: nn.Module) -> None:
    if _unpack_state not in module._state_dict_hooks.values():
        module.register_state_dict_post_hook(_unpack_state)  # type: ignore[no-untyped-call]


# ----------------------------------------------------------------------------------------------- attention


def _pretrained(model: nn.Module) -> Iterator[Any]:
    """The outermost models of transformers in a model."""
    kind = getattr(sys.modules.get("transformers"), "PreTrainedModel", None)
    if kind is None:
        return
    inner: set[int] = set()
    for module in model.modules():
        if isinstance(module, kind) and id(module) not in inner:
            inner.update(id(one) for one in module.modules())
            yield module


def _attention_of(model: Any) -> str:
    return str(getattr(getattr(model, "config", None), "_attn_implementation", None))


def _attend_by_attn(model: nn.Module) -> None:
    """attn's attention in models of transformers whose attention is PyTorch's or their own, where they take another one."""
    for one in _pretrained(model):
        if _attention_of(one) in ("sdpa", "eager") and getattr(one, "_can_set_attn_implementation", lambda: False)():
            _transformers.register()
            try:
                one.set_attn_implementation("attn")
            except (ValueError, ImportError):
                continue  # report() tells which attention it has


# ------------------------------------------------------------------------------------------------ optimize


def _named_form(dtype: Union[None, str, torch.dtype]) -> Optional[str]:
    if dtype is None or (isinstance(dtype, str) and dtype in _packed.FORMS):
        return dtype
    if dtype in _WHOLE:
        return None
    raise ArgumentError(f'optimize: dtype is {dtype!r}; expected None, "f32", "bf16", "int8", torch.float32 or torch.bfloat16')


def optimize(model: nn.Module, dtype: Union[None, str, torch.dtype] = None, inplace: bool = False, *,
             optimizer: None = None) -> nn.Module:
    """A model for inference: its linear layers (nn.Linear, transformers' Conv1D, the in_proj of nn.MultiheadAttention) hold
    their weights packed for attn's products on this machine, and only packed.

    dtype: None, the numbers as they are; "f32", the same, with weights of a model in bfloat16 packed as float32; "bf16", weights
    rounded to bfloat16, with the numbers between layers as they are; torch.float32 or torch.bfloat16, the whole model
    converted; "int8", weights and inputs of linear layers rounded to 8 bits.  optimizer: None; for training there is enable().

    Models of transformers attend by attn too, as with attn_implementation="attn".

    The result is a copy in eval mode, whose parameters have no gradients, or with inplace=True the model itself.  Its weights are read as before, and are unpacked for
    it.  A write to a weight packs it again, or is refused.  state_dict() has the original tensors; with "bf16" and "int8", which
    have rounded them, it is refused.  report() tells what was packed and what was not, and why."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"optimize: the model is a {type(model).__name__}; expected a torch.nn.Module")
    if optimizer is not None or isinstance(inplace, torch.optim.Optimizer):  # the third argument of ipex.optimize
        raise TypeError("optimize() got an optimizer, but makes models for inference: for training call attn.torch.enable() once; "
                        "model and optimizer stay as they are")
    form = _named_form(dtype)
    found = model if inplace else copy.deepcopy(model)
    if isinstance(dtype, torch.dtype):
        found = found.to(dtype)
    found.eval().requires_grad_(False)
    packed: dict[int, PackedWeight] = {}  # by the parameter, which modules may share
    kept: list[Tensor] = []  # so that no other parameter gets the same id
    taken = [(module, name, turned) for module in found.modules() for name, turned in _linear_like(module)
             if _refusal(module, name, form) is None]
    sharing = _sharing(found)
    taken = [one for one in taken if id(one[0]._parameters[one[1]]) not in sharing]
    layouts: dict[int, set[bool]] = {}
    for module, name, turned in taken:
        layouts.setdefault(id(module._parameters[name]), set()).add(turned)
    for module, name, turned in taken:
        weight = module._parameters[name]
        if weight is None or isinstance(weight, PackedWeight) or len(layouts[id(weight)]) > 1:
            continue
        packed[id(weight)] = _pack_parameter(weight, _form_for(weight, form), turned)
        kept.append(weight)
        _replace(found, weight, packed[id(weight)])
    _fuse.fuse(found)
    _attend_by_attn(found)
    return found


def _pack_parameter(weight: Tensor, form: str, turned: bool) -> PackedWeight:
    with torch.no_grad():
        return _packed._marked(PackedWeight.of(weight, form, turned), True)


def _replace(model: nn.Module, weight: Tensor, packed: PackedWeight) -> None:
    """Puts the packed weight where modules have the parameter: tied ones stay tied."""
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is weight:
                module._parameters[name] = packed  # type: ignore[assignment]
                _watch_state(module)


# -------------------------------------------------------------------------------------------------- report


def report(model: nn.Module) -> str:
    """What optimize() has packed in a model and what not, and why, a line each."""
    packed: Counter[str] = Counter()
    left: Counter[str] = Counter()
    seen: set[int] = set()
    sharing = _sharing(model)
    bytes_packed = 0
    for path, module in model.named_modules():
        for name, _ in _linear_like(module):
            weight = module._parameters.get(name)
            if not isinstance(weight, PackedWeight):
                why = _refusal(module, name, None) or (
                    f"{name} shares its memory with another tensor" if id(weight) in sharing else "not packed")
                left[f"{type(module).__name__}: {why}"] += 1
                continue
            packed[f"{_fuse.name_of(module)}, packed as {weight.form}"] += 1
            if id(weight) not in seen:
                seen.add(id(weight))
                bytes_packed += weight._packed.numel()
        for why in _others(module):
            left[why] += 1
    lines = [f"{sum(packed.values())} linear layers packed, {bytes_packed / 2**20:.1f} MiB"]
    lines += [f"    {n} {what}" for what, n in packed.most_common()]
    lines += [f"    {n} with the activation behind them" for n in [_fuse.count(model)] if n]
    lines += [f"    {n} with the factor of a gated pair" for n in [_fuse.count_gated(model)] if n]
    lines += [f"{n} norms in one pass" for n in [_fuse.count_norms(model)] if n]
    if left:
        lines += [f"{sum(left.values())} left as they are"] + [f"    {n} {what}" for what, n in left.most_common()]
    lines += [f'attention of {type(one).__name__}: "{_attention_of(one)}"' for one in _pretrained(model)]
    return "\n".join(lines)
