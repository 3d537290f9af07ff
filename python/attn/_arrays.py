# SPDX-License-Identifier: MIT
"""NumPy arrays over the library's memory, and the library's tensors over NumPy's."""
from __future__ import annotations

import ctypes
import importlib
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from . import _library as c
from ._dlpack import Bfloat16
from ._errors import ArgumentError
from ._library import Context, lib

_DTYPES = {c.F32: "<f4", c.F64: "<f8", c.F16: "<f2", c.I32: "<i4", c.I64: "<i8", c.U8: "|u1", c.BOOL: "|b1"}
Array = npt.NDArray[Any]
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}


def as_array(x: Any, name: str = "an array") -> Array:
    """`x` as an array; no copy if it is an array or supports DLPack (as PyTorch's CPU tensors do)."""
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentError(f"{name} is a masked array, whose mask would be ignored; give its data, and the mask as an argument "
                            "mask where the call has one")
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        return _of_dlpack(x, name)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ArgumentError(f"{name} holds {shown(x)}, which is not an array: {error}") from None
    if array.dtype.kind not in "biufcV":
        raise ArgumentError(f"{name} holds {shown(x)}, of the type {array.dtype}; expected numbers")
    return array


def shown(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def _of_dlpack(x: Any, name: str) -> Array:
    if getattr(x, "requires_grad", False):
        raise ArgumentError(f"{name} is a tensor that needs a gradient, and this call is not part of its graph: give "
                            f"{name}.detach(), and take gradients with attend_backward or Model.backward")
    if hasattr(x, "resolve_neg"):  # DLPack cannot express a negation that PyTorch has not yet carried out
        x = x.resolve_neg()
    try:
        if "bfloat16" in str(getattr(x, "dtype", "")):
            return _of_bfloat16(x, name)
        array = np.from_dlpack(x)
        if array.size and array.flags.owndata:  # NumPy allocated memory because DLPack's address is null
            raise BufferError("the tensor has no memory")
        return array
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        why = str(error)
    try:
        return _of_bfloat16(x, name)
    except (BufferError, RuntimeError, TypeError, ValueError):
        raise ArgumentError(f"{name}, of {type(x).__name__}, cannot be read as an array (tensors on the CPU can): "
                            f"{why}") from None


def _of_bfloat16(x: Any, name: str) -> Array:
    """A bfloat16 tensor of PyTorch, JAX or others; NumPy's own DLPack reader lacks bfloat16."""
    bits = np.asarray(Bfloat16(x.__dlpack__()))
    try:
        bfloat16 = importlib.import_module("ml_dtypes").bfloat16  # mypy reports nothing if ml_dtypes is missing
    except ImportError:
        raise ArgumentError(f"{name} is a bfloat16 tensor: NumPy gets that type from the package ml_dtypes, which is "
                          f"not installed (pip install ml_dtypes); or give {name} in float32") from None
    return bits.view(bfloat16)


def fits(x: Array, name: str) -> Array:
    """`x` in a type that models accept: other integers become the smallest type that holds them, 16-bit reals
    float32."""
    if x.dtype.name in ("float16", "bfloat16"):
        return x.astype(np.float32)
    if x.dtype in _CODES:
        return x
    if x.dtype.kind in "iu":
        if x.dtype.kind == "u" and (x > 2**63 - 1).any():
            raise ArgumentError(f"{name} holds {x.max()}, which is not a signed 64-bit integer")
        return x.astype(np.int32 if x.dtype.itemsize <= 2 else np.int64)
    return x.astype(x.dtype.newbyteorder("="))


def dense(x: Any, name: str = "an array") -> Array:
    """`x` C-contiguous and in a type of the library; `x` itself if nothing needs to change."""
    return np.require(fits(as_array(x, name), name), requirements=["C_CONTIGUOUS", "ALIGNED"])


def wrap(context: Context, array: Array) -> ctypes.c_void_p:
    """A tensor over a C-contiguous array, which must outlive it.  The caller destroys it."""
    tensor = ctypes.c_void_p()
    code = _CODES.get(array.dtype)
    if code is None:
        raise TypeError(f"arrays of {array.dtype} are not supported; expected float32, float64, int32, int64 or bool")
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    context.check(lib.tensor_wrap(ctypes.byref(tensor), context.pointer, code, array.ndim, shape, array.ctypes.data))
    return tensor


def share(context: Context, tensor: int) -> Array:
    """An array over a tensor's memory; the tensor lives as long as the array."""
    shared = ctypes.c_void_p()
    context.check(lib.tensor_share(ctypes.byref(shared), tensor))
    return np.asarray(_Memory(context, shared.value or 0))


def view(context: Context, tensor: int, owner: Any) -> Array:
    """An array over a tensor's memory that keeps `owner`, the owner of the tensor, alive."""
    return np.asarray(_Memory(context, tensor, owner))


class _Memory:
    """NumPy's array interface over memory, with an owner to keep alive."""

    def __init__(self, context: Context, tensor: int, owner: Optional[Any] = None) -> None:
        self._context, self._tensor, self._owner = context, tensor, owner
        if owner is None:
            context.hold(id(self))
        shape = lib.tensor_shape(tensor)
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(shape[i] for i in range(lib.tensor_rank(tensor))),
            "typestr": _DTYPES[lib.tensor_dtype(tensor)],
            "data": (lib.tensor_data(tensor), False),
        }

    def __del__(self) -> None:
        # The tensor belongs to the owner, so only the owner is released.
        if self._owner is None and lib is not None:
            self._context.let_go(self._tensor, id(self))


class NamedList:
    """Names and tensors for one call; the names' memory is released at the end of the `with`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.struct = c.NamedList(context=context.pointer)

    def add(self, name: str, tensor: Optional[ctypes.c_void_p]) -> None:
        self._context.check(lib.named_add(ctypes.byref(self.struct), c.text(name, "a name"), tensor))

    def tensor(self, name: str) -> Optional[int]:
        wanted = c.text(name, "a name")
        return next((item.tensor for item in self.struct.items[:self.struct.n] if item.name == wanted), None)

    def __enter__(self) -> "NamedList":
        return self

    def __exit__(self, *_: Any) -> None:
        lib.named_clear(ctypes.byref(self.struct))
