/* SPDX-License-Identifier: MIT
 *
 * io.h - files: bytes, JSON, and the file formats of weights and arrays.
 *
 * The _parse functions take (pointer, length) and a name for their messages, the _read functions take a path. If input
 * is malformed, the context's error has the file's name and the byte offset, or line and column for JSON. No part of
 * such input is kept. Files may be hostile. So sizes are checked before memory is allocated, recursion depth is
 * bounded, and no code in a file is ever executed. A writer replaces a file as a whole. It writes a temporary file in
 * the same folder, flushes it to the disk and renames it. A full disk or a crash leaves the old file intact.
 *
 *     attn_named_list weights = {.context = context, .owns = true};
 *     if (attn_weights_read(&weights, "model.safetensors", NULL, NULL, NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * One thread at a time uses a context. Functions on different contexts are independent.  Common statuses: ATTN_ERROR_IO
 * (the system's reason is in the error), ATTN_ERROR_NOT_FOUND (no such file), ATTN_ERROR_FORMAT (malformed input),
 * ATTN_ERROR_UNSUPPORTED (valid input with a feature that is not supported), ATTN_ERROR_MEMORY. */
#ifndef ATTN_IO_H
#define ATTN_IO_H

#include "attn/attn.h"
#include "attn/config.h"
#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------- files */

/* Reads a whole file. If its first bytes are those of gzip, it is decompressed. `limit` is the maximum size after
 * decompression; 0 means 1 GiB. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO (also for pipes, devices and directories, which are
 * refused without waiting), ATTN_ERROR_FORMAT (damaged or truncated gzip, larger than `limit`), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_file_read(attn_bytes *bytes, attn_context *context, const char *path, size_t limit);
/* Replaces or creates a file. If a path is not a regular file, or is a link to standard output or standard error, it
 * is written to directly. On failure, the old file is unchanged and no temporary file remains. ATTN_ERROR_IO, with
 * the system's reason. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_file_write(attn_context *context, const char *path, const void *data, size_t size);

/* ------------------------------------------------------------------------------------------------ JSON */

/* Reads a JSON object as a config. Members of nested objects become keys joined by dots ("id2label.0"). A list must
 * hold only integers, only texts or only real numbers. A list of integers or of texts is one value. A list of real
 * numbers becomes the keys NAME.0, NAME.1, .... An empty list has integer type. `name` is used in messages. The caller
 * destroys *config before the context. ATTN_ERROR_FORMAT (with line and column; also for duplicate keys and nesting
 * deeper than 64), ATTN_ERROR_UNSUPPORTED (other lists: the key is named), ATTN_ERROR_MEMORY. attn_config_read does the
 * same for a file of at most 64 MiB, also with ATTN_ERROR_NOT_FOUND and ATTN_ERROR_IO. */
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
/* Reads a names file. If `path` is the name of a built-in names file, reads that one. The caller destroys *names
 * before the context. On failure, *names is NULL. ATTN_ERROR_FORMAT, with the line. ATTN_ERROR_NOT_FOUND.
 * ATTN_ERROR_IO. */
ATTN_API attn_status attn_name_map_read(attn_name_map **names, attn_context *context, const char *path);
ATTN_API void attn_name_map_destroy(attn_name_map *names); /* Destroys a name map. NULL is allowed. */

/* Options for reading weights. Zero means the default in each field. */
typedef struct attn_weights_options {
    /* true: tensors keep the file's type. Exceptions: I8 with scales becomes F32, other I8, I16 and U16 become I32,
     * and U32 and U64 become I64. false: reals become `reals`, integers become I32, and U8 and BOOL stay. An integer
     * that does not fit is an error. */
    bool keep_types;
    attn_dtype reals;   /* type of floating-point numbers, ATTN_F32 (the default) or ATTN_F64 */
    bool allow_missing; /* attn_weights_load: parameters that the file lacks keep their values */
    bool allow_extra;   /* attn_weights_load: tensors of the file that the model lacks are skipped */
    size_t limit;       /* maximum of the bytes of all tensors together; 0 means 64 GiB */
    /* If not NULL, this function gets a tensor's name in the file, and writes the name to use to `to`, which has
     * `size` bytes including the final 0. If it returns false, the tensor is skipped. */
    bool (*rename)(void *user, const char *name, char *to, size_t size);
    void *rename_user;
    /* If not NULL, these rules are applied first, and `rename` gets their targets. ATTN_ERROR_UNSUPPORTED: a tensor
     * has no rule. ATTN_ERROR_FORMAT: a target is filled twice, a join lacks a slice, or an operation does not fit
     * its tensor. */
    const attn_name_map *names;
    int64_t reserved[4];
} attn_weights_options;

/* A path of weights names a file, an index or a directory. An index is Hugging Face's NAME.index.json, which names the
 * files of the parts in its folder; each part must hold exactly the tensors that the index assigns to it. In a
 * directory, the first of these files that exists is used: model.safetensors, pytorch_model.bin, the index of either,
 * model.npz. */

