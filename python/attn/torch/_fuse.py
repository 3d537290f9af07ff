# SPDX-License-Identifier: MIT
"""What packed linear layers compute together with their products, and norms in one pass.

Where a module calls a linear layer and then an activation on its result alone, the activation is computed while the result's
numbers are in the cache, and so is the product of a gated pair.  That a module does so is read from traces of its forward pass
(torch.fx), or from its source where a call of the activation has the call of the layer as its argument, and not from its name;
which activation or norm a module is, its numbers tell.
"""
from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import operator
import sys
import textwrap
from collections import Counter
from typing import Any, Callable, Optional, cast

import torch
from torch import Tensor, nn

from . import _packed
from ._packed import PackedWeight

_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu, "gelu": nn.functional.gelu, "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x), "silu": nn.functional.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class _Packed:
    """The forward pass of a linear layer that holds a packed weight, without what F.linear asks first."""

    def forward(self, input: Any) -> Any:
        weight, bias = _weights_of(self)
        if type(weight) is PackedWeight and type(input) is Tensor:
            found = _packed.multiply(input, weight, bias)
            if found is not NotImplemented:
                return found
        return super().forward(input)  # type: ignore[misc]


class PackedLinear(_Packed, nn.Linear):
    pass


def _conv1d() -> Any:
    """transformers' Conv1D, where that is imported."""
    return getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)


def __getattr__(name: str) -> Any:
    """PackedConv1D, which is made when transformers' Conv1D is there."""
    if name != "PackedConv1D":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if _conv1d() is None:
        importlib.import_module("transformers.pytorch_utils")
    globals()[name] = type(name, (_Packed, _conv1d()), {"__module__": __name__})
    return globals()[name]


def _packed_class(module: nn.Module) -> Optional[type]:
    """The class above for a linear layer; None for a module that is none, or has a class of its own."""
    if type(module) in (nn.Linear, PackedLinear):
        return PackedLinear
    conv1d = _conv1d()
    if conv1d is not None and type(module) in (conv1d, getattr(sys.modules[__name__], "PackedConv1D")):
        return getattr(sys.modules[__name__], "PackedConv1D")  # type: ignore[no-any-return]
    return None


def usual_forward(module: nn.Module) -> bool:
    """Whether the forward pass of a linear layer is PyTorch's, or one of those above."""
    forward: Any = type(module).forward
    return forward in (nn.Linear.forward, getattr(_conv1d(), "forward", None), _Packed.forward)


def _weights_of(layer: Any) -> tuple[Any, Any]:
    """As layer.weight and layer.bias, in less time where they are parameters."""
    held = layer._parameters
    try:
        return held["weight"], held["bias"]
    except KeyError:
        return layer.weight, layer.bias


class ActivatedSequential(nn.Sequential):
    """A Sequential that computes activations with the linear layers before them.  Its modules stay what they are, because
    a slice of it, or a loop over it, may read the result of a linear layer alone."""
    pairs: tuple[tuple[nn.Module, nn.Module, str], ...] = ()  # a linear layer, the activation behind it, its kind

    def forward(self, input: Any) -> Any:
        kinds = {id(linear): (activation, kind) for linear, activation, kind in self.pairs}
        modules: list[Any] = list(self._modules.values())
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
            input = module(input)
        return input


_nn_module: Any = nn.modules.module  # whose functions have no types


def _plain(module: Any) -> bool:
    """Whether a call of a module is its class's forward pass and nothing else."""
    return "forward" not in module.__dict__ and not _hooked(module) and not _nn_module._has_any_global_hook()


def _activated(linear: Any, input: Any, kind: str) -> Any:
    """The activation of a packed linear layer's result, or NotImplemented where two modules must compute it."""
    weight, bias = _weights_of(linear)
    if not isinstance(weight, PackedWeight) or not isinstance(input, Tensor) or isinstance(input, PackedWeight) \
            or (torch.is_grad_enabled() and _packed._records(input, bias)):
        return NotImplemented
    return _packed.multiply(input, weight, bias, kind)


_FUNCTIONS: dict[Any, str] = {nn.functional.relu: "relu", torch.relu: "relu", nn.functional.gelu: "gelu"}


def _kind_of(activation: Any) -> Optional[str]:
    """Which of attn's activations a module computes, by its numbers, or a function of PyTorch is."""
    if not isinstance(activation, nn.Module):
        return _FUNCTIONS.get(activation)
    kind = type(activation)
    known = kind.__module__ in ("torch.nn.modules.activation", "transformers.activations")
    return None if not known or any(True for _ in activation.parameters()) or _hooked(activation) else _kind_by_numbers(activation)


