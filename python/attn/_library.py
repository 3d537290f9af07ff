# SPDX-License-Identifier: MIT
"""The shared library: its path, structs and functions.

The structs repeat include/attn/*.h; tests/test_library.py compares every offset with that of a C compiler.
ctypes releases the interpreter's lock during each call.
"""
from __future__ import annotations

import ctypes as c
import ctypes.util
import operator
import os
import sys
import threading
from collections import deque
from typing import Any

from ._errors import ArgumentError, error_of

MAX_RANK, MAX_DIMS, MAX_BANDS, MAX_WINDOWS, MAX_RELATIVE, MAX_PICKS = 8, 16, 3, 3, 6, 4
MAX_THREADS = 1024  # of a context

F32, BF16, F64, F16, I32, I64, U8, BOOL = range(8)
BATCH, QUERY, KEY, CONTRACT, VALUE = range(1, 6)
FORWARD, BACKWARD = range(2)
(WITH_BIAS, WITH_MASK, WITH_LENS, WITH_PACKED, WITH_SINKS, WITH_DLSE, WITH_BIAS_INDEX,
 WITH_BLOCKS, WITH_BF16_KEYS) = (1 << bit for bit in range(9))
MAY_BROADCAST = (("bias", WITH_BIAS), ("mask", WITH_MASK), ("blocks", WITH_BLOCKS))  # of attn_problem.broadcast
NORMALIZATIONS = {"softmax": 0, "hardmax": 3, "none": 4, "sigmoid": 5}  # ATTN_NORMALIZATION_...
SIGMOID = NORMALIZATIONS["sigmoid"]
WANT_LSE, WANT_WEIGHTS, WANT_DQ, WANT_DK, WANT_DV, WANT_DBIAS = (1 << bit for bit in range(16, 22))
WANT_DSINKS = 1 << 24
PRECISION_DEFAULT, PRECISION_F32, PRECISION_FMA, PRECISION_BF16, PRECISION_INT8 = range(5)
(ACTIVATION_IDENTITY, ACTIVATION_RELU, ACTIVATION_LEAKY_RELU, ACTIVATION_GELU_ERF, ACTIVATION_GELU_TANH,
 ACTIVATION_GELU_SIGMOID, ACTIVATION_TANH, ACTIVATION_SIGMOID, ACTIVATION_SILU) = range(9)
TYPE_NULL, TYPE_BOOL, TYPE_INT, TYPE_REAL, TYPE_TEXT, TYPE_INTS, TYPE_TEXTS, TYPE_REALS = range(8)
STRIDES = ("q", "k", "v", "o", "bias", "mask", "lens", "lse", "weights", "w", "sinks", "blocks", "dq", "dk", "dv", "dout", "dbias")


class Dim(c.Structure):
    _fields_ = [("role", c.c_int), ("n", c.c_int64)] + [(name, c.c_int64) for name in STRIDES] + [("reserved", c.c_int64 * 4)]


class Band(c.Structure):
    _fields_ = [("query_dim", c.c_int), ("key_dim", c.c_int), ("lo", c.c_int64), ("hi", c.c_int64)]


class Window(c.Structure):
    _fields_ = [("query_dim", c.c_int), ("key_dim", c.c_int), ("size", c.c_int64), ("step", c.c_int64),
                ("dilation", c.c_int64), ("offset", c.c_int64), ("border", c.c_int)]


class Relative(c.Structure):
    _fields_ = [("kind", c.c_int), ("query_dim", c.c_int), ("key_dim", c.c_int), ("offset", c.c_int64),
                ("rows", c.c_int64), ("row_stride", c.c_int64), ("stride", c.c_int64 * MAX_DIMS),
                ("begin", c.c_int64), ("end", c.c_int64)]


class Pick(c.Structure):
    _fields_ = [("dim", c.c_int), ("n", c.c_int64), ("index", c.POINTER(c.c_int64))]


class Packed(c.Structure):
    _fields_ = [("batch_dim", c.c_int), ("query_dim", c.c_int), ("key_dim", c.c_int), ("queries", c.c_int64),
                ("keys", c.c_int64), ("align_ends", c.c_bool)]


class BiasIndex(c.Structure):
    _fields_ = [("rows", c.c_int64), ("row_stride", c.c_int64)]


class Blocks(c.Structure):
    _fields_ = [("query_dim", c.c_int), ("key_dim", c.c_int), ("queries", c.c_int64), ("keys", c.c_int64)]


