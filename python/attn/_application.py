# SPDX-License-Identifier: MIT
"""What the loaded applications have in common: a context, a lock, and inputs in the forms that programs have."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Iterable, List, NoReturn, Optional, Protocol, Sequence, Tuple, Union

import numpy as np

from . import _library as c
from ._arrays import Array, as_array, shown
from ._errors import ArgumentError
from ._library import Context, lib
from ._model import Path, _path, _precision

# CTranslate2's names of number formats, and the library's.
_COMPUTE_TYPES = {"default": None, "auto": None, "float32": "f32", "bfloat16": "bf16", "int8": "int8", "int8_float32": "int8",
                  "int8_bfloat16": "int8", "f32": "f32", "fma": "fma", "bf16": "bf16"}


def precision_of(given: Optional[str], argument: str) -> Optional[str]:
    """The library's name of a number format. `argument` is what the caller's argument is called."""
    if given is None:
        return None
    if isinstance(given, str) and given in _COMPUTE_TYPES:
        return _COMPUTE_TYPES[given]
    raise ArgumentError(f"{argument} must be one of {', '.join(_COMPUTE_TYPES)}, not {given!r}")


def optional_path(path: Optional[Path]) -> Optional[bytes]:
    return None if path is None else _path(os.fspath(path))


class Application:
    """A loaded model with all that belongs to it. Calls of several threads run one after the other, calls of different
    applications in parallel; the interpreter's lock is free meanwhile."""

    _destroy: Callable[[Any], None]

    def __init__(self, path: Path, load: Callable[[Any, Any], int], destroy: Callable[[Any], None], precision: Optional[str],
                 threads: int) -> None:
        """`load(address, context)` stores the library's object and returns a status."""
        self._path = os.fspath(path)
        self._context = Context(threads, _precision(precision_of(precision, "precision")))
        self._handle, self._destroy = ctypes.c_void_p(), destroy
        self._context.hold(id(self))
        lib.context_set_inference(self._context.pointer, True)
        self._context.check(load(ctypes.byref(self._handle), self._context.pointer))

    def __del__(self) -> None:
        if lib is None or not hasattr(self, "_handle"):
            return
        with self._context.lock:
            self._destroy(self._handle)
        self._context.drop(id(self))

    def _refuse_copy(self, *_: Any) -> NoReturn:
        raise TypeError(f"an attn.{type(self).__name__} is neither copied nor pickled: load it again")

    __copy__ = __deepcopy__ = __reduce__ = _refuse_copy

    def _about(self) -> str:
        """What a subclass adds to its representation."""
        return ""

    def __repr__(self) -> str:
        return f"<attn.{type(self).__name__} of {self._path!r}: {self._about()}precision {self.precision}>"

    @property
    def precision(self) -> str:
        """The precision of products: "f32", "fma", "bf16" or "int8"."""
        name: bytes = lib.precision_name(lib.context_precision(self._context.pointer))
        return name.decode()

    def memory(self) -> Tuple[int, int]:
        """Bytes that the library holds for this object now, and the maximum so far."""
        return self._context.memory()


def undivided(value: object, what: str) -> bytes:
    """A text for the library. CTranslate2 takes lists of tokens, for which the error says what attn takes."""
    if isinstance(value, (list, tuple)):
        raise ArgumentError(f"{what} must be a text, not {shown(value)}: attn divides texts into tokens itself; give one text in "
                            "place of the list")
    return c.text(value, what)


def text_lines(lines: Union[str, Iterable[str]], what: str) -> Tuple[List[bytes], bool]:
    """The lines for the library, and whether a single one was given."""
    single = isinstance(lines, str)
    given: Iterable[str] = [lines] if isinstance(lines, str) else lines
    try:
        if isinstance(lines, (bytes, bytearray)):
            raise TypeError
        return [undivided(line, f"{what} {i}") for i, line in enumerate(given)], single
    except TypeError:
        raise ArgumentError(f"{what}s must be a text or several texts, not {lines!r}") from None


