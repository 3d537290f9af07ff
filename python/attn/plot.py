# SPDX-License-Identifier: MIT
"""Pictures of arrays: curves, heatmaps, and an interactive page of attention weights.

    attn.plot.curves({"estimate": (x, y_hat), "points": (x_train, y_train)}, "fit.png", styles={"points": "dots"})
    attn.plot.heatmaps(weights, "weights.svg", labels=tokens, colours="reds")      # [..., heads, queries, keys]
    attn.plot.explore(weights, tokens, "page.html")                                # [layers, heads, queries, keys]

Each function returns a Picture, which a notebook shows. If a path is given (.png, .svg, .pdf, .html), the picture is
also written to it.
"""
from __future__ import annotations

import ctypes
import html
import os
from collections.abc import Mapping as _Mapping
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _library as c
from ._arrays import Array, as_array
from ._errors import ArgumentError, ShapeError
from ._library import Context, lib

__all__ = ["Picture", "curves", "explore", "heatmaps"]

Path = Union[str, "os.PathLike[str]"]
Labels = Optional[Sequence[str]]

FORMATS = ("png", "svg", "pdf", "html")  # as attn_plot_format counts them
COLOURS = ("heat", "blues", "reds", "diverging")
STYLES = ("line", "dashes", "dots")


class Picture:
    """A finished picture: its bytes and its format."""

    def __init__(self, data: bytes, format: str) -> None:
        self.data, self.format = data, format

    def save(self, path: Path) -> None:
        with open(path, "wb") as file:
            file.write(self.data)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        """How a notebook shows it."""
        if self.format == "png":
            return {"image/png": self.data}
        if self.format == "svg":
            return {"image/svg+xml": self.data.decode()}
        if self.format == "html":
            page = html.escape(self.data.decode())
            return {"text/html": f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0"></iframe>'}
        return {"application/pdf": self.data}

    def __repr__(self) -> str:
        return f"<attn.plot.Picture: {self.format}, {len(self.data)} bytes>"


def _choice(value: str, known: Sequence[str], what: str) -> int:
    if value not in known:
        raise ArgumentError(f"{what}={value!r}: expected one of {', '.join(known)}")
    return known.index(value)


def _text(value: Optional[str], what: str) -> Optional[bytes]:
    return None if value is None else c.text(value, what)


def _texts(values: Labels, n: int, what: str) -> Any:
    """An array of n texts for the library; None stays None."""
    if values is None:
        return None
    if isinstance(values, str) or len(values) != n:
        raise ShapeError(f"{what}: found {len(values)} texts, expected {n}" if not isinstance(values, str)
                         else f"{what} is one text, {values!r}; expected a list of {n}")
    return (ctypes.c_char_p * n)(*(c.text(value, f"one of {what}") for value in values))


def _default_format(context: Context) -> int:
    """SVG. In a library without cairo HTML, its only format."""
    code = ctypes.c_int(0)
    draws = lib.plot_format_from_path(ctypes.byref(code), context.pointer, b"picture.svg") == 0
    if not draws:
        lib.context_clear_error(context.pointer)
    return FORMATS.index("svg" if draws else "html")


def _render(call: Callable[[Any, Any, int], int], path: Optional[Path], format: Optional[str]) -> Picture:
    """Draws by call(picture, context, format), and writes the file."""
    context, user = Context(1), object()
    context.hold(user)
    try:
        code, picture = ctypes.c_int(0), c.Bytes()
        if path is not None:
            context.check(lib.plot_format_from_path(ctypes.byref(code), context.pointer, c.text(os.fspath(path), "path")))
        if format is not None:
            code = ctypes.c_int(_choice(format, FORMATS, "format"))
        elif path is None:
            code = ctypes.c_int(_default_format(context))
        context.check(call(ctypes.byref(picture), context.pointer, code.value))
        try:
            made = Picture(ctypes.string_at(picture.data, picture.size), FORMATS[code.value])
        finally:
            lib.bytes_free(context.pointer, ctypes.byref(picture))
    finally:
        context.drop(user)
    if path is not None:
        made.save(path)
    return made


# ------------------------------------------------------------------------------------------------ curves

def _numbers(x: Any, what: str) -> Array:
    array = as_array(x, what)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ArgumentError(f"{what} is of {array.dtype}; expected real numbers")
    return np.ascontiguousarray(array, np.float64)


def _points(name: str, value: Any) -> Tuple[Array, Array]:
    """x and y of a curve given as y or as (x, y)."""
    pair = value if isinstance(value, tuple) and len(value) == 2 else (None, value)
    y = _numbers(pair[1], f"curve {name!r}")
    x = np.arange(y.size, dtype=np.float64) if pair[0] is None else _numbers(pair[0], f"x of curve {name!r}")
    if y.ndim != 1 and pair[0] is None:
        raise ShapeError(f"curve {name!r}: y has the shape {y.shape}; it must have one axis")
    if y.ndim != 1 or x.shape != y.shape:
        raise ShapeError(f"curve {name!r}: x has the shape {x.shape}, y {y.shape}; both must have one axis, of the same length")
    return x, y


def _columns(data: Any) -> Mapping[str, Any]:
    array = _numbers(data, "data")
    if array.ndim == 1:
        return {"": array}
    if array.ndim != 2:
        raise ShapeError(f"data has the shape {array.shape}; expected (points,) or (points, columns), a curve for each column")
    return {f"column {i}": array[:, i] for i in range(array.shape[1])}


def _table(path: str) -> Tuple[Dict[str, Any], str]:
    """The curves of a table with names in its first line, over its first column; and the name of the first column."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file if line.strip()]
    if len(rows) < 2:
        raise ArgumentError(f"{path}: the table has no rows")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ShapeError(f"{path}: row {number + 1} has {len(row)} fields, but the first row has {len(rows[0])}")
    found: Dict[str, Array] = {}
    for name, *fields in zip(*rows):
        try:
            found[name] = np.array([float(field or "nan") for field in fields])
        except ValueError:
            continue  # a column that holds words
    x, *others = list(found) or [""]
    if not others:
        raise ArgumentError(f"{path}: expected at least two columns of numbers, found {len(found)}")
    losses = [name for name in others if name.endswith("loss")]
    return {name: (found[x], found[name]) for name in losses or others}, x


def _file(path: str) -> Tuple[Mapping[str, Any], Optional[str]]:
    if os.path.isdir(path):
        path = os.path.join(path, "history.tsv")
    return (_columns(np.load(path)), None) if path.endswith(".npy") else _table(path)


def curves(data: Any, path: Optional[Path] = None, *, styles: Optional[Mapping[str, str]] = None,
           title: Optional[str] = None, x_label: Optional[str] = None, y_label: Optional[str] = None,
           log_x: bool = False, log_y: bool = False, size: Optional[Tuple[float, float]] = None,
           format: Optional[str] = None) -> Picture:
    """Draws curves by name: {name: y}, {name: (x, y)}, or an array whose columns they are.

    A path names a .npy file, a table (.tsv) whose first column is x, or a training's directory, whose losses are drawn.
    {panel: {name: ...}} gives panels side by side with the same axes; a name has the same colour in all panels. styles
    maps names to "dashes" or "dots" in place of lines. A point that is not finite is left out. size: points, (width,
    height).
    """
    if isinstance(data, (str, os.PathLike)):
        data, found = _file(os.fspath(data))
        x_label = found if x_label is None else x_label
    named: Mapping[str, Any] = data if isinstance(data, _Mapping) else _columns(data)
    several = bool(named) and all(isinstance(value, _Mapping) for value in named.values())
    panels: Mapping[str, Mapping[str, Any]] = named if several else {"": named}
    drawn = [(panel, name, *_points(name, value)) for panel, inner in enumerate(panels.values())
             for name, value in inner.items()]
    for name in styles or {}:
        if name not in {curve[1] for curve in drawn}:
            raise ArgumentError(f"styles: there is no curve {name!r}; the curves are "
                                f"{', '.join(repr(curve[1]) for curve in drawn)}")
    array = (c.Curve * max(1, len(drawn)))(*(
        c.Curve(name=c.text(name, "a curve's name") if name else None, n=y.size, x=x.ctypes.data, y=y.ctypes.data,
                style=_choice((styles or {}).get(name, "line"), STYLES, f"the style of {name!r}"), panel=panel)
        for panel, name, x, y in drawn))
    width, height = size or (0, 0)
    described = c.Curves(title=_text(title, "title"), x_name=_text(x_label, "x_label"), y_name=_text(y_label, "y_label"),
                         n=len(drawn), curves=array, panels=len(panels),
                         panel_names=_texts(list(panels), len(panels), "panels") if several else None,
                         log_x=log_x, log_y=log_y, width=width, height=height)
    return _render(lambda picture, context, code: int(lib.curves_render(picture, context, ctypes.byref(described), code)),
                   path, format)


# ---------------------------------------------------------------------------------------------- heatmaps

def _maps(weights: Any, name: str) -> Array:
    """[rows of panels, panels, queries, keys] as float32."""
    array = as_array(weights, name)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ArgumentError(f"{name} is of {array.dtype}; expected real numbers")
    if array.ndim < 2:
        raise ShapeError(f"{name} has the shape {array.shape}; expected queries and keys as the last two axes")
    shape = (1,) * (3 - array.ndim) + array.shape
    if not array.size:
        raise ShapeError(f"{name} is empty: its shape is {array.shape}")
    return np.ascontiguousarray(array.reshape((-1,) + shape[-3:]), np.float32)


def heatmaps(weights: Any, path: Optional[Path] = None, *, labels: Labels = None, key_labels: Labels = None,
             titles: Labels = None, row_titles: Labels = None, x_label: str = "Keys", y_label: str = "Queries",
             title: Optional[str] = None, colours: str = "heat", scale: Optional[Tuple[float, float]] = None,
             per_line: int = 0, format: Optional[str] = None) -> Picture:
    """Draws weights [..., panels, rows, columns] as coloured squares: one row of panels for each index of the leading
    axes.

    labels name the rows, and also the columns if their number is equal and key_labels are not given. titles belong to
    the panels, row_titles to the rows of panels. scale: the numbers at the ends of the colour scale, by default from 0
    or the smallest to the largest. A number that is not finite is drawn grey. path or format ".html" gives the page of
    explore().
    """
    maps = _maps(weights, "weights")
    groups, heads, rows, cols = maps.shape
    if key_labels is None and rows == cols:
        key_labels = labels
    row_texts, col_texts = _texts(labels, rows, "labels"), _texts(key_labels, cols, "key_labels")
    above, left = _texts(titles, heads, "titles"), _texts(row_titles, groups, "row_titles")
    size, start = rows * cols * 4, maps.ctypes.data
    panels = [(c.Panel * heads)(*(c.Panel(above[h] if above else None, rows, cols, start + (g * heads + h) * size)
                                  for h in range(heads))) for g in range(groups)]
    lines = (c.PanelRow * groups)(*(c.PanelRow(
        left[g] if left else None, row_texts, col_texts, c.text(y_label, "y_label"), c.text(x_label, "x_label"), heads,
        panels[g]) for g in range(groups)))
    low, high = scale or (0.0, 0.0)
    if scale and not low < high:
        raise ArgumentError(f"scale={scale}: the first number must be below the second")
    described = c.Heatmaps(title=_text(title, "title"), n=groups, rows=lines, low=low, high=high, per_line=per_line,
                           colours=_choice(colours, COLOURS, "colours"))
    return _render(lambda picture, context, code: int(lib.heatmaps_render(picture, context, ctypes.byref(described), code)),
                   path, format)


# --------------------------------------------------------------------------------------------- the page

def _explorer_map(name: str, value: Any, tokens: Labels, keys: Labels, kept: List[Any]) -> c.ExplorerMap:
    if isinstance(value, tuple):  # weights with labels of their own
        value, tokens, keys = (*value, None, None)[:3]
    maps = _maps(value, name)
    layers, heads, rows, cols = maps.shape
    if keys is None and rows == cols:
        keys = tokens
    size, start = rows * cols * 4, maps.ctypes.data
    pointers = (ctypes.c_void_p * (layers * heads))(*(start + i * size for i in range(layers * heads)))
    kept += [maps, pointers]
    return c.ExplorerMap(name=c.text(name, "a name"), layers=layers, heads=heads, rows=rows, cols=cols,
                         queries=_texts(tokens, rows, "tokens"), keys=_texts(keys, cols, "keys"), weights=pointers)


def explore(weights: Any, tokens: Labels = None, path: Optional[Path] = None, *, keys: Labels = None,
            title: str = "Attention", about: Optional[str] = None, colours: str = "heat",
            format: str = "html") -> Picture:
    """Makes an interactive page of weights [layers, heads, queries, keys], [heads, queries, keys] or [queries, keys],
    at least 0.

    tokens name the queries, and also the keys if their number is equal and keys are not given. {name: weights} puts
    several attentions on one page; {name: (weights, tokens, keys)} gives each its own labels. NaN marks a masked key.
    """
    if format != "html":
        raise ArgumentError(f"format is {format!r}; explore writes a page, so the format must be html")
    if path is not None and not os.fspath(path).lower().endswith(".html"):
        raise ArgumentError(f"the path is {os.fspath(path)!r}; explore writes a page, so the path must end in .html")
    named = weights if isinstance(weights, _Mapping) else {"Attention": weights}
    kept: List[Any] = []
    maps = (c.ExplorerMap * max(1, len(named)))(*(_explorer_map(name, value, tokens, keys, kept)
                                                  for name, value in named.items()))
    described = c.Explorer(title=c.text(title, "title"), about=_text(about, "about"), n=len(named), maps=maps,
                           colours=_choice(colours, COLOURS, "colours"))
    return _render(lambda picture, context, _: int(lib.explorer_render(picture, context, ctypes.byref(described))), path,
                   format)
