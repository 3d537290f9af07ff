# SPDX-License-Identifier: MIT
"""The operators attn::attend and attn::attend_backward, with their fake, autograd and vmap rules, and a short way past the
dispatcher for plain tensors in eager mode."""
from __future__ import annotations

import functools
import math
from typing import Any, Callable, Optional, Sequence, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _form
from .._errors import UnsupportedError
from .._form import Problem
from . import _engine

_library: Any = torch.library.Library  # without types of its own
_DEFINED = _library("attn", "FRAGMENT")
_classmethod: Callable[[Any], Any] = classmethod  # for __torch_dispatch__, whose type in PyTorch's stubs no method has
_ASKED = ("str form, float scale, float dropout, int[] relations, int score, float softcap, "
          "int normalization, float? sigmoid_bias")
_READ = ("Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, Tensor? seed, Tensor? q_offsets, "
         "Tensor? k_offsets, Tensor? sinks, Tensor? index, Tensor? blocks")
_DEFINED.define(f"attend({_READ}, {_ASKED}) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))
_DEFINED.define(f"attend_backward(Tensor dout, Tensor? dlse, {_READ}, Tensor o, Tensor lse, {_ASKED}, bool[] want) -> Tensor[]",
                tags=(torch.Tag.pt2_compliant_tag,))


# ------------------------------------------------------------------------------------------------ forward


def _attend(q: Any, k: Any, v: Any, bias: Any, mask: Any, seed: Any, q_offsets: Any, k_offsets: Any, sinks: Any,
            index: Any, blocks: Any, form: Any, scale: Any, dropout: Any, relations: Any, score: Any, softcap: Any,
            normalization: Any, sigmoid_bias: Any) -> Any:
    problem = Problem(form, scale, dropout, tuple(relations), score, softcap, normalization, sigmoid_bias)
    return _engine.forward(problem, (q, k, v, bias, mask), seed, True, (q_offsets, k_offsets), sinks, index, blocks)


def _on_one_device(q: Tensor, *rest: Optional[Tensor]) -> None:
    for x in rest:
        if x is not None and x.device != q.device:
            raise UnsupportedError(f"attn: q is on {q.device}, another tensor on {x.device}; all must be on one device")


def _attend_fake(q: Any, k: Any, v: Any, bias: Any, mask: Any, seed: Any, q_offsets: Any, k_offsets: Any, sinks: Any,
                 index: Any, blocks: Any, form: Any, scale: Any, dropout: Any, relations: Any, score: Any, softcap: Any,
                 normalization: Any, sigmoid_bias: Any) -> Any:
    tensors = (q, k, v, bias, mask)
    _on_one_device(*tensors, seed, q_offsets, k_offsets, sinks, index, blocks)
    _engine.check_types(*tensors)
    parsed, lengths = _engine.sizes(Problem(form, scale, dropout, tuple(relations), score), tensors)
    shape, strides = _form.o_layout(parsed, lengths)
    rows = [lengths[letter] for letter in parsed.rows]
    return q.new_empty_strided(shape, strides), q.new_empty(rows, dtype=_engine.sums_of(q.dtype))


def _attend_backward(dout: Any, dlse: Any, q: Any, k: Any, v: Any, bias: Any, mask: Any, seed: Any, q_offsets: Any,
                     k_offsets: Any, sinks: Any, index: Any, blocks: Any, o: Any, lse: Any, form: Any, scale: Any, dropout: Any,
                     relations: Any, score: Any, softcap: Any, normalization: Any, sigmoid_bias: Any,
                     want: Any) -> Any:
    problem = Problem(form, scale, dropout, tuple(relations), score, softcap, normalization, sigmoid_bias)
    return _engine.backward(problem, dout, (q, k, v, bias, mask), o, lse, seed, want, (q_offsets, k_offsets), sinks,
                            index, blocks, dlse)


def _attend_backward_fake(dout: Any, dlse: Any, q: Any, k: Any, v: Any, bias: Any, mask: Any, seed: Any, q_offsets: Any,
                          k_offsets: Any, sinks: Any, index: Any, blocks: Any, o: Any, lse: Any, form: Any, scale: Any,
                          dropout: Any, relations: Any, score: Any, softcap: Any, normalization: Any, sigmoid_bias: Any,
                          want: Any) -> Any:
    return _engine.gradients_like((q, k, v, bias, sinks), want)


_DEFINED.impl("attend", _attend, "CPU")
_DEFINED.impl("attend_backward", _attend_backward, "CPU")
torch.library.register_fake("attn::attend", _attend_fake, lib=_DEFINED)
torch.library.register_fake("attn::attend_backward", _attend_backward_fake, lib=_DEFINED)
_op, _op_backward = torch.ops.attn.attend.default, torch.ops.attn.attend_backward.default


# ----------------------------------------------------------------------------------------------- autograd


_READS = 11  # inputs before the problem
_SINKS = 8   # one of them
_ABSENT = (None,) * (_READS - 6)  # those after the seed, where there are none


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
    asked = inputs[_READS:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_READS], *output)
    ctx.problem = Problem._make((*asked[:3], tuple(asked[3]), *asked[4:]))


