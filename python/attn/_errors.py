# SPDX-License-Identifier: MIT
"""An exception class for each status of the library (the table ATTN_STATUS_MAP of attn.h)."""
from __future__ import annotations


class Error(Exception):
    """An error of the library, with the library's message."""

    status: int = -1


# Each class also inherits the built-in exception that Python programs expect.
class ArgumentError(Error, ValueError):
    """An argument, a config key or a value that is not allowed."""

    status = 1


class ShapeError(Error, ValueError):
    """Shapes that do not fit each other; parameters that are missing, extra or of another shape."""

    status = 2


class OutOfMemoryError(Error, MemoryError):
    """The allocator returned no memory, or a size overflows."""

    status = 3


class UnsupportedError(Error, NotImplementedError):
    """Valid input with a feature that the library does not support."""

    status = 4


class BusyError(Error, RuntimeError):
    """The object is in use by another thread or process."""

    status = 5


class FileError(Error, OSError):
    """The system could not read or write a file."""

    status = 6


class FormatError(Error, ValueError):
    """A malformed file or text."""

    status = 7


class NotFoundError(FileError, FileNotFoundError, LookupError):
    """No such file or architecture."""

    status = 8


class InterruptError(Error):
    """A progress function stopped the call."""

    status = 9


class InternalError(Error, RuntimeError):
    """An error inside the library."""

    status = 10


BY_STATUS = {kind.status: kind for kind in (ArgumentError, ShapeError, OutOfMemoryError, UnsupportedError, BusyError,
                                            FileError, FormatError, NotFoundError, InterruptError, InternalError)}


def error_of(status: int, text: str) -> Error:
    """The exception for a status of the library."""
    return BY_STATUS.get(status, Error)(text or f"status {status}")
