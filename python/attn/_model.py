# SPDX-License-Identifier: MIT
"""Layers and models by name: built, loaded, run, and their gradients."""
from __future__ import annotations

import contextlib
import ctypes
import difflib
import json
import operator
import os
import threading
from typing import Any, Callable, Iterator, Mapping, NoReturn, Optional, Sequence, Union

import numpy as np

from . import _architectures
from . import _library as c
from ._architectures import Architecture
from ._arrays import Array, NamedList, as_array, dense, share, view, wrap
from ._errors import ArgumentError, NotFoundError, ShapeError, UnsupportedError
from ._library import Context, lib

Outputs = Any  # an array, or a tuple of arrays, depending on `outputs` and the architecture
Config = Optional[Mapping[str, Any]]
Path = Union[str, "os.PathLike[str]"]


def _path(path: Path) -> bytes:
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise ArgumentError(f"the path {path!r} cannot be encoded: {error}") from None
    if b"\0" in name:
        raise ArgumentError(f"the path {path!r} has a zero byte")
    return name


def _encode(value: Any) -> Any:
    """Converts NumPy's numbers and tuples for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise ArgumentError(f"a config must hold numbers, texts, booleans or lists of them, not {type(value).__name__}")


def _list_of(value: c.ConfigValue) -> Any:
    if value.type == c.TYPE_INTS:
        return [value.integers[i] for i in range(value.n)]
    if value.type == c.TYPE_REALS:
        return [value.reals[i] for i in range(value.n)]
    return [value.texts[i].decode() for i in range(value.n)]


def _python_value(value: c.ConfigValue) -> Any:
    if value.type in (c.TYPE_INTS, c.TYPE_TEXTS, c.TYPE_REALS):
        return _list_of(value)
    return {c.TYPE_NULL: None, c.TYPE_BOOL: value.boolean, c.TYPE_INT: value.integer, c.TYPE_REAL: value.real,
            c.TYPE_TEXT: value.text.decode() if value.text else None}[value.type]


class _Config:
    """The library's config inside a `with`, made from a dict or a file."""

    def __init__(self, context: Context, config: Config = None, path: Optional[Path] = None) -> None:
        self._context, self.pointer = context, ctypes.c_void_p()
        context.hold(id(self))
        try:
            self._fill(config, path)
        except BaseException:
            context.drop(id(self))
            raise

    def _fill(self, config: Config, path: Optional[Path]) -> None:
        context = self._context
        if path is not None:
            context.check(lib.config_read(ctypes.byref(self.pointer), context.pointer, _path(path)))
            return
        try:
            text = json.dumps(dict(config or {}), default=_encode, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"config: {error}") from None
        context.check(lib.config_parse(ctypes.byref(self.pointer), context.pointer, text, len(text), b"config"))

    def __enter__(self) -> ctypes.c_void_p:
        return self.pointer

    def __exit__(self, *_: Any) -> None:
        lib.config_destroy(self.pointer)
        self._context.drop(id(self))


def _precision(name: Optional[str]) -> int:
    """The precision of both context and model: with "fma" the whole context must not use AMX."""
    chosen = ctypes.c_int(0)
    if name is not None and not lib.precision_find(ctypes.byref(chosen), c.text(name, "precision")):
        raise ArgumentError(f"precision must be \"f32\", \"fma\", \"bf16\" or \"int8\", not {name!r}")
    return chosen.value


def _check_with(context: Context, status: int, report: c.Bytes) -> None:
    """Raises an error with the report of a reader of weights."""
    text = ctypes.string_at(report.data, report.size).decode("utf-8", "replace") if report.data else ""
    lib.bytes_free(context.pointer, ctypes.byref(report))
    context.check(status, text.rstrip())


