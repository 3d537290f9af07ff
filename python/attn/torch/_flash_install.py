# SPDX-License-Identifier: MIT
"""The package flash_attn, made of attn's functions, where no such package is installed."""
from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Iterator, Optional, Sequence, cast

import torch
from torch import Tensor

from .._errors import UnsupportedError
from . import _flash

VERSION = "2.8.3+attn"  # the version whose interface this is
_lock = threading.Lock()


# ------------------------------------------------------------------------------------------------ bert_padding


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """The rows [n, ...] of input with these indices [n]."""
    return input.index_select(0, indices)


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """A tensor of so many rows: values at these indices, elsewhere zeros."""
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_copy(0, indices.long(), values)


def unpad_input(hidden_states: Tensor, attention_mask: Tensor,
                unused_mask: Optional[Tensor] = None) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The tokens [n, ...] of hidden_states [B, L, ...] that attention_mask [B, L], bool or 0 and 1, or unused_mask has;
    their indices in [B * L], the offsets of the sequences [B + 1] in int32, the longest one, and how many tokens of each
    are in attention_mask."""
    real = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = real.sum(-1, dtype=torch.int32)
    indices = real.flatten().nonzero().squeeze(1)
    offsets = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return (index_first_axis(hidden_states.flatten(0, 1), indices), indices, offsets, int(lengths.max()),
            attention_mask.sum(-1, dtype=torch.int32))


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """[batch, seqlen, ...] of tokens [n, ...] with the indices of `unpad_input`; zeros elsewhere."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).reshape(batch, seqlen, *hidden_states.shape[1:])


# ------------------------------------------------------------------------------------------------ the package

_FUNCTIONS = (_flash.flash_attn_func, _flash.flash_attn_kvpacked_func, _flash.flash_attn_qkvpacked_func,
              _flash.flash_attn_varlen_func, _flash.flash_attn_varlen_kvpacked_func,
              _flash.flash_attn_varlen_qkvpacked_func, _flash.flash_attn_with_kvcache)
_INTERFACE: dict[str, Any] = {function.__name__: function for function in cast(Sequence[Callable[..., Any]], _FUNCTIONS)}
_PADDING: dict[str, Any] = {function.__name__: function for function in cast(Sequence[Callable[..., Any]], (
    index_first_axis, index_put_first_axis, pad_input, unpad_input))}
_MODULES: dict[str, dict[str, Any]] = {
    "flash_attn": {"__version__": VERSION, **_INTERFACE}, "flash_attn.flash_attn_interface": _INTERFACE,
    "flash_attn.bert_padding": _PADDING}


class _Distribution(importlib.metadata.Distribution):
    """The package's entry in importlib.metadata."""

    _files = {"METADATA": f"Metadata-Version: 2.1\nName: flash-attn\nVersion: {VERSION}\n"
                          "Summary: flash-attn's interface by attn.torch\n", "top_level.txt": "flash_attn\n"}

    def read_text(self, filename: str) -> Optional[str]:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: the package flash_attn of attn.torch has no files")


class _Finder(importlib.metadata.DistributionFinder):
    """Finds the package, and loads it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, cast(Any, self), origin="attn.torch", is_package="." not in fullname)

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        if name is None or re.sub("[-_.]+", "-", name).lower() == "flash-attn":
            yield _Distribution()

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_MODULES[module.__name__])


_finder = _Finder()


def _others() -> Optional[str]:
    """Names the place of another flash_attn; None: there is none."""
    loaded = sys.modules.get("flash_attn")
    spec = getattr(loaded, "__spec__", None) if loaded is not None else importlib.util.find_spec("flash_attn")
    if spec is None:
        return None if loaded is None else "in sys.modules"
    return None if spec.loader is _finder else f"at {spec.origin or list(spec.submodule_search_locations or ())}"


def install_flash_attn() -> None:
    """`import flash_attn` finds attn's functions in this process: flash_attn, flash_attn.flash_attn_interface and
    flash_attn.bert_padding, with flash-attn's version in importlib.metadata.  Models of transformers then take
    attn_implementation="flash_attention_2" on the CPU, in float32 too.  A second call changes nothing.  Raises
    attn.UnsupportedError where another flash_attn is installed, which stays as it is."""
    with _lock:
        other = _others()
        if other is not None:
            raise UnsupportedError(f"another flash_attn is installed, {other}; call attn.torch.flash_attn_func and the like, "
                                   "which need no installation")
        if _finder not in sys.meta_path:
            sys.meta_path.append(_finder)
        if importlib.util.find_spec("transformers") is not None:
            _tell_transformers()


# ------------------------------------------------------------------------------------------------ transformers


def _tell_transformers() -> None:
    """transformers allows flash-attn where it finds both the package and a GPU; this check is the one that attn replaces."""
    try:
        from transformers import modeling_flash_attention_utils as theirs
        from transformers.utils import import_utils
    except ImportError:
        return
    old = import_utils.is_flash_attn_2_available
    caches: tuple[Any, ...] = old, getattr(import_utils, "_package_distribution_mapping", None)
    for cached in caches:
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()
    if old is not _is_available:
        for module in [x for name, x in list(sys.modules.items()) if name.partition(".")[0] == "transformers"]:
            if vars(module).get("is_flash_attn_2_available") is old:
                setattr(module, "is_flash_attn_2_available", _is_available)
            if "is_flash_attn_available" in vars(module) and "_flash_attention_forward" not in vars(module):
                setattr(module, "_flash_attention_forward", theirs._flash_attention_forward)  # a model imports it if available
    known = getattr(theirs, "FLASH_ATTENTION_COMPATIBILITY_MATRIX", {}).get(2)
    if known is not None and known.get("general_availability_check") is not _is_available:
        known["general_availability_check"] = _is_available
        known["supported_devices"] = (*known["supported_devices"], (_is_available, "cpu"))
    try:
        from transformers.integrations import flash_attention as calls
    except ImportError:
        return
    if getattr(calls, "get_target_dtype", None) not in (None, _target_dtype):
        _target["theirs"] = calls.get_target_dtype
        setattr(calls, "get_target_dtype", _target_dtype)


_target: dict[str, Callable[..., Any]] = {}


def _target_dtype(query: Tensor, module: torch.nn.Module) -> Any:
    """The type of a module's weights.  transformers' function fails for float32 in a module without torch.nn.Linear, such as
    GPT-2's attention."""
    if query.dtype == torch.float32 and not torch.is_autocast_enabled("cpu") \
            and not any(isinstance(layer, torch.nn.Linear) for layer in module.modules()):
        return next((x.dtype for x in module.parameters()), None)
    return _target["theirs"](query, module)


def _is_available(kernels_fallback_ok: bool = False) -> bool:
    return True


_is_available.__name__ = "is_flash_attn_2_available"