def _kind_by_numbers(activation: Callable[[Tensor], Any]) -> Optional[str]:
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


# ------------------------------------------------------------------------------------------ what a module does


_PATHS = 16  # ways through a forward pass that are followed


class _Tracer(torch.fx.Tracer):
    """Traces one module.  A condition on values that the trace does not know is decided as `decisions` says, and is false after
    them."""

    def __init__(self, decisions: list[bool]) -> None:
        super().__init__()
        self.decisions, self.met = decisions, 0

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True  # of the one module that is traced

    def to_bool(self, obj: Any) -> bool:
        if self.met == len(self.decisions):
            self.decisions.append(False)
        self.met += 1
        return self.decisions[self.met - 1]


def _graphs(module: nn.Module) -> list[Any]:
    """The graphs of every way through a module's forward pass; none where it cannot be traced."""
    if not type(module).__module__.startswith("transformers.") or len(inspect.signature(module.forward).parameters) != 1:
        return []
    found: list[Any] = []
    decisions: list[bool] = []
    before = dict(module.__dict__)
    while len(found) < _PATHS:
        tracer = _Tracer(decisions)
        try:
            found.append(tracer.trace(module))
        except Exception:  # whatever a forward pass does to a proxy: it cannot be traced
            return []
        finally:
            module.__dict__.clear()
            module.__dict__.update(before)
        if tracer.met != len(decisions):
            return []
        while decisions and decisions[-1]:
            decisions.pop()
        if not decisions:
            return found
        decisions[-1] = True
    return []


def _called(node: Any) -> Optional[str]:
    """The name of the module that a node of a graph calls on one value."""
    plain = node.op == "call_module" and not node.kwargs and len(node.args) == 1 and isinstance(node.args[0], torch.fx.Node)
    return str(node.target) if plain else None


def _pairs(graph: Any) -> set[tuple[str, str]]:
    """The names of modules of which the second is called on the first one's result, which nothing else reads, each once."""
    times = Counter(node.target for node in graph.nodes if node.op == "call_module")
    found = set()
    for node in graph.nodes:
        second = _called(node)
        first = None if second is None else _called(node.args[0])
        if first is not None and len(node.args[0].users) == 1 and times[first] == times[second] == 1:
            found.add((first, cast(str, second)))
    return found


def _of_self(node: Any) -> Optional[str]:
    """The name in self.NAME."""
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self" else None


def _call_of_self(node: Any) -> Optional[str]:
    """The name in self.NAME(x), a call with one argument."""
    plain = isinstance(node, ast.Call) and not node.keywords and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)
    return _of_self(node.func) if plain else None


def _neighbours(node: Any) -> list[tuple[Any, Any]]:
    """The statements of a node's blocks, each with the one after it."""
    blocks = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [pair for block in blocks if isinstance(block, list) for pair in zip(block, block[1:])]


def _replaces(one: Any, next_one: Any) -> bool:
    """Whether a statement replaces what the one before it has set by a call on it: y = ..., y = self.name(y)."""
    names = [statement.targets[0].id for statement in (one, next_one) if isinstance(statement, ast.Assign)
             and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)]
    if len(names) != 2 or names[0] != names[1] or not _call_of_self(next_one.value):
        return False
    argument = next_one.value.args[0]
    return isinstance(argument, ast.Name) and argument.id == names[0]


def _unwrapped(forward: Any) -> Any:
    """A forward pass without transformers' wrapper that checkpoints gradients, which a derived class gets of its own."""
    while getattr(getattr(forward, "__code__", None), "co_name", "") == "forward_with_checkpointing":
        forward = forward.__wrapped__
    return forward


@functools.lru_cache(maxsize=1024)
def _nested(forward: Any) -> tuple[tuple[str, str], ...]:
    """The names in self.second(self.first(x)), or in y = self.first(x) and y = self.second(y) after it, in the source of a forward
    pass that names both only there, and uses self for nothing but its attributes."""
    while hasattr(forward, "__wrapped__") and forward.__globals__["__name__"] == "transformers.utils.deprecation":
        forward = forward.__wrapped__  # below a wrapper that renames arguments
    if hasattr(forward, "__wrapped__") or not inspect.isfunction(forward) or "__class__" in forward.__code__.co_freevars:
        return ()
    try:
        nodes: list[Any] = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(forward)))))
    except (OSError, SyntaxError):
        return ()
    read = [name for name in map(_of_self, nodes) if name]
    if sum(isinstance(node, ast.Name) and node.id == "self" for node in nodes) != len(read) \
            or any(_of_self(node) and not isinstance(node.ctx, ast.Load) for node in nodes):
        return ()
    found = [(_call_of_self(node.args[0]), _call_of_self(node)) for node in nodes if _call_of_self(node)]
    found += [(_call_of_self(one.value), _call_of_self(other.value)) for node in nodes for one, other in _neighbours(node)
              if _replaces(one, other)]
    times = Counter(read)
    return tuple((first, second) for first, second in found if first and second and times[first] == times[second] == 1)


_TRANSFORMERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def _calls(module: nn.Module) -> list[tuple[str, str]]:
    """The pairs of a module, on every way through its forward pass."""
    if type(module) in (nn.Sequential, ActivatedSequential):
        names = list(module._modules)
        return list(zip(names, names[1:]))
    if type(module) in _TRANSFORMERS:
        return [("linear1", "activation")]
    found = [_pairs(graph) for graph in _graphs(module)]
    if not found and type(module).__module__.startswith("transformers."):
        return sorted(_nested(_unwrapped(type(module).forward)))
    return sorted(set.intersection(*found)) if found else []


# ------------------------------------------------------------------------------------------------ derived classes


_derived: dict[tuple[type, str], type] = {}


class _Derived:
    """A forward pass before that of a module's own class."""
    _name: str
    _base: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        found: Any = super().__reduce_ex__(protocol)
        return (_made, (self._base, self._name), *found[2:])


def _class_of(base: type, name: str) -> type:
    found = _derived.get((base, name))
    if found is None:
        found = type(base.__name__, (_MIXINS[name], base), {"__module__": base.__module__, "__qualname__": base.__qualname__, "_name": name,
                                                           "_base": base})
        _derived[base, name] = found
    return found


def _made(base: type, name: str) -> Any:
    found = _class_of(base, name)
    return cast(Any, found).__new__(found)


# --------------------------------------------------------------------------------------------------- activations


