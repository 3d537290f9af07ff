# SPDX-License-Identifier: MIT
"""Activations as part of the packed linear layer before them.

Where a module calls a linear layer and then an activation on its result alone, the activation is computed while the result's
numbers are in the cache.  That a module does so is read from a trace of its forward pass (torch.fx), not from its name.
"""
from __future__ import annotations

import inspect
import sys
from collections import Counter
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, nn

from . import _packed
from ._packed import PackedWeight

_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "gelu": nn.functional.gelu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x), "silu": nn.functional.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class _Stand:
    """A module as its own forward pass sees it while some of its children are computed together."""

    def __init__(self, module: nn.Module, children: dict[str, Any]) -> None:
        self.__dict__.update(children, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


class Activated(nn.Module):
    """Modules that optimize() has found to call an activation on the result of a linear layer.  They compute both together while
    these are the children that they were, and nothing watches them: else a wrapper of the layer, or a hook, would get the
    activation's result as the layer's.  The layer and the activation alone are what they were."""
    together: tuple[tuple[str, str, nn.Module, nn.Module, str], ...] = ()  # names of layer and activation, both, the kind
    plain: type[nn.Module]  # the class of the module before

    def forward(self, x: Any) -> Any:
        children, stand = self._modules, {}
        for first, second, linear, activation, kind in self.together:
            if children.get(first) is linear and children.get(second) is activation and _plain(linear) and _plain(activation):
                stand[first], stand[second] = _together(linear, activation, kind), _same
        return self.plain.forward(_Stand(self, stand) if stand else self, x)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _made_again, (self.plain,), self.__dict__


def _together(linear: nn.Module, activation: nn.Module, kind: str) -> Callable[[Any], Any]:
    def both(x: Any) -> Any:
        found = _activated(linear, x, kind)
        return activation(linear(x)) if found is NotImplemented else found
    return both


def _same(x: Any) -> Any:
    return x


_classes: dict[type[nn.Module], type[Activated]] = {}


def _class_of(plain: type[nn.Module]) -> type[Activated]:
    """The class of modules of this class that are Activated, which also pickles."""
    if plain not in _classes:
        _classes[plain] = type(plain.__name__, (Activated, plain), {"plain": plain, "__module__": plain.__module__})
    return _classes[plain]


def _made_again(plain: type[nn.Module]) -> Activated:
    kind = _class_of(plain)
    return kind.__new__(kind)


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
    return "forward" not in module.__dict__ and not _hooked(module) and not torch.nn.modules.module._has_any_global_hook()


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
    """Gives modules that call an activation on the result of a packed linear layer a forward pass that computes both together."""
    for module in list(model.modules()):
        if isinstance(module, Activated):
            module.__class__ = module.plain
        children = module._modules
        pairs = []
        for first, second in list(_calls(module)) if any(_is_packed(child) for child in children.values()) else ():
            linear, activation = children.get(first), children.get(second)
            if linear is not None and activation is not None and _is_packed(linear) and not _hooked(linear):
                kind = _kind_of(activation)
                if kind is not None:
                    pairs.append((first, second, linear, activation, kind))
        if pairs and isinstance(module, nn.Sequential):
            module.__class__ = ActivatedSequential
            module.pairs = tuple(pair[2:] for pair in pairs)  # type: ignore[assignment]
        elif pairs:
            module.__class__ = _class_of(type(module))
            module.together = tuple(pairs)  # type: ignore[assignment]


def _is_packed(module: Optional[nn.Module]) -> bool:
    """Whether a module does nothing but multiply by a packed weight."""
    conv1d = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    return type(module) in (nn.Linear, conv1d) and isinstance(module._parameters.get("weight"), PackedWeight)  # type: ignore[union-attr]


def count(model: Any) -> int:
    return sum(len(module.pairs) if isinstance(module, ActivatedSequential) else
               len(module.together) if isinstance(module, Activated) else 0 for module in model.modules())