def _back(ctx: Any, dout: Optional[Tensor], dlse: Optional[Tensor]) -> tuple[Optional[Tensor], ...]:
    needs = (*ctx.needs_input_grad, False)
    want = [*needs[:4], needs[_SINKS]]
    if (dout is None and dlse is None) or not any(want):
        return (None,) * (_READS + len(Problem._fields))
    *read, o, lse = ctx.saved_tensors
    dout = torch.zeros_like(o) if dout is None else dout
    if not torch.is_grad_enabled() and unwatched() and all(x is None or plain(x) for x in (dout, dlse, *read)):
        grads = iter(_engine.backward(ctx.problem, dout, read[:5], o, lse, read[5], want, read[6:8], read[8], read[9],
                                     read[10], dlse))
    else:
        grads = iter(_way_back(dout, dlse)(dout, dlse, *read, o, lse, *ctx.problem, want))
    found = [next(grads) if wanted else None for wanted in want]
    return (*found[:4], *(None,) * (_SINKS - 4), found[4], *(None,) * (_READS - _SINKS - 1),
            *(None,) * len(Problem._fields))


def refuse_twice(ctx: Any, *grads: Any) -> Any:
    raise UnsupportedError("attn: second derivatives of attention are not supported; PyTorch computes them under "
                           "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)")


torch.library.register_autograd("attn::attend", _back, setup_context=_keep, lib=_DEFINED)
torch.library.register_autograd("attn::attend_backward", refuse_twice, setup_context=lambda ctx, inputs, output: None,
                                lib=_DEFINED)


def _computed(*inputs: Any) -> tuple[Tensor, Tensor]:
    read = inputs[:_READS]
    return cast(tuple[Tensor, Tensor], _engine.forward(Problem._make(inputs[_READS:]), read[:5], read[5], True, read[6:8],
                                                       *read[8:]))