class Problem(c.Structure):
    _fields_ = [("ndims", c.c_int), ("dims", Dim * MAX_DIMS), ("dtype", c.c_int), ("direction", c.c_int),
                ("score", c.c_int), ("scale", c.c_double), ("width", c.c_double), ("softcap", c.c_double),
                ("normalization", c.c_int),
                ("flags", c.c_uint), ("lens_dim", c.c_int), ("packed", Packed), ("bias_index", BiasIndex),
                ("blocks", Blocks),
                ("nbands", c.c_int),
                ("bands", Band * MAX_BANDS), ("nwindows", c.c_int), ("windows", Window * MAX_WINDOWS), ("nrelatives", c.c_int),
                ("relatives", Relative * MAX_RELATIVE), ("npicks", c.c_int), ("picks", Pick * MAX_PICKS),
                ("mask_fill", c.c_double), ("dropout", c.c_double), ("seed", c.c_uint64), ("stream", c.c_uint64),
                ("weights_dropped", c.c_bool), ("accumulate", c.c_bool), ("own_grad_strides", c.c_bool),
                ("top_k", c.c_int64), ("broadcast", c.c_uint64), ("sigmoid_bias", c.c_double), ("own_sigmoid_bias", c.c_bool),
                ("reserved", c.c_int64 * 12)]


class Arrays(c.Structure):
    _fields_ = [
        *((name, c.c_void_p) for name in ("q", "k", "v", "bias", "mask", "lens", "q_offsets", "k_offsets",
                                           "bias_index", "w", "w2", "sinks", "blocks")),
        ("table", c.c_void_p * MAX_RELATIVE),
        *((name, c.c_void_p) for name in ("o", "lse", "weights", "dout", "dlse", "dq", "dk", "dv", "dbias", "dw",
                                           "dw2", "dsinks")),
        ("dtable", c.c_void_p * MAX_RELATIVE), ("seed_offset", c.c_uint64),
        ("reserved", c.c_void_p * 16)]


class OpenMP(c.Structure):
    _fields_ = [("parallel", c.c_void_p), ("max_threads", c.c_void_p), ("thread_number", c.c_void_p)]


class Matrix(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("row", c.c_int64), ("column", c.c_int64), ("batch", c.c_int64)]


class Product(c.Structure):
    _fields_ = [("m", c.c_int64), ("n", c.c_int64), ("k", c.c_int64), ("batch", c.c_int64), ("a", Matrix), ("b", Matrix),
                ("c", Matrix), ("packed", c.c_void_p), ("precision", c.c_int), ("add", c.c_bool), ("bias", c.c_void_p),
                ("activation", c.c_int), ("factor", Matrix), ("residual", Matrix), ("bias_dtype", c.c_int),
                ("reserved", c.c_int64 * 7)]


class RowNorm(c.Structure):
    _fields_ = [("rows", c.c_int64), ("n", c.c_int64), ("x", Matrix), ("y", Matrix), ("gain", c.c_void_p), ("bias", c.c_void_p),
                ("dtype", c.c_int), ("root_mean_square", c.c_bool), ("eps", c.c_double), ("reserved", c.c_int64 * 4)]


class PlanOptions(c.Structure):
    _fields_ = [("threads", c.c_int), ("effort", c.c_int), ("solver", c.c_char_p), ("reserved", c.c_int64 * 4)]


class Allocator(c.Structure):
    _fields_ = [("alloc", c.c_void_p), ("release", c.c_void_p), ("user", c.c_void_p)]


class ContextOptions(c.Structure):
    _fields_ = [("allocator", Allocator), ("threads", c.c_int), ("isa", c.c_char_p), ("log", c.c_void_p),
                ("log_user", c.c_void_p), ("verbose", c.c_int), ("precision", c.c_int),
                ("batch_invariant", c.c_bool), ("reserved", c.c_int64 * 8)]


class ConfigValue(c.Structure):
    _fields_ = [("type", c.c_int), ("boolean", c.c_bool), ("integer", c.c_int64), ("real", c.c_double),
                ("text", c.c_char_p), ("n", c.c_int64), ("integers", c.POINTER(c.c_int64)),
                ("texts", c.POINTER(c.c_char_p)), ("reals", c.POINTER(c.c_double))]


class Named(c.Structure):
    _fields_ = [("name", c.c_char_p), ("tensor", c.c_void_p)]