/* Adds the tensors of a file to `list` in the file's order. The list's context is used, and the list owns the tensors
 * if it owns tensors. The format is recognized by the contents: safetensors, PyTorch's .pt or NumPy's .npz. `options`,
 * `metadata` and `report` may be NULL. `metadata` gets the file's plain data: the texts of safetensors' __metadata__,
 * or the numbers, texts and lists of a .pt (keys joined by dots, Namespace as a dict). `report` gets notes about
 * skipped tensors, one per line; without notes it stays empty. The caller frees it with attn_bytes_free.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (a feature
 * that is not supported), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_read(attn_named_list *list, const char *path, const attn_weights_options *options,
                                       attn_config *metadata, attn_bytes *report);
/* Reads tensors like attn_weights_read, from a file in memory. ATTN_ERROR_FORMAT (damaged, with the offset),
 * ATTN_ERROR_UNSUPPORTED (a feature that is not supported), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                        const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* Fills the existing tensors of `parameters`, which belong to a model, from a file, without a second copy in memory.
 * Reals are converted to the parameter's own type. If PyTorch saves a tied parameter under a second name of the same
 * memory, this tensor is not extra. ATTN_ERROR_SHAPE: parameters are missing, extra or have another shape. Then no
 * parameter is changed. The error counts the faulty parameters and names the first ones. `report`, which may be
 * NULL, lists all of them with expected and found shapes, one per line. */
ATTN_API attn_status attn_weights_load(attn_named_list *parameters, const char *path,
                                       const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* Fills `parameters` like attn_weights_load, from tensors in memory. ATTN_ERROR_SHAPE: tensors are missing, extra or
 * have another shape, and `report` lists all of them. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_assign(attn_named_list *parameters, const attn_named_list *source,
                                         const attn_weights_options *options, attn_bytes *report);

/* An open checkpoint. Its tensors are not in memory yet. */
typedef struct attn_checkpoint attn_checkpoint;
typedef struct attn_checkpoint_entry {
    const char *name;
    const char *type; /* type of the tensor in the file: "f32", "bf16", ... */
    int rank;
    const int64_t *shape;
    int64_t count;
    size_t bytes;
    const char *origin; /* if a names file renamed the tensor, its name in the file; otherwise NULL */
} attn_checkpoint_entry;
/* Opens a checkpoint that attn_weights_read can read. If the options have `allow_extra`, tensors that have no rule of
 * `names` keep their names. `options` and `metadata` may be NULL. Statuses of attn_weights_read. On failure, *weights
 * is NULL. The caller closes *weights before the context. The pointers in entries are valid until *weights is closed.
 */
ATTN_API attn_status attn_checkpoint_open(attn_checkpoint **weights, attn_context *context, const char *path,
                                          const attn_weights_options *options, attn_config *metadata);
ATTN_API void attn_checkpoint_close(attn_checkpoint *weights); /* Closes a checkpoint. NULL is allowed. */
/* Describes the i-th tensor in *entry. Returns false past the end. */
ATTN_API bool attn_checkpoint_at(const attn_checkpoint *weights, int64_t i, attn_checkpoint_entry *entry);
/* Reads the i-th tensor with the options that attn_checkpoint_open got. Its shape is the entry's shape. The caller
 * destroys *tensor. On failure, *tensor is NULL. ATTN_ERROR_ARGUMENT: there is no i-th tensor. ATTN_ERROR_FORMAT:
 * the tensor has more elements than the file can hold. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_checkpoint_tensor(attn_tensor **tensor, const attn_checkpoint *weights, int64_t i);

/* Writes the tensors in the given order and in their own types. The data is aligned to 64 bytes. The values of
 * `metadata`, which may be NULL, become the texts of __metadata__. ATTN_ERROR_ARGUMENT: two tensors have the same
 * name. */
ATTN_API attn_status attn_safetensors_write(const attn_named_list *list, const char *path, const attn_config *metadata);

/* ------------------------------------------------------------------------------------------------ .npy */

/* Reads NumPy's array format, versions 1 to 3, in both byte orders. Fortran order is converted to row-major order. f2
 * and f4 become F32, f8 becomes F64, i1, i2, i4 and u2 become I32, i8 and u4 become I64, u1 becomes U8, and b1 becomes
 * BOOL. u8 becomes I64 if its numbers fit. The caller destroys the tensor, whose shape [n0,n1,...] is the file's.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (a feature
 * that is not supported), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_read(attn_tensor **tensor, attn_context *context, const char *path);
/* Writes an array of any shape in version 1 of the format, little-endian and row-major. BF16 is written as f4,
 * because NumPy has no bf16. ATTN_ERROR_IO. ATTN_ERROR_UNSUPPORTED. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_write(const attn_tensor *tensor, attn_context *context, const char *path);

#ifdef __cplusplus
}
#endif
#endif
