/* SPDX-License-Identifier: MIT
 *
 * io.h - files: bytes, JSON, and the file formats of weights and arrays.
 *
 * The _parse functions take (pointer, length) and a name for their messages, the _read functions take a path. For
 * malformed input the context's error gives the file's name and the byte offset (line and column for JSON), and no part
 * of the input is kept. Files may be hostile: sizes are checked before memory is allocated, recursion depth is bounded,
 * and no code in a file is ever executed. A writer replaces a file as a whole: it writes a temporary file in the same
 * folder, flushes it to the disk and renames it. A full disk or a crash leaves the old file intact.
 *
 *     attn_named_list weights = {.context = context, .owns = true};
 *     if (attn_weights_read(&weights, "model.safetensors", NULL, NULL, NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * One thread at a time uses a context; functions on different contexts are independent.  Common statuses:
 * ATTN_ERROR_IO (the system's reason is in the error), ATTN_ERROR_NOT_FOUND (no such file), ATTN_ERROR_FORMAT
 * (malformed input), ATTN_ERROR_UNSUPPORTED (valid input with a feature that is not supported), ATTN_ERROR_MEMORY. */
#ifndef ATTN_IO_H
#define ATTN_IO_H

#include "attn/attn.h"
#include "attn/config.h"
#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------- files */

/* Reads a whole file; gzip, recognized by its first bytes, is decompressed. `limit` is the maximum size after
 * decompression; 0 means 1 GiB. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO (also for pipes, devices and directories, which are
 * refused without waiting), ATTN_ERROR_FORMAT (damaged or truncated gzip, larger than `limit`), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_file_read(attn_bytes *bytes, attn_context *context, const char *path, size_t limit);
/* Replaces or creates a file. A path that is no regular file, or a link to standard output or standard error, is
 * written to directly. On failure the old file is unchanged and no temporary file remains. ATTN_ERROR_IO with the
 * system's reason; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_file_write(attn_context *context, const char *path, const void *data, size_t size);

/* ------------------------------------------------------------------------------------------------ JSON */

/* Reads a JSON object as a config. Members of nested objects become keys joined by dots ("id2label.0"). A list must
 * hold only integers, only texts or only real numbers. A list of integers or of texts is one value; real numbers become
 * keys NAME.0, NAME.1, .... An empty list has integer type. `name` is used in messages. ATTN_ERROR_FORMAT (with line
 * and column; also for duplicate keys and nesting deeper than 64), ATTN_ERROR_UNSUPPORTED (other lists: the key is
 * named). */
ATTN_API attn_status attn_config_parse(attn_config **config, attn_context *context, const char *text, size_t size,
                                       const char *name);
ATTN_API attn_status attn_config_read(attn_config **config, attn_context *context, const char *path);

/* --------------------------------------------------------------------------------------------- weights */

/* A names file: rules that map the tensors of a foreign checkpoint to the parameter names of a model. The text has one
 * rule per line:
 *
 *     attn names 1
 *     arch vit
 *     set layer_norm_eps=1e-6
 *     blocks\.(\d+)\.attn\.qkv\.(weight|bias)   blks.\1.attention.W_q.\2   part 0/3
 *     .*\.num_batches_tracked                    -
 *
 * A pattern matches a whole name and may hold literals and . [ ] ( ) | * + ? \d. A target may hold \1 to \9 and {\1-1}.
 * Operations follow the target and are applied from left to right: transpose; part i/n [axis]; rows a:b; reshape
 * a,b,...; squeeze; scale x; append-zero-row; join i/n [axis], always last: slice i of a target made of n sources;
 * default: the target may stay zero. Lines `size KEY TARGET AXIS`, `count KEY PREFIX` and `when KEY=VALUE TARGET` read
 * settings from shapes. Every matching rule is applied. The target `-` skips tensors that no other rule matches.
 * docs/names.md describes the whole format. */
typedef struct attn_name_map attn_name_map;
/* Reads a names file, or the built-in one of this name. The caller destroys *names before the context; NULL on failure.
 * ATTN_ERROR_FORMAT, with the line; ATTN_ERROR_NOT_FOUND; ATTN_ERROR_IO. */
ATTN_API attn_status attn_name_map_read(attn_name_map **names, attn_context *context, const char *path);
ATTN_API void attn_name_map_destroy(attn_name_map *names); /* Destroys a name map. NULL is allowed. */

/* Options for reading weights. Zero means the default in each field. */
typedef struct attn_weights_options {
    /* true: tensors keep the file's type, with these exceptions: I8 with scales becomes F32; other I8, I16 and U16
     * become I32; U32 and U64 become I64. Default: reals become `reals`, integers become I32, U8 and BOOL stay (an
     * integer that does not fit is an error). */
    bool keep_types;
    attn_dtype reals;   /* type of floating-point numbers, ATTN_F32 (the default) or ATTN_F64 */
    bool allow_missing; /* attn_weights_load: parameters that the file lacks keep their values */
    bool allow_extra;   /* attn_weights_load: tensors of the file that the model does not have are skipped */
    size_t limit;       /* maximum bytes of all tensors together; 0 means 64 GiB */
    /* If not NULL, this function is called with a tensor's name in the file, and writes the name to use to `to` (at
     * most `size` bytes, including the final 0). If it returns false, the tensor is skipped. */
    bool (*rename)(void *user, const char *name, char *to, size_t size);
    void *rename_user;
    /* If not NULL, these rules are applied first, and `rename` gets their targets. ATTN_ERROR_UNSUPPORTED: a tensor
     * without a rule. ATTN_ERROR_FORMAT: a target filled twice, a join with a missing slice, or an operation that does
     * not fit its tensor. */
    const attn_name_map *names;
    int64_t reserved[4];
} attn_weights_options;