class NamedList(c.Structure):
    _fields_ = [("context", c.c_void_p), ("items", c.POINTER(Named)), ("n", c.c_int64), ("capacity", c.c_int64),
                ("owns", c.c_bool)]


class TapeOptions(c.Structure):
    _fields_ = [("record", c.c_bool), ("train", c.c_bool), ("seed", c.c_uint64), ("reserved", c.c_int64 * 4)]


class Bytes(c.Structure):
    _fields_ = [("data", c.c_void_p), ("size", c.c_size_t)]


class WeightsOptions(c.Structure):
    _fields_ = [("keep_types", c.c_bool), ("reals", c.c_int), ("allow_missing", c.c_bool),
                ("allow_extra", c.c_bool), ("limit", c.c_size_t), ("rename", c.c_void_p),
                ("rename_user", c.c_void_p), ("names", c.c_void_p),
                ("reserved", c.c_int64 * 4)]


class Setting(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", c.c_int), ("default_text", c.c_char_p), ("min", c.c_double),
                ("max", c.c_double), ("choices", c.POINTER(c.c_char_p)), ("doc", c.c_char_p)]


class Port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("shape", c.c_char_p), ("integer", c.c_bool), ("optional", c.c_bool),
                ("doc", c.c_char_p)]


class Architecture(c.Structure):
    _fields_ = [("name", c.c_char_p), ("summary", c.c_char_p), ("source", c.c_char_p), ("nkeys", c.c_int),
                ("ninputs", c.c_int), ("noutputs", c.c_int), ("keys", c.POINTER(Setting)), ("inputs", c.POINTER(Port)),
                ("outputs", c.POINTER(Port)), ("seq2seq", c.c_bool)]


class ModelOptions(c.Structure):
    _fields_ = [("seed", c.c_uint64), ("dtype", c.c_int), ("blank", c.c_bool), ("limit", c.c_size_t),
                ("precision", c.c_int), ("reserved", c.c_int64 * 4)]


class ModelLoadOptions(c.Structure):
    _fields_ = [("config", c.c_void_p), ("architecture", c.c_char_p), ("names", c.c_char_p), ("dtype", c.c_int),
                ("precision", c.c_int), ("report", c.POINTER(Bytes)), ("reserved", c.c_int64 * 4)]


class EncoderLoadOptions(c.Structure):
    _fields_ = [("precision", c.c_int), ("max_length", c.c_int64), ("regression", c.c_char_p), ("names", c.c_char_p),
                ("reserved", c.c_int64 * 4)]


class EncoderInfo(c.Structure):
    _fields_ = [*((name, c.c_int64) for name in ("dim", "vocabulary", "max_length")), ("pool", c.c_int),
                *((name, c.c_bool) for name in ("pooled", "normalize", "protein", "tokenizer", "contacts", "masked_head")),
                ("reserved", c.c_int64 * 4)]


class EncoderText(c.Structure):
    _fields_ = [("n", c.c_int64), ("ids", c.POINTER(c.c_int32)), ("types", c.POINTER(c.c_int32)), ("cut", c.c_bool),
                ("skip", c.c_int64), ("reserved", c.c_int64 * 2)]


class EncoderOptions(c.Structure):
    _fields_ = [("pool", c.c_int), ("normalize", c.c_int), ("max_tokens", c.c_int64), ("reserved", c.c_int64 * 4)]


class Panel(c.Structure):
    _fields_ = [("title", c.c_char_p), ("rows", c.c_int64), ("cols", c.c_int64), ("values", c.c_void_p)]


class PanelRow(c.Structure):
    _fields_ = [("title", c.c_char_p), ("row_labels", c.POINTER(c.c_char_p)), ("col_labels", c.POINTER(c.c_char_p)),
                ("row_name", c.c_char_p), ("col_name", c.c_char_p), ("n", c.c_int64), ("panels", c.POINTER(Panel))]


class Heatmaps(c.Structure):
    _fields_ = [("title", c.c_char_p), ("n", c.c_int64), ("rows", c.POINTER(PanelRow)), ("low", c.c_double),
                ("high", c.c_double), ("per_line", c.c_int64), ("colours", c.c_int), ("reserved", c.c_int64 * 4)]


