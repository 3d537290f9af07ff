# SPDX-License-Identifier: MIT
"""Reads bfloat16 through DLPack, which NumPy's own reader does not support. The structs follow DLPack's
specification."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

CPU, BFLOAT = 1, 4  # kDLCPU, kDLBfloat


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Capsule:
    """The functions of Python for capsules."""

    def __init__(self) -> None:
        api = ctypes.pythonapi
        prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        self.pointer: Callable[[object, bytes], Optional[int]] = prototype(("PyCapsule_GetPointer", api))


class Bfloat16:
    """The 16 bits of each element, as NumPy's array interface. Keeps the capsule, and thus the memory, alive."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule
        tensor = _Tensor.from_address(_Capsule().pointer(capsule, b"dltensor") or 0)
        if tensor.device != CPU or (tensor.code, tensor.bits, tensor.lanes) != (BFLOAT, 16, 1):
            raise BufferError("the tensor is neither of a type that NumPy has nor bfloat16 on the CPU")
        shape = tuple(tensor.shape[:tensor.ndim])
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": "<u2",
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
            "strides": tuple(2 * n for n in tensor.strides[:tensor.ndim]) if tensor.strides else None,
        }