class _Stand:
    """A module as its own forward pass sees it while some of its children are computed together."""

    def __init__(self, module: Any, children: dict[str, Any]) -> None:
        self.__dict__.update(children, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


class _Together(_Derived):
    """Calls of an activation on the result of a linear layer, computed together while these are what they were, and nothing watches
    them: else a wrapper of the layer, or a hook, would get the activation's result as the layer's.  The layer and the activation
    alone are what they were."""
    # names of layer and activation, both (the activation may be a function), the kind
    together: tuple[tuple[str, str, nn.Module, Any, str], ...]

    def _stand(self) -> Any:
        """This module with such calls computed together; None if there are none now."""
        modules: Any = self._modules  # type: ignore[attr-defined]
        stand: dict[str, Any] = {}
        for first, second, layer, activation, kind in self.together:
            if modules.get(first) is layer and getattr(self, second, None) is activation and _plain(layer) \
                    and (not isinstance(activation, nn.Module) or _plain(activation)):
                stand[first], stand[second] = _joined(layer, activation, kind), _same
        return _Stand(self, stand) if stand else None


class _Activated(_Together):
    """Such calls in a forward pass."""

    def forward(self, *args: Any, **options: Any) -> Any:
        stand = self._stand()
        if stand is None:
            return super().forward(*args, **options)  # type: ignore[misc]
        return _unwrapped(self._base.forward)(stand, *args, **options)  # type: ignore[attr-defined]


class _FeedsForward(_Together):
    """Such a call in the feed-forward part of PyTorch's layers of a Transformer."""

    def _ff_block(self, x: Any) -> Any:
        stand = self._stand()
        return super()._ff_block(x) if stand is None else self._base._ff_block(stand, x)  # type: ignore[attr-defined, misc]


def _joined(layer: nn.Module, activation: Any, kind: str) -> Callable[[Any], Any]:
    def both(x: Any) -> Any:
        found = _activated(layer, x, kind)
        return activation(layer(x)) if found is NotImplemented else found
    return both


def _same(x: Any) -> Any:
    return x


class _Finished(_Derived):
    """A linear layer and an activation that is written out in operations, as in ESM, computed together as in _Activated."""
    finished: tuple[str, nn.Module, str]  # the layer's name, the layer, the kind of the activation

    def forward(self, *args: Any, **options: Any) -> Any:
        name, layer, kind = self.finished
        if len(args) == 1 and not options and self._modules.get(name) is layer and _plain(layer):  # type: ignore[attr-defined]
            found = _activated(layer, args[0], kind)
            if found is not NotImplemented:
                return found
        return super().forward(*args, **options)  # type: ignore[misc]


def _finishes(module: nn.Module) -> Optional[tuple[str, nn.Module, str]]:
    """The linear layer of a module that is activation(layer(x)) and nothing else, with the activation's operations."""
    graphs = _graphs(module)
    nodes = list(graphs[0].nodes) if len(graphs) == 1 else []
    name = _called(nodes[1]) if len(nodes) > 3 else None
    layer = None if name is None else module._modules.get(name)
    if layer is None or name is None or not _may_join(layer) or nodes[1].args[0] is not nodes[0] or len(nodes[0].users) != 1 \
            or any(node.op not in ("call_function", "call_method") for node in nodes[2:-1]):
        return None
    kind = _kind_by_numbers(torch.fx.GraphModule({name: nn.Identity()}, graphs[0]))
    return None if kind is None else (name, layer, kind)


# ------------------------------------------------------------------------------------------------ gated layers


class _Gated(_Derived):
    """down(activation(gate(x)) * up(x)), with the factor as a part of the product of `up`."""
    gated: tuple[str, str, str, tuple[str, ...]]  # the names of gate, activation and up, and of what follows
    together: tuple[tuple[str, str, nn.Module, nn.Module, str], ...] = ()  # gate and activation, where they are computed so

    def forward(self, *args: Any, **options: Any) -> Any:
        x = args[0] if len(args) == 1 and not options else None
        modules: Any = self._modules  # type: ignore[attr-defined]
        gate, activation, up, rest = self.gated
        layer = modules[up]
        if type(x) is Tensor and _plain(layer):
            weight, bias = _weights_of(layer)
            if type(weight) is PackedWeight and type(layer) is PackedLinear and not (torch.is_grad_enabled() and _packed._records(x, bias)):
                found = factor = NotImplemented
                for _, _, first, second, kind in self.together:
                    if modules[gate] is first and modules[activation] is second and _plain(first) and _plain(second):
                        factor = _activated(first, x, kind)
                if factor is NotImplemented:
                    factor = modules[activation](modules[gate](x))
                if type(factor) is Tensor and factor.dtype is x.dtype and factor.shape == (*x.shape[:-1], weight._sizes[0]) \
                        and not (torch.is_grad_enabled() and factor.requires_grad) \
                        and (torch.compiler.is_compiling() or not factor.is_neg()):
                    found = _packed.multiply(x, weight, bias, "", factor)
                if found is NotImplemented:
                    found = factor * layer(x)
                for name in rest:
                    found = modules[name](found)
                return found
        return super().forward(*args, **options)  # type: ignore[misc]


def _gates(module: nn.Module) -> Optional[tuple[str, str, str, tuple[str, ...]]]:
    """The names of a module that is down(activation(gate(x)) * up(x)) and nothing else."""
    graphs = _graphs(module)
    if len(graphs) != 1:
        return None
    nodes = list(graphs[0].nodes)
    product = [node for node in nodes if node.op == "call_function" and node.target in (operator.mul, torch.mul)]
    if len(product) != 1 or nodes[0].op != "placeholder" or nodes[-1].op != "output" or product[0].kwargs:
        return None
    at = nodes.index(product[0])
    names = [_called(node) for node in nodes[1:at] + nodes[at + 1:-1]]
    if at != 4 or None in names or len(set(names)) != len(names):
        return None
    for factor, other in (product[0].args, product[0].args[::-1]):
        gate = factor.args[0] if isinstance(factor, torch.fx.Node) and _called(factor) else None
        if not isinstance(other, torch.fx.Node) or not isinstance(gate, torch.fx.Node) or not _called(other) or not _called(gate):
            continue
        if gate.args[0] is not nodes[0] or other.args[0] is not nodes[0] or other is gate:
            continue
        before = product[0]
        for node in nodes[at + 1:]:
            if node.args[0] is not before:
                return None
            before = node
        return str(gate.target), str(factor.target), str(other.target), tuple(str(node.target) for node in nodes[at + 1:-1])
    return None


# --------------------------------------------------------------------------------------------------------- norms


class _Normed(_Derived):
    """The normalization by the root mean square, in one pass."""
    of_eps: str  # the name of the number that is added to the mean of squares

    def forward(self, *args: Any, **options: Any) -> Any:
        weight = self._parameters["weight"]  # type: ignore[attr-defined]
        found = _packed.normalize(args[0], weight, getattr(self, self.of_eps)) if len(args) == 1 and not options else NotImplemented
        return super().forward(*args, **options) if found is NotImplemented else found  # type: ignore[misc]


def _of_eps(module: nn.Module) -> Optional[str]:
    """The name of the eps of a module that computes x / sqrt(mean(x^2) + eps) * weight, which its numbers show."""
    kind = type(module)
    if not kind.__module__.startswith(("transformers.models.", "torch.nn.modules.normalization")) or isinstance(module, nn.LayerNorm):
        return None
    weight = module._parameters.get("weight")
    if list(module._parameters) != ["weight"] or weight is None or type(weight) is not nn.Parameter or weight.dim() != 1 \
            or module._modules or module._buffers or weight.device.type != "cpu" or len(inspect.signature(module.forward).parameters) != 1:
        return None
    name = next((one for one in ("variance_epsilon", "eps") if isinstance(getattr(module, one, None), float)), None)
    if name is None:
        return None
    other: Any = copy.deepcopy(module).float()
    x = torch.linspace(-2, 3, 4 * len(weight), device="cpu").sin().view(4, -1) * torch.tensor([[1.0], [30.0], [1e-2], [1e-4]], device="cpu")
    try:
        with torch.no_grad():
            other.weight.copy_(torch.linspace(0.5, 2, len(weight), device="cpu"))
            found = other(x)
    except (RuntimeError, TypeError, ValueError):
        return None
    wide = x.double()
    wanted = wide / (wide.square().mean(-1, keepdim=True) + getattr(module, name)).sqrt() * other.weight.double()
    same = isinstance(found, Tensor) and found.shape == x.shape and found.dtype is x.dtype \
        and torch.allclose(found.double(), wanted, rtol=1e-5, atol=1e-7)
    return name if same else None


_MIXINS: dict[str, type] = {"activated": _Activated, "feeds forward": _FeedsForward,
                            "finished": _Finished, "gated": _Gated, "normed": _Normed}


# ---------------------------------------------------------------------------------------------------------- fuse


def _is_packed(module: Optional[nn.Module]) -> bool:
    return module is not None and isinstance(module._parameters.get("weight"), PackedWeight)


def _may_join(layer: Optional[nn.Module]) -> bool:
    """Whether a linear layer can compute what follows it."""
    return layer is not None and _is_packed(layer) and _packed_class(layer) is not None and not _hooked(layer)


def fuse(model: nn.Module) -> None:
    """Gives packed linear layers a forward pass with less around it, and the modules that call them one that computes activations
    and factors with the products."""
    for module in model.modules():
        kind = _packed_class(module) if _is_packed(module) else None
        if kind is not None:
            module.__class__ = kind
        elif type(module) not in _derived.values():
            name = _of_eps(module)
            if name is not None:
                module.__class__ = _class_of(type(module), "normed")
                module.of_eps = name  # type: ignore[assignment]
    for module in list(model.modules()):
        children = module._modules
        if not any(_is_packed(child) for child in children.values()):
            continue
        if isinstance(module, (_Together, _Finished, _Gated)):
            module.__class__ = module._base
        pairs = []
        for first, second in _calls(module):
            linear, activation = children.get(first), getattr(module, second, None)
            name = _kind_of(activation) if _may_join(linear) else None
            if name is not None:
                pairs.append((first, second, cast(nn.Module, linear), activation, name))
        gates = _gates(module)
        if isinstance(module, nn.Sequential):
            if pairs:
                module.__class__ = ActivatedSequential
                module.pairs = tuple(pair[2:] for pair in pairs)  # type: ignore[assignment]
        elif gates is not None and type(children[gates[2]]) is PackedLinear:
            module.__class__ = _class_of(type(module), "gated")
            module.gated = gates  # type: ignore[assignment]
            module.together = tuple(pair for pair in pairs if pair[:2] == gates[:2])  # type: ignore[assignment]
        elif pairs:
            module.__class__ = _class_of(type(module), "feeds forward" if type(module) in _TRANSFORMERS else "activated")
            module.together = tuple(pairs)  # type: ignore[assignment]
        else:
            finished = _finishes(module)
            if finished is not None:
                module.__class__ = _class_of(type(module), "finished")
                module.finished = finished  # type: ignore[assignment]


def count(model: Any) -> int:
    """How many linear layers have the activation behind them."""
    return sum(len(module.pairs) if isinstance(module, ActivatedSequential) else
               len(module.together) if isinstance(module, (_Together, _Gated)) else isinstance(module, _Finished)
               for module in model.modules())


def count_gated(model: Any) -> int:
    return sum(isinstance(module, _Gated) for module in model.modules())


def count_norms(model: Any) -> int:
    return sum(isinstance(module, _Normed) for module in model.modules())


def name_of(module: nn.Module) -> str:
    """The name of the class that a module had before."""
    found = next(one for one in type(module).__mro__ if one.__module__ != __name__)
    return found.__name__
