# SPDX-License-Identifier: MIT
"""An exception class for each status of the library (the table ATTN_STATUS_MAP of attn.h)."""
from __future__ import annotations


class Error(Exception):
    """An error of the library; the text is the library's own message."""

    status: int = -1


# Each is also the built-in exception that Python programs expect in its place.
class ArgumentError(Error, ValueError):
    """An argument, a config key or a value that is not allowed."""

    status = 1


class ShapeError(Error, ValueError):
    """Shapes that do not fit each other; parameters that are missing, extra or misshapen."""

    status = 2


class OutOfMemoryError(Error, MemoryError):
    """The allocator gave nothing, or a size overflows."""

    status = 3


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but of a kind that the library does not run or read."""

    status = 4


class BusyError(Error, RuntimeError):
    """In use by another thread or process."""

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
    """Stopped by a progress function."""

    status = 9


class InternalError(Error, RuntimeError):
    """A fault of the library."""

    status = 10


BY_STATUS = {kind.status: kind for kind in (ArgumentError, ShapeError, OutOfMemoryError, UnsupportedError, BusyError,
                                            FileError, FormatError, NotFoundError, InterruptError, InternalError)}


def error_of(status: int, text: str) -> Error:
    """The exception for a status of the library."""
    return BY_STATUS.get(status, Error)(text or f"status {status}")