class ExplorerMap(c.Structure):
    _fields_ = [("name", c.c_char_p), ("contacts", c.c_bool), ("layers", c.c_int64), ("heads", c.c_int64),
                ("rows", c.c_int64), ("cols", c.c_int64), ("queries", c.POINTER(c.c_char_p)),
                ("keys", c.POINTER(c.c_char_p)), ("weights", c.POINTER(c.c_void_p)), ("first_layer", c.c_int64),
                *((name, c.c_int64) for name in ("query_rows", "query_cols", "key_rows", "key_cols")),
                ("where", c.c_int), ("before", c.c_char_p), ("shifted", c.c_bool)]


class Explorer(c.Structure):
    _fields_ = [("title", c.c_char_p), ("about", c.c_char_p), ("n", c.c_int64), ("maps", c.POINTER(ExplorerMap)),
                ("png", c.c_void_p), ("png_size", c.c_size_t),
                *((name, c.c_int64) for name in ("width", "height", "grid_rows", "grid_cols")), ("colours", c.c_int),
                ("reserved", c.c_int64 * 4)]


class Curve(c.Structure):
    _fields_ = [("name", c.c_char_p), ("n", c.c_int64), ("x", c.c_void_p), ("y", c.c_void_p), ("style", c.c_int),
                ("panel", c.c_int64)]


class Curves(c.Structure):
    _fields_ = [*((name, c.c_char_p) for name in ("title", "x_name", "y_name")), ("n", c.c_int64),
                ("curves", c.POINTER(Curve)), ("panels", c.c_int64), ("panel_names", c.POINTER(c.c_char_p)),
                ("log_x", c.c_bool), ("log_y", c.c_bool), ("width", c.c_double), ("height", c.c_double),
                ("reserved", c.c_int64 * 4)]


class TranslatorOptions(c.Structure):
    _fields_ = [("beam", c.c_int64), ("length_penalty", c.c_double), ("batch", c.c_int64), ("max_len", c.c_int64),
                ("length_factor", c.c_double), ("min_len", c.c_int64), ("no_repeat_ngram", c.c_int64),
                ("repetition_penalty", c.c_double), ("suppressed", c.POINTER(c.c_int32)), ("nsuppressed", c.c_int64),
                ("nbest", c.c_int64), ("mbr", c.c_bool), ("prefixes", c.POINTER(c.c_char_p)), ("alignments", c.c_bool),
                ("shortlist", c.c_void_p), ("shortlist_first", c.c_int64), ("shortlist_best", c.c_int64),
                ("unscored", c.c_bool), ("suppress_unk", c.c_bool), ("sequences_are_tokens", c.c_bool),
                ("suppressed_sequences", c.POINTER(c.c_char_p)), ("max_input", c.c_int64), ("patience", c.c_double),
                ("reserved", c.c_int64 * 1)]


class Translation(c.Structure):
    _fields_ = [("text", c.c_char_p), ("tokens", c.c_char_p), ("score", c.c_double), ("words", c.c_int64),
                ("unknown", c.c_int64), ("unknown_words", c.c_char_p), ("truncated", c.c_bool), ("doubtful", c.c_bool), ("alignment", c.c_char_p),
                ("reserved", c.c_int64 * 4)]


class Image(c.Structure):
    _fields_ = [("width", c.c_int64), ("height", c.c_int64), ("channels", c.c_int), ("pixels", c.c_void_p)]


class ImageOptions(c.Structure):
    _fields_ = [("channels", c.c_int), ("limit", c.c_int64), ("reserved", c.c_int64 * 4)]


class Prediction(c.Structure):
    _fields_ = [("label", c.c_int32), ("probability", c.c_double), ("reserved", c.c_int64 * 2)]


class DetectorOptions(c.Structure):
    _fields_ = [("names", c.c_char_p), ("class_names", c.c_char_p), ("size", c.c_int64), ("reserved", c.c_int64 * 4)]


class Detection(c.Structure):
    _fields_ = [("score", c.c_double), ("label", c.c_int64), ("query", c.c_int64),
                *((name, c.c_double) for name in ("left", "top", "right", "bottom")), ("reserved", c.c_int64 * 4)]


class CocoDetection(c.Structure):
    _fields_ = [("image", c.c_int64), ("category", c.c_int64),
                *((name, c.c_double) for name in ("left", "top", "width", "height", "score")), ("reserved", c.c_int64 * 2)]


class CocoCategory(c.Structure):
    _fields_ = [("id", c.c_int64), ("name", c.c_char_p), ("objects", c.c_int64), ("ap", c.c_double),
                ("reserved", c.c_int64 * 2)]


