# SPDX-License-Identifier: MIT
"""Any architecture of the library as a module of PyTorch."""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable, which takes seconds to import the compiler

from .._errors import ArgumentError, UnsupportedError
from .._library import lib
from .._model import Model, build
from . import _ops


class Layer(torch.nn.Module):
    """A layer or model of `attn.architectures()`, whose parameters PyTorch trains and saves.

        layer = attn.torch.Layer("multi-head-attention", {"num_hiddens": 64, "num_heads": 4})
        y = layer(x, x, x)

    Inputs are in the architecture's order, or by name; outputs as `attn.build`'s model gives them, `outputs=` names
    others.  state_dict has the originals' names.  If there are several calls before a backward pass, each but the
    latest recomputes what it needs in the backward pass.  double() and half() are refused: dtype= selects the type.
    Parameters that are replaced (functional_call, load_state_dict(assign=True), parametrizations) are copied into the
    library for each call; the module's own are read in place.  Threads that share a Layer take turns. """

    def __init__(self, architecture: str, config: Optional[Mapping[str, Any]] = None, *, seed: int = 0,
                 dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
        self.attn_model = build(architecture, config, seed=seed, dtype=str(dtype).split(".")[1],
                                threads=torch.get_num_threads())
        self.dtype = dtype
        self._lock = threading.RLock()
        self._places: dict[str, tuple[torch.nn.Module, str, np.ndarray]] = {}
        trained = self.attn_model.parameters()
        for name, array in self.attn_model.state_dict().items():
            tensor = torch.from_numpy(array)  # the library's own memory
            self._place(name, torch.nn.Parameter(tensor) if name in trained else tensor, array)

    def _place(self, name: str, tensor: Tensor, memory: np.ndarray) -> None:
        """Registers under a dotted name: modules in between hold what belongs to them."""
        *path, last = name.split(".")
        module: torch.nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]  # type: ignore[assignment]
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(last, tensor)
            self._places[name] = (module, last, memory)
        else:
            module.register_buffer(last, tensor)

    def _apply(self, fn: Any, recurse: bool = True) -> "Layer":
        """to(), double(), share_memory() and their kin would move parameters away from the library's memory."""
        for _, tensor in self.state_dict(keep_vars=True).items():
            moved = fn(tensor.detach())
            if moved.dtype != tensor.dtype or moved.device != tensor.device or moved.data_ptr() != tensor.data_ptr():
                raise UnsupportedError("an attn.torch.Layer cannot change its device, type or memory; for another type, make "
                                       "another Layer with dtype=...")
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an attn.torch.Layer is neither copied nor pickled, since its parameters lie in the library's memory: make "
                        "another of the same config and load_state_dict(layer.state_dict()); torch.save(layer.state_dict(), path) "
                        "saves its parameters")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(None)

    def extra_repr(self) -> str:
        return repr(self.attn_model)

    @_disable_dynamo  # for torch.compile: there are no operations of PyTorch to trace
    def forward(self, *inputs: Any, outputs: Optional[Sequence[str]] = None, **named: Any) -> Any:
        if _ops.in_transform() or _ops.in_forward_mode() or _ops.tracing():
            raise UnsupportedError("an attn.torch.Layer does not support torch.func (vmap, grad, jvp, functionalize), forward mode "
                                   "or torch.jit.trace; supported are backward(), torch.autograd.grad, and torch.compile of code that calls it")
        model = self.attn_model
        given = model._by_name(inputs, named)
        for name, x in given.items():
            if isinstance(x, Tensor) and not _ops.is_usual(x):
                raise UnsupportedError(f"input {name} is a {type(x).__name__}; an attn.torch.Layer reads plain tensors")
        wanted = model._wanted(outputs)
        parameters = {name: getattr(module, last) for name, (module, last, _) in self._places.items()}
        asked = _Asked(self, tuple(given), tuple(wanted), tuple(parameters), self.training, torch.is_grad_enabled())
        results = _Run.apply(asked, *given.values(), *parameters.values())
        return results[0] if len(results) == 1 else results

    @contextmanager
    def _holding(self, parameters: Mapping[str, Tensor]) -> Iterator[None]:
        """The library's memory has these parameters' numbers until the end."""
        foreign = [(self._places[name][2], self._checked(name, x)) for name, x in parameters.items()
                   if not _lies_in(x, self._places[name][2])]
        own = [memory.copy() for memory, _ in foreign]
        for memory, x in foreign:
            memory[...] = x
        try:
            yield
        finally:
            for (memory, _), old in zip(foreign, own):
                memory[...] = old

    def _checked(self, name: str, x: Tensor) -> np.ndarray:
        memory = self._places[name][2]
        if x.device.type != "cpu" or x.dtype != self.dtype or tuple(x.shape) != memory.shape:
            raise ArgumentError(f"the parameter {name} is now of {x.dtype} with shape {tuple(x.shape)} on {x.device}; "
                                f"expected {self.dtype} with shape {memory.shape} on cpu")
        return x.detach().numpy()

    def _run(self, given: Mapping[str, Any], wanted: Sequence[str], training: bool, keep: bool) -> list[Any]:
        """The library's outputs; where a backward pass may follow, it is kept."""
        model: Model = self.attn_model
        model.train(training)
        arrays = {name: x.detach() if isinstance(x, Tensor) else x for name, x in given.items()}
        if keep:
            found = model(outputs=list(wanted), **arrays)
        else:
            with model.no_grad():
                found = model(outputs=list(wanted), **arrays)
        return list(found) if isinstance(found, tuple) else [found]


