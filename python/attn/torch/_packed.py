# SPDX-License-Identifier: MIT
"""Weights of linear layers that are packed for attn's product, and have no other form.

A PackedWeight is a tensor of the weight's shape and type whose memory is the packed matrix.  Linear layers multiply by it;
every other operation unpacks it, and a write packs it anew, or is refused.  So there is one form, and nothing that could be
stale.  The operators attn::linear_packed and attn::unpack have fake and autograd rules; no packed matrix is looked up by
an address.
"""
from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, Callable, NoReturn, Optional, Sequence, cast

import torch
from torch import Tensor

from .. import _library as c
from .._errors import ArgumentError, UnsupportedError
from .._library import lib
from . import _engine, _linear, _ops

FORMS = {"f32": c.PRECISION_F32, "bf16": c.PRECISION_BF16, "int8": c.PRECISION_INT8}
ACTIVATIONS = {"": c.ACTIVATION_IDENTITY, "relu": c.ACTIVATION_RELU, "gelu": c.ACTIVATION_GELU_ERF,
               "gelu_tanh": c.ACTIVATION_GELU_TANH, "gelu_sigmoid": c.ACTIVATION_GELU_SIGMOID, "silu": c.ACTIVATION_SILU,
               "tanh": c.ACTIVATION_TANH, "sigmoid": c.ACTIVATION_SIGMOID}
# The type in which numbers come and go, for each type of a weight.
_READ = {torch.float32: torch.float32, torch.bfloat16: torch.bfloat16, torch.float16: torch.float32}
_multiply, _KEPT = _linear._multiply, 1024
_empty_like, _grad_enabled = torch.empty_like, torch.is_grad_enabled
_numbers: dict[Any, int] = {}  # of the kinds of packed weights, which are found by them in less time

_Tensor: Any = Tensor  # for members of which PyTorch's stubs have no types, or wrong ones
_classmethod = _ops._classmethod

_DEFINED = _ops._DEFINED
_TAGS = (torch.Tag.pt2_compliant_tag,)
_DEFINED.define("linear_packed(Tensor x, Tensor packed, Tensor? bias, SymInt n, str form, str activation, Tensor? factor, "
                "Tensor? residual) -> Tensor", tags=_TAGS)
_DEFINED.define("unpack(Tensor packed, Tensor? rows, SymInt n, SymInt k, ScalarType dtype) -> Tensor", tags=_TAGS)


# ------------------------------------------------------------------------------------------------ the products


class _Products(threading.local):
    def __init__(self) -> None:
        self.by_threads: dict[int, dict[Any, _Kind]] = {}


_products = _Products()


class _Kind:
    """Products of one kind: how long they are, and arguments that no call has."""

    def __init__(self, m: int, n: int, k: int, row: int, dtype: torch.dtype, form: str, activation: str, bias: Optional[torch.dtype],
                 factor: bool, residual: bool) -> None:
        kind = _engine.TYPES[dtype]
        table = c.Product(m=m, n=n, k=k, precision=FORMS[form], activation=ACTIVATIONS[activation])
        table.a, table.c = c.Matrix(None, kind, row, 1, 0), c.Matrix(None, kind, n, 1, 0)
        table.bias_dtype = c.F32 if bias is None else _engine.TYPES[bias]
        if factor:
            table.factor = c.Matrix(None, kind, n, 1, 0)
        if residual:
            table.residual = c.Matrix(None, kind, n, 1, 0)
        self.table, self.context = table, _engine.engine().context
        self.pointer = self.context.pointer.value
        self.idle: list[Any] = []
        self.like: Any = None  # of results, without memory

    def run(self, x: Tensor, packed: Tensor, bias: Optional[Tensor], factor: Optional[Tensor], residual: Optional[Tensor],
            y: Tensor) -> Tensor:
        idle = self.idle
        # a signal handler, or a finalizer, may multiply in the same thread while this call fills its arguments
        try:
            one = idle.pop()
        except IndexError:
            one = _linear._Arguments(self.table)
        try:
            table = one.table
            one.a.data, one.c.data, table.packed = x.data_ptr(), y.data_ptr(), packed.data_ptr()
            table.bias = None if bias is None else bias.data_ptr()
            if factor is not None:
                one.factor.data = factor.data_ptr()
            if residual is not None:
                one.residual.data = residual.data_ptr()
            status = _multiply(self.pointer, one.where)
        finally:
            idle.append(one)
        if status:
            self.context.check(status)
        return y