class _Eager(torch.autograd.Function):
    """The operator's rule without the dispatcher, which takes several times as long as a small call."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        found = _computed(*inputs)
        _keep(ctx, inputs, found)
        return found

    backward = staticmethod(_back)


class _Direct(torch.autograd.Function):
    """As `_Eager`, for calls that a plan is kept for.  Each input and each saved tensor
    costs time, also one that is None; so there is no bias and no mask but `given`, and lse is no tensor."""

    @staticmethod
    def forward(ctx: Any, plan: Any, q: Any, k: Any, v: Any, given: Any = None) -> Any:
        lse = plan.lse()
        if given is None:
            o = _run(plan, q, k, v, None, None, _address(lse))
            ctx.save_for_backward(q, k, v, o)
        else:
            bias, mask = plan.places(given)
            o = _run(plan, q, k, v, bias, mask, _address(lse))
            ctx.save_for_backward(q, k, v, o, given)
        ctx.kept = plan, lse
        return o

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        plan, lse = ctx.kept  # the plan's own memory may be freed
        q, k, v, o, *given = ctx.saved_tensors
        want = ctx.needs_input_grad[1:]
        read = q, k, v, *(plan.places(*given) if given else (None, None))
        if not torch.is_grad_enabled() and unwatched() and plain(dout) and plan.fits(q, k, v, o, *given):
            grads = _engine.backward_again(plan, dout, read, o, lse, want)
        else:
            sums = torch.frombuffer(lse, dtype=_engine.sums_of(o.dtype))[:math.prod(plan.rows)].view(plan.rows)
            grads = _way_back(dout)(dout, None, *read, None, *_ABSENT, o, sums, *plan.problem,
                                    [*want, *[False] * (5 - len(want))])
        if all(want):
            return (None, *grads)
        found = iter(grads)
        return (None, *(next(found) if wanted else None for wanted in want))


_run, _address = _engine.run, _engine.address


# --------------------------------------------------------------------------------------------------- vmap


def _batched(tensors: Sequence[Optional[Tensor]], dims: Sequence[Optional[int]], n: int,
             every: bool) -> list[Optional[Tensor]]:
    """The mapped axis in front; of tensors without one length 1, or n as a view where `every` is set."""
    found: list[Optional[Tensor]] = []
    for x, dim in zip(tensors, dims):
        if x is None:
            found.append(None)
        elif dim is not None:
            found.append(x.movedim(dim, 0))
        else:
            found.append(x.unsqueeze(0).expand(n, *x.shape) if every else x.unsqueeze(0))
    return found


def _mapped_form(form: str, operands: Sequence[Optional[Tensor]]) -> str:
    """The form with one more axis in front of all; Z, or the next letter back that is free."""
    letter = next(letter for letter in "ZYXWVUTS" if letter not in form)
    parts = [letter + part for part in form.replace("->", ",").replace(";", ",").split(",")]
    parts[5:] = [part if x is not None else "" for part, x in zip(parts[5:], operands[3:5])]
    return ",".join(parts[:3]) + "->" + ";".join(parts[3:])


def _one_by_one(call: Callable[..., Any], n: int, dims: Sequence[Optional[int]], tensors: Sequence[Optional[Tensor]],
                *rest: Any) -> tuple[Tensor, ...]:
    """The results for each entry of the mapped axis, stacked."""
    found = [call(*[x if x is None or dim is None else x.select(dim, i) for x, dim in zip(tensors, dims)], *rest)
             for i in range(n)]
    return tuple(map(torch.stack, zip(*found)))


def _in_one_call(read: Sequence[Optional[Tensor]], dropout: float) -> bool:
    """Whether one more axis can hold the entries: a seed drops other weights in each, and what _ABSENT stands for has none."""
    return dropout == 0 and all(x is None for x in read[6:])


def _map(info: Any, in_dims: Any, *inputs: Any) -> Any:
    (*read, form, scale, dropout), rest = inputs[:_READS + 3], inputs[_READS + 3:]
    if not _in_one_call(read, dropout):
        return _one_by_one(_way(), info.batch_size, in_dims[:_READS], read, form, scale, dropout, *rest), (0, 0)
    tensors = _batched(read[:5], in_dims[:5], info.batch_size, False)
    if in_dims[0] is None:
        tensors[0] = read[0].unsqueeze(0).expand(info.batch_size, *read[0].shape)
    return _way()(*tensors, None, *_ABSENT, _mapped_form(form, tensors), scale, dropout, *rest), (0, 0)


def _map_backward(info: Any, in_dims: Any, *inputs: Any) -> Any:
    n, count = info.batch_size, 4 + _READS  # tensors: dout, dlse, what attend reads, o, lse
    (*tensors, form, scale, dropout), rest = inputs[:count + 3], inputs[count + 3:]
    if not _in_one_call(tensors[2:2 + _READS], dropout):
        grads = _one_by_one(_way_back(), n, in_dims[:count], tensors, form, scale, dropout, *rest)
    else:
        given = _batched(tensors, in_dims[:count], n, True)
        dout, dlse, *read, o, lse = given
        grads = _way_back()(dout, dlse, *read, o, None if lse is None else lse.contiguous(), _mapped_form(form, read[:5]),
                            scale, dropout, *rest)
    return grads, [0] * len(grads)


torch.library.register_vmap("attn::attend", _map, lib=_DEFINED)
torch.library.register_vmap("attn::attend_backward", _map_backward, lib=_DEFINED)


class _Transformed(torch.autograd.Function):
    """The operator under torch.func: PyTorch's registration serves its transforms by functions of this form only."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return _op(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        _keep(ctx, inputs, output)

    backward = staticmethod(_back)
    vmap = staticmethod(_map)