COCO_MEASURES = 12


class CocoResult(c.Structure):
    _fields_ = [("measures", c.c_double * COCO_MEASURES),
                *((name, c.c_int64) for name in ("images", "objects", "detections", "left_out", "n")),
                ("categories", c.POINTER(CocoCategory)), ("reserved", c.c_int64 * 4)]


class GeneratorOptions(c.Structure):
    _fields_ = [("seed", c.c_uint64), ("temperature", c.c_double), ("frames", c.c_int64), ("reserved", c.c_int64 * 3)]


class MsaLoadOptions(c.Structure):
    _fields_ = [("regression", c.c_char_p), ("compat", c.c_bool), ("names", c.c_char_p), ("reserved", c.c_int64 * 4)]


class MsaOptions(c.Structure):
    _fields_ = [*((name, c.c_bool) for name in ("logits", "contacts", "row_maps", "column_maps")),
                ("layers", c.POINTER(c.c_int64)), ("nlayers", c.c_int64), ("memory", c.c_size_t),
                ("max_tokens", c.c_int64), ("map_layer", c.c_int64), ("reserved", c.c_int64 * 4)]


class MsaResult(c.Structure):
    _fields_ = [*((name, c.c_void_p) for name in ("logits", "contacts", "row_maps", "column_maps")),
                ("representations", c.POINTER(c.c_void_p))]


class MsaFamilyOptions(c.Structure):
    _fields_ = [("depth", c.c_int64), ("choice", c.c_int), ("seed", c.c_uint64), ("query_columns", c.c_bool),
                ("reserved", c.c_int64 * 4)]


class MsaFamily(c.Structure):
    _fields_ = [("rows", c.c_int64), ("cols", c.c_int64), ("tokens", c.POINTER(c.c_int32)), ("query", c.c_char_p),
                ("numbers", c.POINTER(c.c_int64)), ("sequences", c.c_int64), ("reserved", c.c_int64 * 4)]


class Bleu(c.Structure):
    _fields_ = [("score", c.c_double), ("precisions", c.c_double * 4), ("brevity_penalty", c.c_double),
                ("prediction_length", c.c_int64), ("reference_length", c.c_int64)]


class Trainer(c.Structure):
    _fields_ = [("kind", c.c_char_p), ("summary", c.c_char_p), ("data", c.c_char_p), ("nkeys", c.c_int),
                ("keys", c.POINTER(Setting))]


# The C name of each struct above.
STRUCTS = {
    "attn_dim": Dim, "attn_band": Band, "attn_window": Window, "attn_relative": Relative, "attn_pick": Pick,
    "attn_bias_index": BiasIndex, "attn_packed": Packed, "attn_blocks": Blocks,
    "attn_openmp": OpenMP, "attn_matrix": Matrix, "attn_product": Product, "attn_row_norm": RowNorm,
    "attn_problem": Problem, "attn_arrays": Arrays, "attn_plan_options": PlanOptions, "attn_allocator": Allocator,
    "attn_context_options": ContextOptions, "attn_config_value": ConfigValue, "attn_named": Named,
    "attn_named_list": NamedList, "attn_tape_options": TapeOptions, "attn_bytes": Bytes,
    "attn_weights_options": WeightsOptions, "attn_setting": Setting, "attn_port": Port, "attn_architecture": Architecture,
    "attn_model_options": ModelOptions, "attn_panel": Panel, "attn_panel_row": PanelRow, "attn_heatmaps": Heatmaps,
    "attn_encoder_load_options": EncoderLoadOptions, "attn_encoder_info": EncoderInfo, "attn_encoder_text": EncoderText,
    "attn_encoder_options": EncoderOptions,
    "attn_explorer_map": ExplorerMap, "attn_explorer": Explorer, "attn_curve": Curve, "attn_curves": Curves,
    "attn_translator_options": TranslatorOptions, "attn_translation": Translation, "attn_image": Image,
    "attn_image_options": ImageOptions, "attn_prediction": Prediction, "attn_detector_options": DetectorOptions,
    "attn_detection": Detection, "attn_coco_detection": CocoDetection, "attn_coco_category": CocoCategory,
    "attn_coco_result": CocoResult, "attn_generator_options": GeneratorOptions, "attn_msa_load_options": MsaLoadOptions,
    "attn_msa_options": MsaOptions, "attn_msa_result": MsaResult, "attn_msa_family_options": MsaFamilyOptions,
    "attn_msa_family": MsaFamily, "attn_bleu": Bleu, "attn_trainer": Trainer,
}