def _kept() -> dict[Any, _Kind]:
    """The kinds of products of this thread."""
    threads = _linear._threads_now()
    kept = _products.by_threads.get(threads)
    if kept is None:
        kept = _products.by_threads[threads] = {}
    elif len(kept) >= _KEPT:
        kept.clear()
    return kept


def _rows(x: Tensor, k: int) -> tuple[Tensor, int, int]:
    """x, its number of rows, and how far apart they are; a copy where they are not evenly apart."""
    if x.dim() == 2 and x.stride(1) == 1 and x.stride(0) >= k:
        return x, x.shape[0], x.stride(0)
    x = x.contiguous()
    return x, x.numel() // k, k


def _linear_packed(x: Tensor, packed: Tensor, bias: Optional[Tensor], n: int, form: str, activation: str,
                   factor: Optional[Tensor], residual: Optional[Tensor]) -> Tensor:
    dtype, k, shape = x.dtype, x.shape[-1], (*x.shape[:-1], n)
    read = _READ[dtype]
    if read is not dtype:
        wide = [None if t is None else t.to(read) for t in (x, bias, factor, residual)]
        return _linear_packed(cast(Tensor, wide[0]), packed, wide[1], n, form, activation, wide[2], wide[3]).to(dtype)
    y = torch.empty(shape, dtype=dtype)
    x, m, row = _rows(x, k)
    bias, factor, residual = (t if t is None else t.contiguous() for t in (bias, factor, residual))
    key = (m, n, k, row, dtype, form, activation, None if bias is None else bias.dtype, factor is not None, residual is not None)
    kept = _kept()
    kind = kept.get(key)
    if kind is None:
        kind = kept[key] = _Kind(*key)
    return kind.run(x, packed, bias, factor, residual, y)


