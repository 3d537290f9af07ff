# SPDX-License-Identifier: MIT
"""Any architecture of the library as a module of PyTorch."""
from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import torch
from torch import Tensor

from .._errors import ArgumentError, UnsupportedError
from .._model import Model, build


class Layer(torch.nn.Module):
    """A layer or model of `attn.architectures()`, whose parameters PyTorch trains and saves.

        layer = attn.torch.Layer("multi-head-attention", {"num_hiddens": 64, "num_heads": 4})
        y = layer(x, x, x)

    Inputs stand in the architecture's order, or by name; outputs as `attn.build`'s model gives them, `outputs=` names
    others.  state_dict has the originals' names.  Of several calls before a backward pass each keeps what it needs by
    running once more in the backward pass, except the latest.  double() and half() are refused: dtype= says which.
    """

    def __init__(self, architecture: str, config: Optional[Mapping[str, Any]] = None, seed: int = 0,
                 dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"dtype is torch.float32 or torch.float64, not {dtype}")
        self.attn_model = build(architecture, config, seed=seed, dtype=str(dtype).split(".")[1],
                                threads=torch.get_num_threads())
        self.dtype = dtype
        trained = self.attn_model.parameters()
        for name, array in self.attn_model.state_dict().items():
            tensor = torch.from_numpy(array)  # the library's own memory
            self._place(name, torch.nn.Parameter(tensor) if name in trained else tensor)

    def _place(self, name: str, tensor: Tensor) -> None:
        """Registers under a dotted name: modules in between hold what belongs to them."""
        *path, last = name.split(".")
        module: torch.nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]  # type: ignore[assignment]
        if isinstance(tensor, torch.nn.Parameter):
            module.register_parameter(last, tensor)
        else:
            module.register_buffer(last, tensor)

    def _apply(self, fn: Any, recurse: bool = True) -> "Layer":
        """to(), double(), share_memory() and their kin would move parameters away from the library's memory."""
        for _, tensor in self.state_dict(keep_vars=True).items():
            moved = fn(tensor.detach())
            if moved.dtype != tensor.dtype or moved.device != tensor.device or moved.data_ptr() != tensor.data_ptr():
                raise UnsupportedError("an attn.torch.Layer stays on the CPU and in its type; dtype= of the constructor "
                                       "says which")
        return self

    def extra_repr(self) -> str:
        return repr(self.attn_model)

    def forward(self, *inputs: Any, outputs: Optional[Sequence[str]] = None, **named: Any) -> Any:
        model = self.attn_model
        given = model._by_name(inputs, named)
        wanted = model._wanted(outputs)
        parameters = dict(self.named_parameters())
        names = (tuple(given), tuple(wanted), tuple(parameters))
        results = _Run.apply(self, names, *given.values(), *parameters.values())
        return results[0] if len(results) == 1 else results

    def run(self, given: Mapping[str, Any], wanted: Sequence[str], keep: bool) -> list[Any]:
        """The library's outputs; where a backward pass may follow, it is kept."""
        model: Model = self.attn_model
        model.train(self.training)
        arrays = {name: x.detach() if isinstance(x, Tensor) else x for name, x in given.items()}
        if keep:
            found = model(outputs=list(wanted), **arrays)
        else:
            with model.no_grad():
                found = model(outputs=list(wanted), **arrays)
        return list(found) if isinstance(found, tuple) else [found]


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, layer, names, *values):  # type: ignore[override]
        inputs, wanted, _ = names
        keep = any(ctx.needs_input_grad)
        given = dict(zip(inputs, values))
        found = layer.run(given, wanted, keep)
        ctx.layer, ctx.names, ctx.call = layer, names, layer.attn_model._calls
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(x for x in values if isinstance(x, Tensor)))
        ctx.tensors = [isinstance(x, Tensor) for x in values]
        ctx.values = [None if isinstance(x, Tensor) else x for x in values]
        return tuple(torch.from_numpy(x) for x in found)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *douts):  # type: ignore[override]
        model, (inputs, wanted, parameters) = ctx.layer.attn_model, ctx.names
        saved = iter(ctx.saved_tensors)  # complains where a parameter was changed since the call
        values = [next(saved) if tensor else x for tensor, x in zip(ctx.tensors, ctx.values)]
        if model._calls != ctx.call or not model._outputs:
            if ctx.layer.training:
                raise UnsupportedError("a Layer in train() was called again before the backward pass of an earlier call; "
                                       "dropout and batch statistics would differ: go back after each call, or eval()")
            ctx.layer.run(dict(zip(inputs, values)), wanted, True)
        seeds = {name: dout.contiguous() for name, dout in zip(wanted, douts) if dout is not None}
        if not seeds:
            return (None,) * (2 + len(values))
        model.zero_grad()
        back = model.backward(seeds)
        grads = model.grads()
        model.zero_grad()
        found = [back.get(name) for name in inputs] + [grads.get(name) for name in parameters]
        return (None, None, *(_tensor(x, wanted) for x, wanted in zip(found, ctx.needs_input_grad[2:])))


def _tensor(x: Any, wanted: bool) -> Optional[Tensor]:
    return torch.from_numpy(x) if wanted and x is not None else None