class Model:
    """A layer or model of the library; made by `attn.build` and `attn.load`.

    Calling the model runs it. Results are arrays over the library's memory, without a copy; they stay valid and
    unchanged whatever the model does later. Several threads may use one model: their calls run one at a time (a
    `backward` belongs to the latest call of any thread). Different models run in parallel.
    """

    def __init__(self, context: Context, dtype: Any, make: Callable[[Any, int], int], seed: int = 0) -> None:
        """`make(address, dtype)` stores the library's model and returns a status."""
        self._context, self._model, self._tape = context, ctypes.c_void_p(), ctypes.c_void_p()
        self._training, self._recording, self._calls, self._seed = False, True, 0, seed
        self._paused = threading.local()  # whether a thread is in no_grad
        # Data of the latest call: (tensor, array) of each input, which the backward pass reads, and the outputs'
        # tensors.
        self._inputs: dict[str, tuple[ctypes.c_void_p, Array]] = {}
        self._outputs: dict[str, int] = {}
        context.hold(id(self))
        kind = {"float32": c.F32, "float64": c.F64}.get(np.dtype(dtype).name)
        if kind is None:
            raise ArgumentError(f"dtype must be float32 or float64, not {np.dtype(dtype).name}")
        context.check(make(ctypes.byref(self._model), kind))
        context.check(lib.tape_create(ctypes.byref(self._tape), context.pointer))
        self._packed = False
        self._folder: Optional[str] = None  # the directory of the weights, if attn.load read one
        self._encoder: Any = None  # of `encode`
        self._dtype: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
        self._recording = self.precision != "int8"  # which has no gradients
        self._architecture = _architectures.of(lib.model_architecture(self._model))

    def __del__(self) -> None:
        if lib is None or not hasattr(self, "_context"):
            return
        self._encoder = None  # is destroyed before the model
        with self._context.lock:
            self._forget()
            lib.tape_destroy(self._tape)
            lib.model_destroy(self._model)
        self._context.drop(id(self))

    @property
    def precision(self) -> str:
        """The precision of products: "f32", "fma", "bf16", "int8"; "default" for float64."""
        if self._dtype == np.float64:
            return "default"
        name: bytes = lib.precision_name(lib.context_precision(self._context.pointer))
        return name.decode()

    # A copy would be a second owner of the library's memory.
    def _refuse_copy(self, *_: Any) -> NoReturn:
        raise TypeError("an attn.Model is neither copied nor pickled; save it with model.save(directory) and load it again with "
                        "attn.load, or build another with attn.build and call load_state_dict(model.state_dict())")

    __copy__ = __deepcopy__ = __reduce__ = _refuse_copy

    def __repr__(self) -> str:
        return f"attn.Model({self.architecture.name!r}, {self.config!r})"

    # ------------------------------------------------------------------------------------------- what it is

    @property
    def architecture(self) -> Architecture:
        """Config keys, inputs and outputs, with their shapes."""
        assert self._architecture is not None
        return self._architecture

    @property
    def config(self) -> dict[str, Any]:
        """Every config key, with defaults filled in."""
        config = lib.model_config(self._model)
        keys = (lib.config_key(config, i) for i in range(lib.config_size(config)))
        return {key.decode(): _python_value(lib.config_get(config, key).contents) for key in keys}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of parameters, activations and outputs: float32 or float64."""
        return self._dtype

    @property
    def training(self) -> bool:
        return self._training

    def memory(self) -> tuple[int, int]:
        """Bytes that the library holds for this model now, and the maximum so far."""
        return self._context.memory()

    # ------------------------------------------------------------------------------------------ parameters

    def _parameters(self) -> list[tuple[str, int]]:
        items = lib.model_parameters(self._model).contents
        return [(items.items[i].name.decode(), items.items[i].tensor) for i in range(items.n)]

    def _view(self, name: str, tensor: int) -> Array:
        if self._packed and not lib.tensor_data(tensor):
            raise ArgumentError(f"{name}: {self._no_gradients()}")
        return view(self._context, tensor, self)

    def _no_gradients(self) -> str:
        return f"the weights are packed for inference in {self.precision}; attn.load(..., gradients=True) keeps them unpacked"

    def state_dict(self) -> dict[str, Array]:
        """Parameters and buffers as views, with the names of the original models: writing to a view changes the
        model."""
        return {name: self._view(name, tensor) for name, tensor in self._parameters()}

    def parameters(self) -> dict[str, Array]:
        """The trained parameters of `state_dict`."""
        return {name: self._view(name, tensor) for name, tensor in self._parameters()
                if lib.tensor_requires_grad(tensor)}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Copies arrays into the parameters. If parameters are missing, extra or of another shape, raises ShapeError,
        which lists all of them, and changes nothing. strict=False accepts missing and extra ones."""
        arrays = {name: dense(x, name) for name, x in state.items()}
        report = c.Bytes()
        options = c.WeightsOptions(allow_missing=not strict, allow_extra=not strict)
        with self._context.lock, NamedList(self._context) as source:
            source.struct.owns = True
            for name, array in arrays.items():
                source.add(name, wrap(self._context, array))
            status = lib.weights_assign(lib.model_parameters(self._model), ctypes.byref(source.struct),
                                        ctypes.byref(options), ctypes.byref(report))
            _check_with(self._context, status, report)

    def _pack(self) -> None:
        """The model can only infer afterwards."""
        self._packed, self._recording = True, False
        with self._context.lock:
            self._context.check(lib.model_pack_weights(self._model))

    def _load_file(self, path: Path) -> None:
        report, options = c.Bytes(), c.WeightsOptions()
        with self._context.lock:
            status = lib.weights_load(lib.model_parameters(self._model), _path(path), ctypes.byref(options), None,
                                      ctypes.byref(report))
            _check_with(self._context, status, report)

    def grads(self) -> dict[str, Array]:
        """The gradients of the trained parameters, summed since `zero_grad`; parameters without a gradient are left
        out. The arrays never change: a later backward pass adds to a copy."""
        with self._context.lock:
            found = ((name, lib.tensor_grad(tensor)) for name, tensor in self._parameters())
            return {name: share(self._context, grad) for name, grad in found if grad}

    def zero_grad(self) -> None:
        """Discards the parameters' gradients."""
        with self._context.lock:
            for _, tensor in self._parameters():
                lib.tensor_drop_grad(tensor)

    def encode(self, sentences: Any, **how: Any) -> Any:
        """Computes the vectors of texts or proteins, as `attn.Encoder.encode` does with the same arguments. Only models of
        the architecture transformer-encoder that `attn.load` loaded from a directory can; others raise
        UnsupportedError."""
        from ._encoder import Encoder
        if self._encoder is None:
            if self._folder is None:
                raise UnsupportedError("encode needs the files beside the weights: load the model with attn.load(DIR)")
            self._encoder = Encoder._of_model(self, self._folder)
        return self._encoder.encode(sentences, **how)

    def save(self, directory: Path) -> None:
        """Writes config.json and model.safetensors, which `attn.load` reads."""
        with self._context.lock:
            self._context.check(lib.model_save(self._model, _path(os.fspath(directory))))

    # -------------------------------------------------------------------------------------------- the mode

    def train(self, mode: bool = True) -> "Model":
        """Turns dropout and batch statistics on (True) or off; a new model is not in training mode. Returns the
        model."""
        self._training = bool(mode)
        return self

    def eval(self) -> "Model":
        """train(False)."""
        return self.train(False)

    @contextlib.contextmanager
    def no_grad(self) -> Iterator["Model"]:
        """Inside this `with`, the thread's calls keep no data for `backward`, which saves memory."""
        before, self._paused.now = self._is_paused(), True
        try:
            yield self
        finally:
            self._paused.now = before

    def _is_paused(self) -> bool:
        return getattr(self._paused, "now", False)

    def _records(self) -> bool:
        return self._recording and not self._is_paused()

    # --------------------------------------------------------------------------------------------- running

    def __call__(self, *inputs: Any, outputs: Optional[Sequence[str]] = None, **named: Any) -> Outputs:
        """Runs the model.

        Inputs are in the order of `architecture.inputs`, or by name; None omits an optional input. C-contiguous arrays
        of the model's type, and int32 ids and lengths, are used in place: do not change them or the results until
        `backward` is done. `outputs` names the outputs to return, including optional ones (attention weights); the
        default is every output that is not optional. One name gives an array, several a tuple in that order.
        """
        wanted = self._wanted(outputs)
        given = {name: dense(x, name) for name, x in self._by_name(inputs, named).items()}
        with self._context.lock:
            self._forget()
            self._calls += 1
            try:
                self._run(given, wanted)
                results = tuple(share(self._context, self._outputs[name]) for name in wanted)
            except BaseException:
                self._forget()
                raise
            if not self._records():
                self._forget()
        return results[0] if len(results) == 1 else results

    def _wanted(self, outputs: Optional[Sequence[str]]) -> list[str]:
        ports = self.architecture.outputs
        if outputs is None:
            return [port.name for port in ports if not port.optional]
        wanted = [outputs] if isinstance(outputs, str) else list(outputs)
        known = [port.name for port in ports]
        for name in wanted:
            if name not in known:
                raise ArgumentError(f"{self.architecture.name} has no output {name!r}; its outputs: {', '.join(known)}")
        if not wanted:
            raise ArgumentError("outputs must name at least one output")
        return wanted

    def _by_name(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        ports = [port.name for port in self.architecture.inputs]
        if len(inputs) > len(ports):
            raise ArgumentError(f"{self.architecture.name} takes {len(ports)} inputs ({', '.join(ports)}), "
                                f"not {len(inputs)}")
        given = dict(zip(ports, inputs))
        for name, x in named.items():
            if name not in ports:
                raise ArgumentError(f"{self.architecture.name} has no input {name!r}; its inputs: {', '.join(ports)}")
            if name in given:
                raise ArgumentError(f"input {name!r} is given twice")
            given[name] = x
        return {name: x for name, x in given.items() if x is not None}

    def _run(self, given: Mapping[str, Array], wanted: Sequence[str]) -> None:
        # Dropout depends on (seed, call), so equal calls of equal models drop the same positions. The factor, 2^64 over
        # the golden ratio, separates the calls of models with adjacent seeds.
        seed = (self._seed * 0x9E3779B97F4A7C15 + self._calls) % 2**64
        mode = c.TapeOptions(record=self._records(), train=self._training, seed=seed)
        lib.tape_reset(self._tape, ctypes.byref(mode))
        with NamedList(self._context) as sources, NamedList(self._context) as results:
            for name, array in given.items():
                tensor = wrap(self._context, array)
                self._inputs[name] = (tensor, array)
                lib.tensor_set_requires_grad(tensor, self._records() and self._is_real(name, array))
                sources.add(name, tensor)
            for name in wanted:
                results.add(name, None)
            self._context.check(lib.model_forward(self._model, self._tape, ctypes.byref(sources.struct),
                                                  ctypes.byref(results.struct)))
            for name in wanted:
                made = results.tensor(name)
                if made is None:
                    raise ArgumentError(f"{self.architecture.name} gave no output {name!r} for these inputs")
                self._outputs[name] = made

    def _is_real(self, name: str, array: Array) -> bool:
        """Whether an input has a gradient; ids and lengths of any type have none."""
        return array.dtype.kind == "f" and not any(port.name == name and port.integer
                                                   for port in self.architecture.inputs)

    def _forget(self) -> None:
        """Frees the data of the latest call; call it with the lock held."""
        lib.tape_reset(self._tape, None) if self._tape else None
        for tensor, _ in self._inputs.values():
            lib.tensor_destroy(tensor)
        self._inputs, self._outputs = {}, {}
        self._context.sweep()

    # ------------------------------------------------------------------------------------------- backward

    def backward(self, grad: Any = None) -> dict[str, Array]:
        """The gradients of the latest call's real inputs, by name. The parameters' gradients are added to `grads`.

        `grad` is the gradient of the first returned output, in its shape (None: 1, for an output of one element), or a
        dict of gradients by output name. Call this at most once after each call of the model.
        """
        with self._context.lock:
            if self.precision == "int8":
                raise ArgumentError("backward: the precision int8 has no gradients; build or load the model in f32 or bf16")
            if self._packed:
                raise ArgumentError(f"backward: {self._no_gradients()}")
            if not self._outputs:
                raise ArgumentError("backward: no call was recorded (call the model first; a call that failed or ran "
                                    "under no_grad is not recorded, and backward can run once)")
            seeds = grad if isinstance(grad, Mapping) else {next(iter(self._outputs)): grad}
            arrays = {name: self._seed_array(name, value) for name, value in seeds.items()}
            try:
                return self._backward(arrays)
            finally:
                self._forget()

    def _seed_array(self, name: str, grad: Any) -> Array:
        tensor = self._outputs.get(name)
        if tensor is None:
            raise ArgumentError(f"backward: {name!r} is not an output of the latest call, whose outputs are "
                                f"{', '.join(self._outputs)}")
        shape = tuple(lib.tensor_shape(tensor)[i] for i in range(lib.tensor_rank(tensor)))
        if grad is None:
            if int(np.prod(shape)) != 1:
                raise ArgumentError(f"backward: the output {name!r} has the shape {shape}: give its gradient")
            grad = np.ones(shape)
        given = as_array(grad, "grad")
        if given.dtype.kind == "c":
            raise ArgumentError(f"backward: the gradient of {name!r} is of {given.dtype}; expected real numbers")
        array = np.ascontiguousarray(given, dtype=self._dtype)
        if array.shape != shape:
            array = array.reshape(shape) if array.size == 1 == int(np.prod(shape)) else array
        if array.shape != shape:
            raise ShapeError(f"backward: the gradient of {name!r} has the shape {array.shape}, but the output has {shape}")
        return array

    def _backward(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        seeds = [wrap(self._context, array) for array in arrays.values()]
        try:
            pointers = ctypes.c_void_p * len(seeds)
            results = pointers(*(self._outputs[name] for name in arrays))
            self._context.check(lib.backward_many(self._tape, results, pointers(*seeds), len(seeds)))
            return {name: self._input_grad(tensor, array) for name, (tensor, array) in self._inputs.items()
                    if self._is_real(name, array)}
        finally:
            for seed in seeds:
                lib.tensor_destroy(seed)

    def _input_grad(self, tensor: ctypes.c_void_p, array: Array) -> Array:
        grad = lib.tensor_grad(tensor)
        return share(self._context, grad) if grad else np.zeros_like(array)


def build(architecture: str, config: Config = None, weights: Optional[Union[Path, Mapping[str, Any]]] = None,
          *, seed: int = 0, dtype: Any = np.float32, threads: int = 0, precision: Optional[str] = None) -> Model:
    """Makes a model of `architecture` (see `attn.architectures()`) with the settings in `config`.

    weights: a .safetensors or .pt file, or a dict of arrays, for the parameters; None: fresh ones from `seed`.
    dtype:   float32, or float64 for checking.
    threads: of the library; 0: ATTN_THREADS, else OMP_NUM_THREADS, else the usable cores.
    precision: precision of matrix products: "f32"; "fma", f32 by multiply-adds only; "bf16"; "int8", in linear layers
             and without gradients. None: ATTN_PRECISION, else f32. Parameters, sums and norms are f32 in every
             precision.
    Raises NotFoundError (no such architecture), ArgumentError (config), ShapeError (weights that do not fit).
    """
    chosen, first = _precision(precision), operator.index(seed)  # a NumPy integer would overflow below
    context = Context(threads, chosen)
    with _Config(context, config) as own:
        name = c.text(architecture, "architecture")

        def make(made: Any, kind: int) -> int:
            options = c.ModelOptions(seed=first % 2**64, dtype=kind, precision=chosen)
            status: int = lib.model_create(made, context.pointer, name, own, ctypes.byref(options))
            return status
        model = Model(context, dtype, make, first)
    if isinstance(weights, Mapping):
        model.load_state_dict(weights)
    elif weights is not None:
        model._load_file(weights)
    return model


def _known(config: Mapping[str, Any], architecture: Architecture) -> None:
    """Refuses keys of a dict that the architecture does not have."""
    keys = [key.name for key in architecture.keys] + ["architecture"]
    for key in config:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, 1)
            hint = f"; did you mean \"{near[0]}\"?" if near else f"; its keys: {', '.join(keys[:-1])}"
            raise ArgumentError(f"config: {architecture.name} has no key \"{key}\"{hint}")


def load(path: Path, config: Optional[Union[Path, Mapping[str, Any]]] = None, architecture: Optional[str] = None,
         dtype: Any = np.float32, threads: int = 0, names: Optional[Path] = None,
         precision: Optional[str] = None, gradients: Optional[bool] = None) -> Model:
    """Loads a model with its weights from a directory with config.json and model.safetensors (the output of
    `Model.save` and `attn train`). Or loads a file of weights in any format that attn reads, with a `config`: a dict,
    or the path of a JSON file.

    The architecture is the argument, or the config's key "architecture", or the architecture of a names file. If the
    config is a file, keys that the architecture does not have are ignored. `names` is a names file for weights with
    foreign names, or the name of a built-in one ("vit-timm"). Its settings are the defaults for keys that the config
    lacks.

    In the precisions "bf16" and "int8" the model can only infer: the weights of its linear layers are packed for
    products while they are read, and take 2 bytes or 1 byte each; `backward`, `save` and `state_dict` raise an error.
    gradients=True keeps the weights in f32, so that these work, although int8 has no gradients. gradients=False packs the
    weights in f32 too, so that they are not packed anew in each call; by default a model in f32 keeps them. Raises as `build`,
    and FileError, FormatError, NotFoundError.
    """
    folder = os.fspath(path)
    _path(folder)
    if not os.path.exists(folder):
        raise NotFoundError(f"{folder}: there is no such file or directory")
    name = architecture or (config.get("architecture") if isinstance(config, Mapping) else None)
    known = _architectures.find(name) if isinstance(name, str) else None
    if known and isinstance(config, Mapping):
        _known(config, known)  # before the weights are read
    chosen, report = _precision(precision), c.Bytes()
    context = Context(threads, chosen)
    with contextlib.ExitStack() as stack:
        options = c.ModelLoadOptions(precision=chosen, report=ctypes.pointer(report))
        if isinstance(config, Mapping):
            options.config = stack.enter_context(_Config(context, config))
        elif config is not None:
            options.config = stack.enter_context(_Config(context, path=config))
        if architecture is not None:
            options.architecture = c.text(architecture, "architecture")
        if names is not None:
            options.names = _path(names)
        packs = not gradients and (gradients is not None or chosen in (c.PRECISION_BF16, c.PRECISION_INT8))
        lib.context_set_inference(context.pointer, not gradients)

        def make(made: Any, kind: int) -> int:
            options.dtype = kind
            _check_with(context, lib.model_load(made, context.pointer, _path(folder), ctypes.byref(options)), report)
            return 0
        model = Model(context, dtype, make)
    if isinstance(config, Mapping) and not known:
        _known(config, model.architecture)
    if packs:
        model._pack()
    model._folder = folder if os.path.isdir(folder) else None
    return model