_P, _PP, _S, _I, _L, _B = c.c_void_p, c.POINTER(c.c_void_p), c.c_char_p, c.c_int, c.c_int64, c.c_bool
_SHAPE, _LIST, _ARCHITECTURE = c.POINTER(c.c_int64), c.POINTER(NamedList), c.POINTER(Architecture)
_IMAGE, _FAMILY, _TEXTS = c.POINTER(Image), c.POINTER(MsaFamily), c.POINTER(c.c_char_p)

# name without "attn_": (result, arguments)
_FUNCTIONS = {
    "version": (_S, []),
    "status_text": (_S, [_I]),
    "context_create": (_I, [_PP, c.POINTER(ContextOptions)]),
    "context_destroy": (None, [_P]),
    "context_status": (_I, [_P]),
    "context_error": (_S, [_P]),
    "context_clear_error": (None, [_P]),
    "context_threads": (_I, [_P]),
    "context_set_inference": (None, [_P, c.c_bool]),
    "context_isa": (_S, [_P]),
    "precision_find": (c.c_bool, [c.POINTER(c.c_int), _S]),
    "context_precision": (_I, [_P]),
    "precision_name": (_S, [_I]),
    "model_pack_weights": (_I, [_P]),
    "context_memory": (None, [_P, c.POINTER(c.c_size_t), c.POINTER(c.c_size_t), c.POINTER(c.c_uint64)]),
    "set_openmp": (_I, [c.POINTER(OpenMP)]),
    "multiply": (_I, [_P, c.POINTER(Product)]),
    "normalize_rows": (_I, [_P, c.POINTER(RowNorm)]),
    "product_packed_size": (_I, [c.POINTER(c.c_size_t), _P, _I, _I, _L, _L]),
    "product_pack": (_I, [_P, _I, c.POINTER(Matrix), _L, _L, _P]),
    "product_unpack": (_I, [_P, _P, c.POINTER(c.c_int64), _L, c.POINTER(Matrix)]),
    "plan_create": (_I, [_PP, _P, c.POINTER(Problem), c.POINTER(PlanOptions)]),
    "plan_destroy": (None, [_P]),
    "plan_describe": (c.c_size_t, [_P, _B, _P, c.c_size_t]),
    "plan_solver": (_S, [_P]),
    "plan_workspace": (c.c_size_t, [_P]),
    "plan_execute": (_I, [_P, c.POINTER(Arrays), _P]),
    "config_create": (_I, [_PP, _P]),
    "config_destroy": (None, [_P]),
    "config_parse": (_I, [_PP, _P, _S, c.c_size_t, _S]),
    "config_read": (_I, [_PP, _P, _S]),
    "config_set_text": (_I, [_P, _S, _S]),
    "config_size": (_L, [_P]),
    "config_key": (_S, [_P, _L]),
    "config_get": (c.POINTER(ConfigValue), [_P, _S]),
    "config_text": (_S, [_P, _S, _S]),
    "tensor_wrap": (_I, [_PP, _P, _I, _I, _SHAPE, _P]),
    "tensor_share": (_I, [_PP, _P]),
    "tensor_destroy": (None, [_P]),
    "tensor_data": (_P, [_P]),
    "tensor_dtype": (_I, [_P]),
    "tensor_rank": (_I, [_P]),
    "tensor_shape": (_SHAPE, [_P]),
    "tensor_set_requires_grad": (None, [_P, _B]),
    "tensor_requires_grad": (_B, [_P]),
    "tensor_grad": (_P, [_P]),
    "tensor_drop_grad": (None, [_P]),
    "named_add": (_I, [_LIST, _S, _P]),
    "named_clear": (None, [_LIST]),
    "tape_create": (_I, [_PP, _P]),
    "tape_destroy": (None, [_P]),
    "tape_reset": (None, [_P, c.POINTER(TapeOptions)]),
    "backward_many": (_I, [_P, _PP, _PP, _I]),
    "bytes_free": (None, [_P, c.POINTER(Bytes)]),
    "weights_load": (_I, [_LIST, _S, c.POINTER(WeightsOptions), _P, c.POINTER(Bytes)]),
    "weights_assign": (_I, [_LIST, _LIST, c.POINTER(WeightsOptions), c.POINTER(Bytes)]),
    "architecture_at": (_ARCHITECTURE, [_I]),
    "architecture_find": (_ARCHITECTURE, [_S]),
    "model_create": (_I, [_PP, _P, _S, _P, c.POINTER(ModelOptions)]),
    "model_destroy": (None, [_P]),
    "model_architecture": (_ARCHITECTURE, [_P]),
    "model_config": (_P, [_P]),
    "model_load": (_I, [_PP, _P, _S, c.POINTER(ModelLoadOptions)]),
    "model_save": (_I, [_P, _S]),
    "model_parameters": (_LIST, [_P]),
    "model_forward": (_I, [_P, _P, _LIST, _LIST]),
    "encoder_load": (_I, [_PP, _P, _S, c.POINTER(EncoderLoadOptions)]),
    "encoder_wrap": (_I, [_PP, _P, _S]),
    "encoder_destroy": (None, [_P]),
    "encoder_about": (c.POINTER(EncoderInfo), [_P]),
    "encoder_prompt": (_I, [_P, _S, _S]),
    "encoder_tokens": (_I, [_P, _S, c.c_size_t, c.POINTER(EncoderText)]),
    "encoder_text_free": (None, [_P, c.POINTER(EncoderText)]),
    "encoder_rows": (_L, [_P, c.POINTER(EncoderText), c.POINTER(EncoderOptions)]),
    "encoder_run": (_I, [_P, c.POINTER(EncoderText), _L, c.POINTER(EncoderOptions), _P]),
    "encoder_contacts": (_I, [_P, c.POINTER(EncoderText), _P]),
    "encoder_logits": (_I, [_P, c.POINTER(EncoderText), _SHAPE, _L, _P]),
    "plot_format_from_path": (_I, [c.POINTER(_I), _P, _S]),
    "heatmaps_render": (_I, [c.POINTER(Bytes), _P, c.POINTER(Heatmaps), _I]),
    "explorer_render": (_I, [c.POINTER(Bytes), _P, c.POINTER(Explorer)]),
    "curves_render": (_I, [c.POINTER(Bytes), _P, c.POINTER(Curves), _I]),
    "trainer_of": (_I, [c.POINTER(c.POINTER(Trainer)), _P, _S, _S]),
    "translator_load": (_I, [_PP, _P, _S, _S]),
    "translator_destroy": (None, [_P]),
    "translator_pack_weights": (_I, [_P]),
    "translator_translate": (_I, [_P, _TEXTS, _L, c.POINTER(TranslatorOptions), c.POINTER(Translation)]),
    "translations_free": (None, [_P, c.POINTER(Translation), _L]),
    "translator_lexicon": (_I, [_PP, _P, _S]),
    "lexicon_destroy": (None, [_P]),
    "image_read": (_I, [_IMAGE, _P, _S, c.POINTER(ImageOptions)]),
    "image_free": (None, [_P, _IMAGE]),
    "classifier_load": (_I, [_PP, _P, _S, _S]),
    "classifier_destroy": (None, [_P]),
    "classifier_class_name": (_S, [_P, _L]),
    "classifier_classify": (_I, [_P, _IMAGE, _L, _L, c.POINTER(Prediction)]),
    "detector_load": (_I, [_PP, _P, _S, c.POINTER(DetectorOptions)]),
    "detector_destroy": (None, [_P]),
    "detector_queries": (_L, [_P]),
    "detector_class_name": (_S, [_P, _L]),
    "detector_class_id": (_L, [_P, _L]),
    "detector_detect": (_I, [_P, _IMAGE, c.POINTER(Detection)]),
    "coco_measure_name": (_S, [_I]),
    "coco_evaluate": (_I, [c.POINTER(CocoResult), _P, _S, _S, c.POINTER(CocoDetection), _L]),
    "coco_result_free": (None, [_P, c.POINTER(CocoResult)]),
    "generator_load": (_I, [_PP, _P, _S, _S]),
    "generator_destroy": (None, [_P]),
    "generator_frames": (_L, [_P]),
    "generator_draw": (_I, [_P, _L, c.POINTER(GeneratorOptions), _IMAGE]),
    "generator_complete": (_I, [_P, _IMAGE, _L, c.POINTER(GeneratorOptions), _IMAGE]),
    "msa_load": (_I, [_PP, _P, _S, c.POINTER(MsaLoadOptions)]),
    "msa_destroy": (None, [_P]),
    "msa_run": (_I, [_P, _P, _L, _L, _L, c.POINTER(MsaOptions), c.POINTER(MsaResult)]),
    "msa_family_parse": (_I, [_FAMILY, _P, _S, c.c_size_t, _S, c.POINTER(MsaFamilyOptions)]),
    "msa_family_read": (_I, [_FAMILY, _P, _S, c.POINTER(MsaFamilyOptions)]),
    "msa_family_free": (None, [_P, _FAMILY]),
    "bleu_corpus": (_I, [c.POINTER(Bleu), _P, _TEXTS, _TEXTS, _SHAPE, _L]),
    "chrf_corpus": (_I, [c.POINTER(c.c_double), _P, _TEXTS, _TEXTS, _SHAPE, _L]),
}