class _TransformedBack(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Any:
        return tuple(_op_backward(*inputs))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        pass

    backward = staticmethod(refuse_twice)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        grads, dims = _map_backward(info, in_dims, *inputs)
        return tuple(grads), tuple(dims)


# ---------------------------------------------------------------------------------------------- the choice


def _level() -> Any:
    """The innermost transform of torch.func."""
    return None if torch.compiler.is_compiling() else _transform()


def in_transform() -> bool:
    return _level() is not None


def _way(operator: Any = None) -> Callable[..., Any]:
    """The operator, attn::attend by default, as the innermost transform takes it."""
    back, level = operator is _op_backward, _level()
    if level is None:
        return cast(Callable[..., Any], _op_backward if back else _op)
    if level.key() == _FUNCTIONALIZE:
        return functools.partial(_functionalized, _op_backward if back else _op)
    keys = [outer.key() for outer in _transforms()]  # the outermost one first
    if _FUNCTIONALIZE in keys and _GRAD in keys[keys.index(_FUNCTIONALIZE):]:
        raise UnsupportedError("attn: torch.func.functionalize around grad or vjp is not supported; functionalize inside of grad or "
                               "vjp is")
    return cast(Callable[..., Any], _TransformedBack.apply if back else _Transformed.apply)


def _functionalized(operator: Any, *inputs: Any) -> Any:
    """Attention neither writes to its inputs nor returns views of them, so that the next transform may have what they wrap."""
    from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

    transform: Any = torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter()  # a FunctionalizeInterpreter
    around = FunctorchFunctionalizeAPI(transform)
    inner = around.unwrap_tensors(inputs)
    with around.redispatch_to_next():
        found = _way(operator)(*inner)
    return around.wrap_tensors(found)


def _way_back(*given: Optional[Tensor]) -> Callable[..., Any]:
    """The operator's backward pass, for given gradients that the engine cannot read in place."""
    if any(x is not None and batched_before(x) for x in given):
        raise UnsupportedError("attn: gradients of several outputs at once (is_grads_batched, jacobian(vectorize=True)) are not "
                               "supported; use torch.func or vectorize=False")
    return _way(_op_backward)


def attend(problem: Problem, q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None,
           mask: Optional[Tensor] = None,
           offsets: tuple[Optional[Tensor], Optional[Tensor]] = (None, None),
           sinks: Optional[Tensor] = None, index: Optional[Tensor] = None,
           blocks: Optional[Tensor] = None, seed: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    """o and the log-sum-exp, through the operator.  Dropout's seed, unless given, is from PyTorch's generator:
    torch.manual_seed fixes what is dropped."""
    if in_forward_mode():
        raise UnsupportedError("attn: forward-mode derivatives of attention are not supported; PyTorch computes them under "
                               "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)")
    for name, x in zip(("query", "key", "value", "the bias", "the mask", "sinks"), (q, k, v, bias, mask, sinks)):
        if x is not None and _has_own_rules(x):
            raise UnsupportedError(f"attn: {name} is a {type(x).__module__}.{type(x).__name__}, whose rules attention would not "
                                   "follow; expected a plain tensor")
    everything = problem.dropout == 1  # is dropped: the engine divides by 1 - dropout
    if everything:
        problem = problem._replace(dropout=0.0)
    if not problem.dropout:
        seed = None
    elif seed is None:
        seed = new_seed()
    read = q, k, v, bias, mask, seed, *offsets, sinks, index, blocks
    if eager() and all(x is None or plain(x) for x in read):
        o, lse = _Eager.apply(*read, *problem) if records(q, k, v, bias, sinks) else _computed(*read, *problem)
    else:
        o, lse = _way()(*read, *problem)
    return o * 0 if everything else o, lse


def new_seed() -> Tensor:
    """A seed of dropout, from PyTorch's generator."""
    return torch.randint(2**62, (), dtype=torch.int64, device="cpu")


def is_usual(x: Tensor) -> bool:
    return type(x) in _PLAIN


def _has_own_rules(x: Tensor) -> bool:
    """Whether x is of a subclass with a __torch_function__ of its own; its memory may hold anything."""
    rule = None if is_usual(x) else getattr(type(x).__torch_function__, "__func__", None)  # None: not in Python
    return rule is not None and rule is not Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_tracing, _transform = torch._C._get_tracing_state, torch._C._functorch.peek_interpreter_stack
_transforms = torch._C._functorch.get_interpreter_stack
_JVP, _GRAD, _FUNCTIONALIZE = (getattr(torch._C._functorch.TransformType, name) for name in ("Jvp", "Grad", "Functionalize"))
_compiling, _autocast = torch.compiler.is_compiling, torch._C._is_any_autocast_enabled
batched_before = torch._C._functorch.is_legacy_batchedtensor  # of autograd's is_grads_batched
_PLAIN = (Tensor, torch.nn.Parameter)


def in_forward_mode() -> bool:
    """Whether tangents are computed (torch.func.jvp, torch.autograd.forward_ad): attention has no rule for them."""
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        return True
    return _transform() is not None and any(level.key() == _JVP for level in _transforms())


def tracing() -> bool:
    """Whether torch.jit.trace records."""
    return _tracing() is not None


def eager() -> bool:
    """Whether nothing looks at calls: no compiler, mode, transform, tracing or forward mode."""
    return not _compiling() and not _modes() and not _function_modes() and _transform() is None and _tracing() is None \
        and forward_ad._current_level < 0


def unwatched() -> bool:
    """Whether nothing looks at calls or changes their types."""
    return not _autocast() and eager()


def watched() -> bool:
    """Whether a compiler, mode, transform or tracing looks at calls: tensors may have no numbers then."""
    return bool(_compiling() or _modes() or _function_modes() or _transform() is not None or _tracing() is not None)


def records(*tensors: Optional[Tensor]) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def plain(x: Tensor) -> bool:
    """Whether the engine can read x in place."""
    return type(x) in _PLAIN and x.is_cpu and not x.is_neg() and not batched_before(x)
