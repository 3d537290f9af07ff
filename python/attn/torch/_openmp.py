# SPDX-License-Identifier: MIT
"""attn's parallel regions on the threads of PyTorch's OpenMP runtime.

Between PyTorch's own regions the runtime's idle threads spin for a while, on the cores that other threads of attn would
use.  So attn runs its regions on these threads, by GOMP_parallel of the runtime that PyTorch has loaded.
"""
from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any, Iterator, Optional

import torch

from .. import _library as c
from .._library import lib

_NAMES = ("GOMP_parallel", "omp_get_max_threads", "omp_get_thread_num")  # in the order of attn_openmp
_lock = threading.Lock()
_decided = False  # whether a runtime was looked for, or must not be


def _in_child() -> None:
    """A forked process has none of the runtime's threads, for which the runtime would wait forever."""
    global _decided, _lock
    _decided, _lock = True, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _handles() -> Iterator[ctypes.CDLL]:
    """Where the dynamic linker finds the functions that PyTorch's library calls, in its order: among the libraries that
    everything sees, and among those that PyTorch's library names.  Nothing is loaded that was not."""
    yield ctypes.CDLL(None)
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        yield ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return


def _find() -> Optional[c.OpenMP]:
    """The runtime on whose threads PyTorch computes; None if it has threads of another kind."""
    config: Any = torch.__config__  # some releases of PyTorch give its functions no types
    if sys.platform != "linux" or "ATen parallel backend: OpenMP" not in config.parallel_info():
        return None
    for handle in _handles():
        functions = [getattr(handle, name, None) for name in _NAMES]
        if all(functions):
            places = [ctypes.cast(function, ctypes.c_void_p).value for function in functions if function]
            return c.OpenMP(*places)
    return None


def use() -> None:
    """Lets attn's regions run on PyTorch's threads, once in a process; what cannot is left to attn's own threads."""
    global _decided
    if _decided:
        return
    with _lock:
        if _decided:
            return
        runtime = _find()
        if runtime is not None:
            lib.set_openmp(ctypes.byref(runtime))  # refused where the library knows of a fork
        _decided = True
