# SPDX-License-Identifier: MIT
"""Activations as part of the packed linear layer before them.

Where a module calls a linear layer and then an activation on its result alone, the activation is computed while the result's
numbers are in the cache.  That a module does so is read from a trace of its forward pass (torch.fx), not from its name.
"""
from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, nn

from . import _packed
from ._packed import PackedWeight

_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "gelu": nn.functional.gelu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x), "silu": nn.functional.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class ActivatedLinear(nn.Linear):
    """A linear layer that optimize() has given the activation behind it."""
    activation: nn.Module
    kind: str

    def forward(self, input: Tensor) -> Tensor:
        found = _activated(self, input, self.kind)
        return self.activation(super().forward(input)) if found is NotImplemented else found  # type: ignore[no-any-return]


class ActivatedSequential(nn.Sequential):
    """A Sequential that computes activations with the linear layers before them.  Its modules stay what they are, because
    a slice of it, or a loop over it, may read the result of a linear layer alone."""
    pairs: tuple[tuple[nn.Module, nn.Module, str], ...] = ()  # a linear layer, the activation behind it, its kind

    def forward(self, input: Any) -> Any:
        kinds = {id(linear): (activation, kind) for linear, activation, kind in self.pairs}
        modules = list(self._modules.values())
        at = 0
        while at < len(modules):
            module = modules[at]
            activation, kind = kinds.get(id(module), (None, ""))
            at += 1
            if activation is not None and at < len(modules) and modules[at] is activation and _plain(module) and _plain(activation):
                found = _activated(module, input, kind)
                if found is not NotImplemented:
                    input = found
                    at += 1
                    continue
            input = module(input)  # type: ignore[misc]
        return input


def _plain(module: Any) -> bool:
    """Whether a call of a module is its class's forward pass and nothing else."""
    return "forward" not in module.__dict__ and not _hooked(module)


def _activated(linear: Any, input: Any, kind: str) -> Any:
    """The activation of a packed linear layer's result, or NotImplemented where two modules must compute it."""
    weight = linear.weight
    if not isinstance(weight, PackedWeight) or not isinstance(input, Tensor) or isinstance(input, PackedWeight) \
            or (torch.is_grad_enabled() and _packed._records(input, linear.bias)):
        return NotImplemented
    return _packed.multiply(input, weight, linear.bias, kind)


def _kind_of(activation: nn.Module) -> Optional[str]:
    """Which of attn's activations a module computes, by its numbers."""
    kind = type(activation)
    known = kind.__module__ in ("torch.nn.modules.activation", "transformers.activations")
    if not known or any(True for _ in activation.parameters()) or _hooked(activation):
        return None
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    try:
        with torch.no_grad():
            found = activation(x.clone())
    except (RuntimeError, TypeError, ValueError):
        return None
    if not isinstance(found, Tensor) or found.shape != x.shape:
        return None
    near = [name for name, formula in _FORMULAS.items() if torch.allclose(found.double(), formula(x), rtol=0, atol=1e-6)]
    return near[0] if len(near) == 1 else None


def _hooked(module: nn.Module) -> bool:
    return any(getattr(module, name, None) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                                                        "_backward_pre_hooks"))


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True  # of the one module that is traced


def _calls(module: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of (linear layer, activation) of which a module calls the second on the first one's result, which nothing else
    reads, each once."""
    if type(module) in (nn.Sequential, ActivatedSequential):
        names = list(module._modules)
        yield from zip(names, names[1:])
        return
    if not type(module).__module__.startswith("transformers.") or len(inspect.signature(module.forward).parameters) != 1:
        return
    before = dict(module.__dict__)
    try:
        graph = _Tracer().trace(module)
    except Exception:  # whatever a forward pass does to a proxy: it cannot be traced
        return
    finally:
        module.__dict__.clear()
        module.__dict__.update(before)
    called = Counter(node.target for node in graph.nodes if node.op == "call_module")
    for node in graph.nodes:
        if node.op != "call_module" or node.kwargs or len(node.args) != 1 or not isinstance(node.args[0], torch.fx.Node):
            continue
        source = node.args[0]
        if source.op == "call_module" and len(source.users) == 1 and called[source.target] == called[node.target] == 1:
            yield str(source.target), str(node.target)


def fuse(model: nn.Module) -> None:
    """Gives packed linear layers the activations behind them; an Identity stays in the activation's place, except in a
    Sequential."""
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    for module in list(model.modules()):
        children = module._modules
        if not any(type(child) is nn.Linear and isinstance(child.weight, PackedWeight) for child in children.values()):
            continue
        pairs: list[tuple[nn.Module, nn.Module, str]] = []
        for first, second in list(_calls(module)):
            linear, activation = children.get(first), children.get(second)
            if type(linear) is not nn.Linear or activation is None or not isinstance(linear.weight, PackedWeight) or _hooked(linear):
                continue
            kind = _kind_of(activation)
            if kind is None:
                continue
            if isinstance(module, nn.Sequential):
                pairs.append((linear, activation, kind))
                continue
            if places[id(linear)] != 1 or places[id(activation)] != 1:
                continue
            linear.__class__ = ActivatedLinear
            linear.kind = kind  # type: ignore[assignment]
            linear.activation = activation
            children[second] = nn.Identity()
        if pairs:
            module.__class__ = ActivatedSequential
            module.pairs = tuple(pairs)  # type: ignore[assignment]


def count(model: Any) -> int:
    return sum(len(module.pairs) if isinstance(module, ActivatedSequential) else isinstance(module, ActivatedLinear)
               for module in model.modules())