def text_array(lines: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * len(lines))(*lines)


# --------------------------------------------------------------------------------------------------- pictures

class PilImage(Protocol):
    """What is used of PIL.Image.Image."""

    mode: str

    def convert(self, mode: str) -> Any: ...


# A path, an array [height, width] or [height, width, 1 or 3] of uint8, or a picture of PIL.
Picture = Union[str, "os.PathLike[str]", Array, PilImage]


def _pixels(picture: Any, what: str) -> Array:
    """A picture as bytes [height, width] or [height, width, 3]."""
    if hasattr(picture, "convert") and hasattr(picture, "mode"):  # of PIL: palettes and transparency become colours
        picture = picture if picture.mode in ("L", "RGB") else _on_white(picture)
    array = as_array(picture, what)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or 0 in array.shape:
        raise ArgumentError(f"{what} has the shape {list(array.shape)}; expected [height, width] or [height, width, 3], of at "
                            "least one pixel")
    if array.dtype != np.uint8:
        raise ArgumentError(f"{what} is of {array.dtype}; expected uint8, from 0 to 255")
    return np.ascontiguousarray(array)


def _on_white(picture: Any) -> Any:
    coloured = picture.convert("RGBA")
    ground = coloured.copy()
    ground.paste((255, 255, 255, 255), (0, 0, *coloured.size))
    ground.alpha_composite(coloured)
    return ground.convert("RGB")


class Images:
    """Pictures as an array of the library's structs, inside a `with` that holds the context's lock."""

    def __init__(self, context: Context, pictures: Any) -> None:
        self.single = (isinstance(pictures, (str, os.PathLike)) or hasattr(pictures, "convert") or
                       (hasattr(pictures, "ndim") and pictures.ndim in (2, 3)) or
                       (hasattr(pictures, "__dlpack__") and len(pictures.shape) in (2, 3)))
        try:
            if isinstance(pictures, (bytes, bytearray)):
                raise TypeError
            several = iter([pictures] if self.single else pictures)
        except TypeError:
            raise ArgumentError("images must be a picture (a path, an array of uint8 or PIL's) or several pictures, not "
                                f"{shown(pictures)}") from None
        given = list(several)
        self._context, self._given, self._read = context, given, 0
        self.n = len(given)
        self.structs = (c.Image * max(self.n, 1))()
        self._arrays: List[Array] = []  # keeps the pixels alive

    def __enter__(self) -> "Images":
        owned = []
        try:
            for i, picture in enumerate(self._given):
                if isinstance(picture, (str, os.PathLike)):
                    image = self.structs[i]
                    self._context.check(lib.image_read(ctypes.byref(image), self._context.pointer, _path(os.fspath(picture)),
                                                       None))
                    owned.append(i)
                else:
                    pixels = _pixels(picture, f"picture {i}")
                    self._arrays.append(pixels)
                    self.structs[i] = c.Image(pixels.shape[1], pixels.shape[0], 3 if pixels.ndim == 3 else 1,
                                              pixels.ctypes.data)
        except BaseException:
            self._free(owned)
            raise
        self._owned = owned
        return self

    def _free(self, owned: Sequence[int]) -> None:
        for i in owned:
            lib.image_free(self._context.pointer, ctypes.byref(self.structs[i]))

    def __exit__(self, *_: Any) -> None:
        self._free(self._owned)


def taken(context: Context, images: Any, n: int) -> List[Array]:
    """Arrays [height, width] or [height, width, 3] with copies of the library's images, which are freed."""
    arrays = []
    for i in range(n):
        image = images[i]
        size = image.width * image.height * image.channels
        flat = np.frombuffer(ctypes.string_at(image.pixels, size), np.uint8)
        arrays.append(flat.reshape(image.height, image.width, *([3] if image.channels == 3 else [])).copy())
        lib.image_free(context.pointer, ctypes.byref(image))
    return arrays