/* A path of weights names a file, an index or a directory. An index is Hugging Face's NAME.index.json, which names the
 * files of the parts in its folder; each part must hold exactly the tensors that the index assigns to it. In a
 * directory the first existing file is used: model.safetensors, pytorch_model.bin, the index of either, or
 * model.npz. */

/* Adds the tensors of a file to `list` in the file's order. The list's context is used, and the list owns the tensors
 * if it owns tensors. The format is recognized by the contents: safetensors, PyTorch's .pt or NumPy's .npz. `options`,
 * `metadata` and `report` may be NULL. `metadata` gets the file's plain data: the texts of safetensors' __metadata__,
 * or the numbers, texts and lists of a .pt (keys joined by dots, Namespace as a dict). `report` gets notes about
 * skipped tensors, one per line. The caller frees it with attn_bytes_free. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO,
 * ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (a feature that is not supported),
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_read(attn_named_list *list, const char *path, const attn_weights_options *options,
                                       attn_config *metadata, attn_bytes *report);
/* Reads tensors like attn_weights_read, from a file in memory. ATTN_ERROR_FORMAT (damaged, with the offset),
 * ATTN_ERROR_UNSUPPORTED (a feature that is not supported), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                        const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* Fills the existing tensors of `parameters` (a model's) from a file, without a second copy in memory.
 * ATTN_ERROR_SHAPE: parameters are missing, extra or have another shape. Then no parameter is changed, the error counts
 * the faulty parameters and names the first ones, and `report` (may be NULL) lists all of them with expected and found
 * shapes, one per line. Reals are converted to the parameter's own type. A tied parameter, which PyTorch saves as a
 * second name of the same memory, is not extra. */
ATTN_API attn_status attn_weights_load(attn_named_list *parameters, const char *path,
                                       const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* Fills `parameters` like attn_weights_load, from tensors in memory. ATTN_ERROR_SHAPE: missing or extra tensors, or
 * tensors of another shape; `report` lists all of them. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_assign(attn_named_list *parameters, const attn_named_list *source,
                                         const attn_weights_options *options, attn_bytes *report);

/* An open checkpoint whose tensors are not yet in memory. */
typedef struct attn_checkpoint attn_checkpoint;
typedef struct attn_checkpoint_entry {
    const char *name;
    const char *type; /* the type in the file: "f32", "bf16", ... */
    int rank;
    const int64_t *shape;
    int64_t count; /* number of elements */
    size_t bytes;
    const char *origin; /* the tensor's name in the file if a names file renamed it; otherwise NULL */
} attn_checkpoint_entry;
/* Opens a checkpoint that attn_weights_read can read. With `allow_extra` in the options, tensors without a rule of
 * `names` keep their names. `options` and `metadata` may be NULL. The caller closes *weights, NULL on failure, before
 * the context; the pointers in entries are valid until then. Statuses of attn_weights_read. */
ATTN_API attn_status attn_checkpoint_open(attn_checkpoint **weights, attn_context *context, const char *path,
                                          const attn_weights_options *options, attn_config *metadata);
ATTN_API void attn_checkpoint_close(attn_checkpoint *weights); /* Closes a checkpoint. NULL is allowed. */
/* Describes the i-th tensor in *entry. Returns false past the end. */
ATTN_API bool attn_checkpoint_at(const attn_checkpoint *weights, int64_t i, attn_checkpoint_entry *entry);
/* Reads the i-th tensor with the options; the caller destroys *tensor. The shape is the entry's; NULL on failure.
 * ATTN_ERROR_ARGUMENT: no i-th tensor. ATTN_ERROR_FORMAT: more elements than the file can hold. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_checkpoint_tensor(attn_tensor **tensor, const attn_checkpoint *weights, int64_t i);

/* Writes the tensors in the given order and in their own types; data is aligned to 64 bytes. The values of `metadata`
 * (may be NULL) become the texts of __metadata__. ATTN_ERROR_ARGUMENT: two tensors with the same name. */
ATTN_API attn_status attn_safetensors_write(const attn_named_list *list, const char *path, const attn_config *metadata);

/* ------------------------------------------------------------------------------------------------ .npy */

/* Reads NumPy's array format, versions 1 to 3, in both byte orders; Fortran order is converted to row-major order. f2
 * f4 give F32, f8 F64, i1 i2 i4 u2 I32, i8 u4 I64, u1 U8, b1 BOOL; u8 gives I64 if it fits. The caller destroys the
 * tensor, whose shape [n0,n1,...] is the file's. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT (damaged, with
 * the offset), ATTN_ERROR_UNSUPPORTED (a feature that is not supported), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_read(attn_tensor **tensor, attn_context *context, const char *path);
/* Writes an array in version 1 of the format, little endian, row-major. BF16 is written as f4 (NumPy has no bf16). The
 * tensor may have any shape. ATTN_ERROR_IO; ATTN_ERROR_UNSUPPORTED; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_write(const attn_tensor *tensor, attn_context *context, const char *path);

#ifdef __cplusplus
}
#endif
#endif