def _quickly(x: Tensor, weight: "PackedWeight", bias: Optional[Tensor], activation: str, factor: Optional[Tensor],
             residual: Optional[Tensor]) -> Tensor:
    """As _linear_packed, for tensors that are contiguous, and whose type attn reads: a call like an earlier one costs a
    look-up and a call of C."""
    shape = x.shape
    key = (shape, weight._number, activation, None if bias is None else bias.dtype, factor is None, residual is None)
    threads = _linear._threads_now()
    try:
        kind = _products.by_threads[threads][key]
    except KeyError:
        (n, k), dtype = weight._sizes, weight._type
        kind = _Kind(x.numel() // k, n, k, k, dtype, weight.form, activation, None if bias is None else bias.dtype,
                     factor is not None, residual is not None)
        rows = (*shape[:-1], n)
        kind.like = _engine._hollow(rows, _strides(rows), dtype)
        _kept()[key] = kind
    return kind.run(x, weight._packed, bias, factor, residual, _empty_like(kind.like))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a contiguous tensor."""
    found = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * max(size, 1))
    return tuple(reversed(found[:len(shape)]))


_normalize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
    ctypes.cast(lib.normalize_rows, ctypes.c_void_p).value or 0)


def normalize(x: Any, weight: Any, eps: float) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight, over the last axis; NotImplemented where PyTorch must compute."""
    if type(x) is not Tensor or not _ops.unwatched() or type(weight) not in _ops._PLAIN or x.dtype is not weight.dtype \
            or x.dtype not in _engine.TYPES or x.dtype is torch.float64 or x.shape[-1:] != weight.shape or x.numel() == 0 \
            or not x.is_contiguous() or not weight.is_contiguous() or not x.is_cpu or not weight.is_cpu or x.is_neg() or weight.is_neg() \
            or (_grad_enabled() and (x.requires_grad or weight.requires_grad)):
        return NotImplemented
    y, n, kind = _empty_like(x), x.shape[-1], _engine.TYPES[x.dtype]
    rows = c.Matrix(x.data_ptr(), kind, n, 1, 0)
    table = c.RowNorm(x.numel() // n, n, rows, c.Matrix(y.data_ptr(), kind, n, 1, 0), weight.data_ptr(), None, kind, True, eps)
    context = _engine.engine().context
    status = _normalize(context.pointer.value, ctypes.addressof(table))
    if status:
        context.check(status)
    return y


def _check(x: Tensor, bias: Optional[Tensor], n: int, factor: Optional[Tensor], residual: Optional[Tensor]) -> None:
    if x.dtype not in _READ:
        raise ArgumentError(f"linear_packed: x is of {x.dtype}; expected float32, bfloat16 or float16")
    if x.dim() == 0:
        raise ArgumentError("linear_packed: x has no axes; expected at least one")
    for name, t, shape in (("bias", bias, (n,)), ("factor", factor, (*x.shape[:-1], n)), ("residual", residual, (*x.shape[:-1], n))):
        if t is not None and (tuple(t.shape) != shape or t.dtype != x.dtype):
            raise ArgumentError(f"linear_packed: {name} is {tuple(t.shape)} of {t.dtype}; expected {shape} of {x.dtype}")


def _linear_packed_cpu(x: Tensor, packed: Tensor, bias: Optional[Tensor], n: int, form: str, activation: str,
                       factor: Optional[Tensor], residual: Optional[Tensor]) -> Tensor:
    _check(x, bias, n, factor, residual)
    return _linear_packed(x, packed, bias, n, form, activation, factor, residual)


def _linear_packed_fake(x: Tensor, packed: Tensor, bias: Optional[Tensor], n: int, form: str, activation: str,
                        factor: Optional[Tensor], residual: Optional[Tensor]) -> Tensor:
    return x.new_empty((*x.shape[:-1], n))


def _unpack(packed: Tensor, rows: Optional[Tensor], n: int, k: int, dtype: torch.dtype) -> Tensor:
    """The weight [n,k], or the rows of it at these indices."""
    count = n if rows is None else rows.numel()
    to = torch.empty((count, k), dtype=_READ[dtype])
    indices = None if rows is None else rows.to(torch.int64).contiguous()
    context = _engine.engine().context
    matrix = c.Matrix(to.data_ptr(), _engine.TYPES[to.dtype], 1, k, 0)
    at = None if indices is None else ctypes.cast(indices.data_ptr(), ctypes.POINTER(ctypes.c_int64))
    context.check(lib.product_unpack(context.pointer, packed.data_ptr(), at, count, ctypes.byref(matrix)))
    return to if to.dtype == dtype else to.to(dtype)


def _unpack_fake(packed: Tensor, rows: Optional[Tensor], n: int, k: int, dtype: torch.dtype) -> Tensor:
    return packed.new_empty((n if rows is None else rows.numel(), k), dtype=dtype)


_DEFINED.impl("linear_packed", _linear_packed_cpu, "CPU")
_DEFINED.impl("unpack", _unpack, "CPU")
torch.library.register_fake("attn::linear_packed", _linear_packed_fake, lib=_DEFINED)
torch.library.register_fake("attn::unpack", _unpack_fake, lib=_DEFINED)
_op, _op_unpack = torch.ops.attn.linear_packed.default, torch.ops.attn.unpack.default


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, packed, bias, n, _, activation, factor, residual = inputs
    ctx.save_for_backward(packed)
    ctx.sizes = n, x.shape[-1], x.dtype
    ctx.plain = not activation and factor is None


def _back(ctx: Any, dy: Tensor) -> tuple[Optional[Tensor], ...]:
    if not ctx.plain:
        raise UnsupportedError("attn: a packed linear layer with an activation has no gradient; optimize() makes a model for "
                               "inference")
    packed, = ctx.saved_tensors
    n, k, dtype = ctx.sizes
    wants = ctx.needs_input_grad
    dx = dy @ _op_unpack(packed, None, n, k, dtype) if wants[0] else None
    db = dy.reshape(-1, n).sum(0) if wants[2] else None
    return dx, None, db, None, None, None, None, dy if wants[7] else None


torch.library.register_autograd("attn::linear_packed", _back, setup_context=_keep, lib=_DEFINED)


# ---------------------------------------------------------------------------------------------- packed weights


def _pack(weight: Tensor, form: str, turned: bool, into: Optional[Tensor] = None) -> Tensor:
    """A dense weight as a packed matrix; turned: it is [k,n]."""
    weight = (weight.float() if weight.dtype is torch.float16 else weight).resolve_neg()
    context = _engine.engine().context
    k, n = weight.shape if turned else weight.shape[::-1]
    row, column = weight.stride() if turned else weight.stride()[::-1]
    kind, size = _engine.TYPES[weight.dtype], ctypes.c_size_t()
    context.check(lib.product_packed_size(ctypes.byref(size), context.pointer, FORMS[form], kind, k, n))
    packed = torch.empty(size.value, dtype=torch.uint8, device="cpu") if into is None else into
    matrix = c.Matrix(weight.data_ptr(), kind, row, column, 0)
    context.check(lib.product_pack(context.pointer, FORMS[form], ctypes.byref(matrix), k, n, packed.data_ptr()))
    return packed


def _is_exact(weight: Tensor, form: str) -> bool:
    """Whether the packed weight has the numbers of the original one."""
    if form == "f32" or (form == "bf16" and weight.dtype is torch.bfloat16):
        return True
    return form == "bf16" and torch.equal(weight.to(torch.bfloat16).to(weight.dtype), weight)


class _State:
    """What all tensors of one packed matrix share.  exact: the packed matrix has the numbers of the original weight.  rows: some
    of its rows, packed apart, until it is written to."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.rows: dict[tuple[int, int], tuple[int, PackedWeight]] = {}


class PackedWeight(Tensor):
    """The weight of a linear layer, packed for attn's product.  It has the shape and the type of the original weight."""
    _packed: Tensor
    _state: _State
    form: str
    turned: bool
    _sizes: tuple[int, int]  # outputs and inputs
    _type: torch.dtype
    _number: int             # of its kind; -1: of a type that is converted
    _is_param: bool

    @staticmethod
    def __new__(cls: Any, packed: Tensor, shape: Sequence[int], dtype: torch.dtype, form: str, turned: bool, state: _State,
                strides: Optional[Sequence[int]] = None) -> "PackedWeight":
        self: PackedWeight = _Tensor._make_wrapper_subclass(
            cls, shape, strides=strides or (shape[1], 1), dtype=dtype, device="cpu", requires_grad=False)
        self._packed, self.form, self.turned, self._state = packed, form, turned, state
        # shape and dtype once more, which a subclass's attributes are read in several times the time of
        self._sizes = (shape[1], shape[0]) if turned else (shape[0], shape[1])
        self._type = dtype
        plain = _READ.get(dtype) is dtype and type(shape[0]) is type(shape[1]) is int  # no compiler's symbols
        self._number = _numbers.setdefault((self._sizes, dtype, form), len(_numbers)) if plain else -1
        return self

    @classmethod
    def of(cls, weight: Tensor, form: str, turned: bool) -> "PackedWeight":
        """turned: the weight is [in,out], as that of transformers' Conv1D."""
        weight = weight.detach()
        state = _State(_is_exact(weight, form))
        return cls(_pack(weight, form, turned), tuple(weight.shape), weight.dtype, form, turned, state)

    @property
    def exact(self) -> bool:
        return self._state.exact

    # ------------------------------------------------------------------------------------------- its parts

    @property
    def sizes(self) -> tuple[int, int]:
        """Outputs and inputs of the layer."""
        return self._sizes

    def dense(self) -> Tensor:
        """The weight as a tensor of its own memory.  In int8, and in bf16 of a float32 weight, it is the rounded weight."""
        n, k = self.sizes
        found: Tensor = _op_unpack(self._packed, None, n, k, self.dtype)
        return found.t().contiguous() if self.turned else found

    def rows(self, first: int, last: int) -> "PackedWeight":
        """Rows [first, last) as a packed weight of its own, which is kept until this one is written to."""
        version = -1 if self._packed.is_inference() else self._packed._version
        before, found = self._state.rows.get((first, last), (None, None))
        if self._packed.is_shared():  # type: ignore[no-untyped-call]  # another process may write to the memory: nothing is kept
            return PackedWeight.of(self.dense()[first:last], self.form, self.turned)
        if found is None or before != version:
            found = PackedWeight.of(self.dense()[first:last], self.form, self.turned)
            self._state.rows[first, last] = version, found
        return found

    def same(self) -> "PackedWeight":
        """Another tensor of the same memory."""
        return PackedWeight(self._packed, self.shape, self.dtype, self.form, self.turned, self._state, self.stride())

    def transposed(self) -> "PackedWeight":
        return PackedWeight(self._packed, self.shape[::-1], self.dtype, self.form, not self.turned, self._state,
                            self.stride()[::-1])

    def write(self, weight: Tensor, whole: bool) -> None:
        """Packs other numbers in place.  whole: they do not depend on the numbers before."""
        if not whole and not self.exact:
            raise UnsupportedError(f"attn: this weight is packed as {self.form}, which has rounded it, so that it cannot be "
                                   "changed in place; change the original model and optimize() it again")
        if weight.shape != self.shape:
            raise UnsupportedError(f"attn: a packed weight {tuple(self.shape)} cannot become {tuple(weight.shape)}; the shapes must be "
                                   "equal")
        weight = weight.detach().to(self.dtype)
        if not _fits(weight, self.form):
            raise UnsupportedError(f"attn: a weight {tuple(self.shape)} has numbers that are not finite, which cannot be packed as "
                                   f"{self.form}")
        self._state.rows.clear()
        _pack(weight, self.form, self.turned, self._packed)
        if not self._packed.is_inference():
            torch.autograd.graph.increment_version(self._packed)  # a backward pass must not read the new numbers
        self._state.exact = _is_exact(weight, self.form)

    # ---------------------------------------------------------------------------------- PyTorch's protocols

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_packed"], (self.form, self.turned, self.exact, self.dtype)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> "PackedWeight":
        form, turned, exact, dtype = meta
        return PackedWeight(inner["_packed"], size, dtype, form, turned, _State(exact), stride)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _RULES.get(func)
        if rule is not None:
            found = rule(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @_classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _DISPATCH.get(func)
        if rule is not None:
            found = rule(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        return _by_dense(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackedWeight":
        found = memo.get(id(self))
        if found is None:
            found = PackedWeight(self._packed.clone(), self.shape, self.dtype, self.form, self.turned, _State(self.exact),
                                 self.stride())
            memo[id(self)] = _marked(found, self)
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = getattr(self, "_is_param", False), self.turned, self.form
        if self.exact:
            return _packed_again, (self.dense(), *kind)
        return _restored, (self._packed, tuple(self.shape), self.dtype, *kind)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"PackedWeight({tuple(self.shape)}, {self.dtype}, packed as {self.form})"


def _marked(found: PackedWeight, like: Any) -> PackedWeight:
    """As a parameter, where `like` is one or true."""
    if like is True or getattr(like, "_is_param", False):
        found._is_param = True
    return found


def _packed_again(weight: Tensor, parameter: bool, turned: bool, form: str) -> PackedWeight:
    _know_attention()
    return _marked(PackedWeight.of(weight, form, turned), parameter)


def _restored(packed: Tensor, shape: Sequence[int], dtype: torch.dtype, parameter: bool, turned: bool, form: str) -> PackedWeight:
    """Of the rounded weight there is nothing but the packed one; another kind of machine cannot read it, and says so."""
    _know_attention()
    found = PackedWeight(packed.clone(), shape, dtype, form, turned, _State(False))  # clone: aligned memory
    n, k = found.sizes
    _op_unpack(found._packed, torch.zeros(1, dtype=torch.int64), n, k, dtype)
    return _marked(found, parameter)


def _know_attention() -> None:
    """A model of transformers that optimize() made names attn's attention, which another process must know."""
    if "transformers" in sys.modules:
        from . import _transformers
        _transformers.register()


def _fits(weight: Tensor, form: str) -> bool:
    return form != "int8" or bool(torch.isfinite(weight).all())


class _View(Tensor):
    """A view of a packed weight, unpacked each time it is read, so that it has the weight's numbers of that time.  Writing to it
    would not change the weight, and is refused."""
    _weight: PackedWeight
    _steps: tuple[Any, ...]  # the operations that made it, each with its arguments after the first and the index of its result

    @staticmethod
    def __new__(cls: Any, like: Tensor, base: PackedWeight, steps: tuple[Any, ...]) -> "_View":
        self: _View = _Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device="cpu", requires_grad=False)
        self._weight, self._steps = base, steps
        return self

    def dense(self) -> Tensor:
        found: Any = self._weight.dense()
        for operation, args, kwargs, index in self._steps:
            found = operation(found, *args, **kwargs)
            found = found if index is None else found[index]
        return cast(Tensor, found)

    @_classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _by_dense(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return repr(self.dense())

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.dense()

    def __reduce_ex__(self, protocol: Any) -> Any:
        found: Any = self.dense()
        return found.__reduce_ex__(protocol)


# Operations after which nothing of the numbers before is left.
_aten = torch.ops.aten
_WHOLE = {_aten.copy_.default, _aten.zero_.default, _aten.fill_.Scalar, _aten.fill_.Tensor, _aten.normal_.default,
          _aten.uniform_.default}


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operation writes to."""
    found: list[Any] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[i] if i < len(args) and not argument.kwarg_only else kwargs.get(argument.name))
    return [x for one in found for x in (one if isinstance(one, (list, tuple)) else [one])]


def _by_dense(func: Any, args: Any, kwargs: Any) -> Any:
    """Any operation, on unpacked weights; what it has written is packed again."""
    written = _written(func, args, kwargs)
    if any(isinstance(x, _View) for x in written):
        raise UnsupportedError(f"attn: {func} writes to a view of a packed weight, which would not change the weight; write to the "
                               "weight as a whole (weight.copy_(...)), or change the original model and optimize() it again")
    pairs: list[tuple[Any, Tensor]] = []

    def dense(x: Any) -> Any:
        if isinstance(x, _View):
            return x.dense()
        if not isinstance(x, PackedWeight):
            return x
        for known, found in pairs:
            if known is x:
                return found
        pairs.append((x, x.dense()))
        return pairs[-1][1]

    viewed, rest, named = args[0] if args else None, args[1:], kwargs
    args, kwargs = torch.utils._pytree.tree_map(dense, (args, kwargs))
    whole = func in _WHOLE
    found = func(*args, **kwargs)
    back = {id(plain): x for x, plain in pairs if any(x is one for one in written)}
    for x, plain in pairs:
        if id(plain) in back:
            x.write(plain, whole)
    if not func.is_view or not isinstance(viewed, (PackedWeight, _View)):
        return torch.utils._pytree.tree_map(lambda x: back.get(id(x), x), found)
    base, steps = (viewed.same(), ()) if isinstance(viewed, PackedWeight) else (viewed._weight, viewed._steps)
    if isinstance(found, Tensor):
        return _View(found, base, (*steps, (func, rest, named, None)))
    return type(found)(_View(x, base, (*steps, (func, rest, named, i))) for i, x in enumerate(found))


# ------------------------------------------------------------------------------------------------- its rules


def multiply(x: Any, weight: PackedWeight, bias: Optional[Tensor], activation: str = "", factor: Optional[Tensor] = None,
             residual: Optional[Tensor] = None) -> Any:
    """A linear layer, or NotImplemented where the unpacked weight must answer, with PyTorch's rules and words."""
    n, k = weight._sizes
    dtype = weight._type
    if type(x) is Tensor and _ops.unwatched() and x.dtype is dtype and weight._number >= 0 and x.shape[-1:] == (k,) \
            and x.is_contiguous() and x.is_cpu and not x.is_neg() \
            and (bias is None or (type(bias) in _ops._PLAIN and bias.dtype is dtype and bias.shape == (n,) and bias.is_contiguous()
                                  and bias.is_cpu and not bias.is_neg())) \
            and (factor is None or (factor.is_contiguous() and not factor.is_neg())) \
            and (residual is None or (residual.is_contiguous() and not residual.is_neg())) \
            and not (_grad_enabled() and _records(x, bias, factor, residual)):
        return _quickly(x, weight, bias, activation, factor, residual)
    cast_to = None
    if _ops.in_transform() or _ops.in_forward_mode():
        if activation or factor is not None or residual is not None:
            return NotImplemented
        dense = weight.dense()
        return torch.nn.functional.linear(x, dense.t() if weight.turned else dense, bias)
    if torch.is_autocast_enabled("cpu"):
        cast_to = torch.get_autocast_dtype("cpu")
        if not (x.is_floating_point() and x.dtype is not torch.float64):
            return NotImplemented
        x = x.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if x.dtype is not dtype or x.dim() == 0 or x.shape[-1] != k or x.device.type != "cpu" or x.layout != torch.strided:
        return NotImplemented
    if bias is not None and (bias.dtype is not dtype or bias.dim() != 1 or bias.shape[0] != n or bias.device.type != "cpu"
                             or bias.layout != torch.strided):
        return NotImplemented
    packed = weight._packed
    if type(x) in _ops._PLAIN and _ops.eager() and not (torch.is_grad_enabled() and _records(x, bias, factor, residual)) \
            and (bias is None or (type(bias) in _ops._PLAIN and not bias.is_neg())) and not x.is_neg() \
            and not any(one is not None and one.is_neg() for one in (factor, residual)):
        y = _linear_packed(x, packed, bias, n, weight.form, activation, factor, residual)
    else:
        y = _op(x, packed, bias, n, weight.form, activation, factor, residual)
    return y if cast_to is None else y.to(cast_to)


def _records(*tensors: Optional[Tensor]) -> bool:
    return any(x is not None and x.requires_grad for x in tensors)


def _linear_rule(input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, PackedWeight) or isinstance(input, PackedWeight) or isinstance(bias, (PackedWeight, _View)) \
            or weight.turned:
        return NotImplemented
    return multiply(input, weight, bias)


def _addmm_rule(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    if not isinstance(mat2, PackedWeight) or isinstance(mat1, (PackedWeight, _View)) or not mat2.turned or out is not None \
            or isinstance(input, (PackedWeight, _View)) or beta != 1 or alpha != 1 or mat1.dim() != 2:
        return NotImplemented
    return multiply(mat1, mat2, input)


def _mm_rule(input: Any, mat2: Any, *, out: Any = None) -> Any:
    if not isinstance(mat2, PackedWeight) or isinstance(input, (PackedWeight, _View)) or not mat2.turned or out is not None \
            or input.dim() != 2:
        return NotImplemented
    return multiply(input, mat2, None)


def _matmul_rule(input: Any, other: Any, *, out: Any = None) -> Any:
    if not isinstance(other, PackedWeight) or isinstance(input, (PackedWeight, _View)) or not other.turned or out is not None \
            or input.dim() < 2:
        return NotImplemented
    return multiply(input, other, None)


def _embedding_rule(input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
                    scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    if not isinstance(weight, PackedWeight) or weight.turned or max_norm is not None or type(input) is not Tensor:
        return NotImplemented
    return _rows_of(weight, input)


def _rows_of(weight: PackedWeight, indices: Tensor) -> Any:
    if indices.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    n, k = weight.sizes
    if _ops.eager() and indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= n):
        return NotImplemented  # PyTorch's words
    return _op_unpack(weight._packed, indices, n, k, weight.dtype).view(*indices.shape, k)


def _embedding_dispatch(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    if not isinstance(weight, PackedWeight) or weight.turned or not isinstance(indices, Tensor):
        return NotImplemented
    return _rows_of(weight, indices)


def _t_rule(x: Any, *_: Any) -> Any:
    return x.transposed() if isinstance(x, PackedWeight) else NotImplemented


def _transpose_rule(x: Any, first: int, second: int) -> Any:
    return NotImplemented if not isinstance(x, PackedWeight) or first % 2 == second % 2 else x.transposed()


def _permute_rule(x: Any, dims: Any) -> Any:
    return x.transposed() if isinstance(x, PackedWeight) and [d % 2 for d in dims] == [1, 0] else NotImplemented


def _same_rule(x: Any) -> Any:
    return x.same()


def _set_data(self: Any, value: Any) -> None:
    if not isinstance(self, PackedWeight):
        raise UnsupportedError("attn: a packed weight cannot become the memory of another tensor; use .dense(), or copy_()")
    self.write(value.dense() if isinstance(value, PackedWeight) else value, True)


def _set_item(self: Any, index: Any, value: Any) -> None:
    if not isinstance(self, PackedWeight):
        self[index] = value.dense() if isinstance(value, PackedWeight) else value
        return
    dense = self.dense()
    dense[index] = value.dense() if isinstance(value, PackedWeight) else value
    self.write(dense, False)


def _require(self: Any, requires_grad: bool = True) -> Any:
    if requires_grad:
        raise UnsupportedError("attn: a packed weight has no gradient; optimize() makes a model for inference, and the original "
                               "model can be trained")
    return self


def _set_require(self: Any, value: bool) -> None:
    _require(self, value)


def _numpy(self: Any, *_: Any, **__: Any) -> Any:
    found = self.dense().numpy()
    found.flags.writeable = False  # what is written to it would not change the weight
    return found


def _array(self: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    found = _numpy(self)
    return found if dtype is None else found.astype(dtype, copy=False)


def _share(self: Any) -> Any:
    self._packed.share_memory_()
    return self


def _no_memory(*_: Any, **__: Any) -> NoReturn:
    raise UnsupportedError("attn: a packed weight has no memory of plain numbers; weight.dense() returns a tensor with the "
                           "numbers")


_RULES: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.linear: _linear_rule, torch.addmm: _addmm_rule, torch.mm: _mm_rule, torch.matmul: _matmul_rule,
    Tensor.matmul: _matmul_rule, Tensor.mm: _mm_rule, Tensor.__matmul__: _matmul_rule,
    torch.nn.functional.embedding: _embedding_rule,
    _Tensor.data.__set__: _set_data, Tensor.__setitem__: _set_item, Tensor.requires_grad_: _require,
    _Tensor.requires_grad.__set__: _set_require, Tensor.numpy: _numpy, Tensor.__array__: _array,
    torch._has_compatible_shallow_copy_type: lambda *_: False,  # to() makes another parameter, of the new type
    Tensor.tolist: lambda self: self.dense().tolist(), Tensor.share_memory_: _share, Tensor.data_ptr: _no_memory,
    Tensor.__dlpack__: _no_memory, Tensor.storage: _no_memory, Tensor.apply_: _no_memory, Tensor.map_: _no_memory,
    _Tensor.map2_: _no_memory,
    Tensor.is_shared: lambda self: self._packed.is_shared(), Tensor.element_size: lambda self: self.dtype.itemsize}
_DISPATCH: dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _same_rule, _aten.alias.default: _same_rule, _aten.t.default: _t_rule,
    _aten.transpose.int: _transpose_rule, _aten.permute.default: _permute_rule, _aten.linear.default: _linear_rule,
    _aten.addmm.default: _addmm_rule, _aten.mm.default: _mm_rule, _aten.embedding.default: _embedding_dispatch}