def _find() -> str:
    given = os.environ.get("ATTN_LIBRARY")
    if given:
        return given
    name = "libattn.dylib" if sys.platform == "darwin" else "libattn.so"
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    found = beside if os.path.exists(beside) else ctypes.util.find_library("attn")
    if not found:
        raise ImportError(f"attn: there is no {name}: neither beside the package nor installed; install the wheel, "
                          "or set ATTN_LIBRARY to its path")
    return found


class _Library:
    """attn_NAME as lib.NAME."""

    def __getattr__(self, name: str) -> Any:  # not called for attributes that __init__ sets; declared for type checkers
        raise AttributeError(name)

    def __init__(self) -> None:
        path = _find()
        try:
            handle = c.CDLL(path)
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(handle, "attn_" + name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise ImportError(f"attn: {path} is not a library of this version: {error}") from error


lib = _Library()


def text(value: object, what: str) -> bytes:
    """Encodes a text for the library; refuses a zero byte, which would terminate the text."""
    if not isinstance(value, str):
        raise ArgumentError(f"{what} must be a text, not {value!r}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{what} is {value!r}, which is not a text: {error}") from None
    if b"\0" in encoded:
        raise ArgumentError(f"{what} is {value!r}, which has a zero byte")
    return encoded


class Context:
    """A context of the library: its memory, threads and last error.  One thread at a time may use it: under `lock`.

    Users count references (`hold`, `drop`), and the last one closes the context. This is necessary because Python's
    cycle collector calls finalizers in any order, even the owner's first. Arrays over the library's memory may be freed
    in any thread and while the context is in use. Their tensors wait in a queue for the next holder of the lock. """

    def __init__(self, threads: int = 0, precision: int = 0) -> None:
        if not 0 <= operator.index(threads) <= MAX_THREADS:
            raise error_of(1, f"threads={threads}: expected 0 (the default) to {MAX_THREADS}")
        self.pointer = c.c_void_p()
        self.lock = threading.RLock()
        self._gone: deque[int] = deque()
        self._users: set[object] = set()
        self._closed = False
        status = lib.context_create(c.byref(self.pointer), c.byref(ContextOptions(threads=threads, precision=precision)))
        if status:
            raise error_of(status, lib.context_error(None).decode("utf-8", "replace"))

    def check(self, status: int, more: str = "") -> None:
        """Raises the error, and clears it in the context. `more` is appended to the library's message."""
        if status == 0:
            return
        text = lib.context_error(self.pointer).decode("utf-8", "replace") or lib.status_text(status).decode()
        lib.context_clear_error(self.pointer)
        raise error_of(status, f"{text}\n{more}" if more else text)

    def memory(self) -> tuple[int, int]:
        """Bytes held now, and the maximum ever held."""
        held, peak = c.c_size_t(), c.c_size_t()
        lib.context_memory(self.pointer, c.byref(held), c.byref(peak), None)
        return held.value, peak.value

    def hold(self, user: object) -> None:
        self._users.add(user)

    def drop(self, user: object) -> None:
        """Releases the context; the last one destroys it."""
        self._users.discard(user)
        if self._users:
            return
        with self.lock:
            if not self._closed:
                self._closed = True
                self.sweep()
                lib.context_destroy(self.pointer)

    def let_go(self, tensor: int, user: object) -> None:
        """Destroys a user's tensor, now or later; afterwards another tensor may get its address."""
        self._gone.append(tensor)
        if self.lock.acquire(blocking=False):
            try:
                self.sweep()
            finally:
                self.lock.release()
        self.drop(user)

    def sweep(self) -> None:
        """Destroys the tensors that arrays have released; call it with the lock held."""
        while self._gone:
            lib.tensor_destroy(self._gone.popleft())