def _lies_in(x: Tensor, memory: np.ndarray) -> bool:
    """Whether x is this memory, in its shape and order: .data may be another view of it."""
    return (x.data_ptr() == memory.ctypes.data and tuple(x.shape) == memory.shape and x.is_contiguous()
            and x.element_size() == memory.itemsize and not x.is_neg())


class _Asked(NamedTuple):
    """A call, without its tensors."""

    layer: Layer
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    training: bool
    recorded: bool


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, asked: Any, *values: Any) -> Any:
        layer, model = asked.layer, asked.layer.attn_model
        given, parameters = _part(asked, values)
        with layer._lock, layer._holding(parameters):
            keep = asked.recorded and any(ctx.needs_input_grad)
            found = layer._run(given, asked.outputs, asked.training, keep)
            ctx.call = model._calls
            # Outputs that depend on no parameter or input by differentiable steps: attention weights, positions.
            apart = [not (name in model._outputs and lib.tensor_requires_grad(model._outputs[name])) for name in asked.outputs]
        ctx.asked, ctx.passes = asked, 0
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(x for x in values if isinstance(x, Tensor)))
        ctx.values = [None if isinstance(x, Tensor) else x for x in values]
        ctx.tensors = [isinstance(x, Tensor) for x in values]
        # The library's backward pass may read its outputs, which the caller may change in place.
        results = tuple(torch.from_numpy(x.copy() if keep else x) for x in found)
        ctx.mark_non_differentiable(*(x for x, alone in zip(results, apart) if alone))
        return results

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        if any(dout is not None and _ops.batched_before(dout) for dout in douts):
            raise UnsupportedError("an attn.torch.Layer does not support is_grads_batched=True; take the gradients of one output at "
                                   "a time")
        saved = ctx.saved_tensors  # complains where a parameter was changed since the call
        return (None, *_RunBack.apply(ctx, len(douts), *douts, *saved))


class _RunBack(torch.autograd.Function):
    """A function of its own, so that a second derivative, which would pass through it, is refused."""

    @staticmethod
    def forward(_: Any, ctx: Any, n: int, *tensors: Any) -> Any:
        asked, douts, saved = ctx.asked, tensors[:n], iter(tensors[n:])
        values = [next(saved) if tensor else x for tensor, x in zip(ctx.tensors, ctx.values)]
        seeds: dict[str, Tensor] = {}
        for name, dout in zip(asked.outputs, douts):
            if dout is not None:  # an output may be requested twice
                seeds[name] = dout.detach().contiguous() if name not in seeds else seeds[name] + dout.detach()
        if not seeds:
            return (None,) * len(values)
        given, parameters = _part(asked, values)
        with asked.layer._lock, asked.layer._holding(parameters):
            _come_back_to(ctx, given)
            model = asked.layer.attn_model
            model.zero_grad()
            back = model.backward(seeds)
            grads = model.grads()
            model.zero_grad()
        found = [back.get(name) for name in asked.inputs] + [grads.get(name) for name in asked.parameters]
        return tuple(_tensor(x, wanted) for x, wanted in zip(found, ctx.needs_input_grad[1:]))

    @staticmethod
    def backward(_: Any, *grads: Any) -> Any:
        raise UnsupportedError("an attn.torch.Layer has no second derivative")


def _part(asked: _Asked, values: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Inputs and parameters by name."""
    n = len(asked.inputs)
    return dict(zip(asked.inputs, values[:n])), dict(zip(asked.parameters, values[n:]))


def _come_back_to(ctx: Any, given: Mapping[str, Any]) -> None:
    """Makes this call the library's latest, by running it again where another came between."""
    asked, model = ctx.asked, ctx.asked.layer.attn_model
    ctx.passes += 1
    if model._calls == ctx.call and model._outputs:
        return
    if asked.training and ctx.passes > 1:
        raise UnsupportedError("a second backward pass through one call of a Layer in train() is not supported: the call would run again, "
                               "with other dropout and batch statistics; call backward only once after each call, or use eval()")
    if asked.training:
        raise UnsupportedError("a Layer was called again before the backward pass of an earlier call in train(); "
                               "dropout and batch statistics would differ; call backward after each call, or use eval()")
    asked.layer._run(given, asked.outputs, False, True)


def _tensor(x: Any, wanted: bool) -> Optional[Tensor]:
    return torch.from_numpy(x) if wanted and x is not None else None
