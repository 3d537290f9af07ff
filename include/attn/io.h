/* SPDX-License-Identifier: MIT
 *
 * io.h - files: bytes, JSON, and the formats that weights and arrays are kept in.
 *
 * The _parse functions take (pointer, length) and a name for their messages, the _read functions a path.  The context's error describes a malformed input, with the
 * file's name and the byte offset (line and column for JSON); nothing is kept of an input that is refused.  Files
 * may be hostile: sizes are checked before memory is taken, nothing recurses as deep as a file says, and nothing of
 * a file is ever executed. Writers replace a file as a whole: they write a temporary one in the same folder, flush
 * it to the disk and rename it, so that a full disk or a crash leaves the old file.
 *
 *     attn_named_list weights = {.context = context, .owns = true};
 *     if (attn_weights_read(&weights, "model.safetensors", NULL, NULL, NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * One thread at a time uses a context; functions on different contexts are independent.  Common statuses:
 * ATTN_ERROR_IO (the system's reason is in the error), ATTN_ERROR_NOT_FOUND (no such file), ATTN_ERROR_FORMAT
 * (malformed input), ATTN_ERROR_UNSUPPORTED (well formed, but of a kind that is not read), ATTN_ERROR_MEMORY. */
#ifndef ATTN_IO_H
#define ATTN_IO_H

#include "attn/attn.h"
#include "attn/config.h"
#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------- files */

/* Reads a whole file, decompressed if it is gzip (by its first bytes, whatever its name).  `limit`: most bytes to
 * hold, after decompression; 0 means 1 GiB.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO (pipes, devices and directories
 * too, which are never waited for), ATTN_ERROR_FORMAT (damaged or cut gzip, larger than `limit`), ATTN_ERROR_MEMORY.
 */
ATTN_API attn_status attn_file_read(attn_bytes *bytes, attn_context *context, const char *path, size_t limit);
/* Replaces or makes a file; what is no plain file, and a link to standard output or standard error, is written to.  On failure
 * the old file stays and no temporary one is left.  ATTN_ERROR_IO with the system's reason; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_file_write(attn_context *context, const char *path, const void *data, size_t size);

/* ------------------------------------------------------------------------------------------------ JSON */

/* A JSON object as a config.  Objects inside become keys joined by dots ("id2label.0").  Lists must be of
 * integers, of texts or of real numbers, which become keys NAME.0, NAME.1, ...; an empty one is of integers.  `name` is used in messages.  ATTN_ERROR_FORMAT (line and column;
 * duplicate keys and nesting deeper than 64 too), ATTN_ERROR_UNSUPPORTED (other lists: the key is named). */
ATTN_API attn_status attn_config_parse(attn_config **config, attn_context *context, const char *text, size_t size,
                                       const char *name);
ATTN_API attn_status attn_config_read(attn_config **config, attn_context *context, const char *path);

/* --------------------------------------------------------------------------------------------- weights */

/* A names file: rules that bring the tensors of a checkpoint of foreign names under a model's own.  Text of one rule
 * a line,
 *
 *     attn names 1
 *     arch vit
 *     set layer_norm_eps=1e-6
 *     blocks\.(\d+)\.attn\.qkv\.(weight|bias)   blks.\1.attention.W_q.\2   part 0/3
 *     .*\.num_batches_tracked                    -
 *
 * where a pattern is for the whole name: literals, . [ ] ( ) | * + ? \d; a target may hold \1 to \9 and {\1-1}; and
 * then come operations, done from left to right: transpose; part i/n [axis]; rows a:b; reshape a,b,...; squeeze;
 * scale x; append-zero-row; join i/n [axis], the last: slice i of a target made of n sources; default: the target
 * may stay zeros. Lines `size KEY TARGET AXIS`, `count KEY PREFIX` and `when KEY=VALUE TARGET` read settings from
 * shapes. Every matching rule is applied; the target `-` skips tensors that no other rule matches.  docs/names.md
 * has it in full. */
typedef struct attn_name_map attn_name_map;
/* A names file, or the built-in one of that name.  The caller destroys *names before the context; NULL on failure.
 * ATTN_ERROR_FORMAT, with the line; ATTN_ERROR_NOT_FOUND; ATTN_ERROR_IO. */
ATTN_API attn_status attn_name_map_read(attn_name_map **names, attn_context *context, const char *path);
ATTN_API void attn_name_map_destroy(attn_name_map *names); /* NULL is allowed */

/* Zero means the default in each field. */
typedef struct attn_weights_options {
    /* Tensors keep the file's type, but I8 with scales becomes F32, other I8, I16 and U16 I32, and U32 and U64 I64.
     * Default: reals become `reals`, integers I32, U8 and BOOL stay (an integer that does not fit is an error). */
    bool keep_types;
    attn_dtype reals;   /* ATTN_F32 (the default) or ATTN_F64 */
    bool allow_missing; /* attn_weights_load: parameters that the file lacks keep their values */
    bool allow_extra;   /* attn_weights_load: tensors of the file that the model does not have are skipped */
    size_t limit;       /* most bytes of tensors made; 0 means 64 GiB */
    /* If not NULL: writes the name to use for a tensor, from its name in the file, to `to` (at most `size` bytes, the
     * final 0 among them); false: the tensor is passed over. */
    bool (*rename)(void *user, const char *name, char *to, size_t size);
    void *rename_user;
    /* If not NULL, and before `rename`: the tensors are those that its rules make.  ATTN_ERROR_UNSUPPORTED: a tensor
     * that no rule takes; ATTN_ERROR_FORMAT: a target filled twice, a join with a slice missing, an operation that
     * does not fit its tensor. */
    const attn_name_map *names;
    int64_t reserved[4];
} attn_weights_options;

/* A path of weights is a file; or Hugging Face's NAME.index.json, which names the files in its folder that hold the parts
 * (each must hold the tensors that the index places in it, and no others); or a directory with model.safetensors,
 * pytorch_model.bin, the index of either, or model.npz, the first of them in this order. */

/* Adds the tensors of a file to `list` (its context is used; the list owns them if it owns tensors), in the file's
 * order.  The format is recognized by the contents: safetensors, PyTorch's .pt or NumPy's .npz.  `options`, `metadata`
 * and `report` may be NULL.  `metadata` gets the file's plain data: the texts of safetensors' __metadata__, or
 * the numbers, texts and lists of a .pt (keys joined by dots, Namespace as a dict). `report` gets
 * notes, one a line (what was passed over); the caller frees it with attn_bytes_free.  ATTN_ERROR_NOT_FOUND,
 * ATTN_ERROR_IO, ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (of a kind that is not read),
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_read(attn_named_list *list, const char *path, const attn_weights_options *options,
                                       attn_config *metadata, attn_bytes *report);
/* The same from memory.  ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (of a kind that is not
 * read), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                        const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* Fills the tensors that are in `parameters` already (a model's) from a file, without a second copy of them in
 * memory.  ATTN_ERROR_SHAPE: parameters are missing, extra or misshapen; then none is changed, the error counts them
 * and names the first ones, and `report` (may be NULL) lists all with expected and found shapes, one a line.
 * Reals are converted to the parameter's own type.  An extra name for the memory of a tensor that is taken (a tied
 * parameter, as PyTorch saves it) is not extra. */
ATTN_API attn_status attn_weights_load(attn_named_list *parameters, const char *path,
                                       const attn_weights_options *options, attn_config *metadata, attn_bytes *report);
/* The same from tensors in memory.  ATTN_ERROR_SHAPE: missing, extra or misshapen ones, all of them listed;
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_weights_assign(attn_named_list *parameters, const attn_named_list *source,
                                         const attn_weights_options *options, attn_bytes *report);

/* A checkpoint to look into, without its tensors in memory. */
typedef struct attn_checkpoint attn_checkpoint;
typedef struct attn_checkpoint_entry {
    const char *name;
    const char *type; /* in the file: "f32", "bf16", ... */
    int rank;
    const int64_t *shape;
    int64_t count; /* of its elements */
    size_t bytes;
    const char *origin; /* its name in the file where a names file gave it another; NULL: none did */
} attn_checkpoint_entry;
/* Opens what attn_weights_read would read; with `allow_extra` of the options, tensors that no rule of `names` takes
 * keep their names.  `options` and `metadata` may be NULL.  The caller closes *weights, NULL on failure, before the
 * context; what entries point to lives until then.  Statuses of attn_weights_read. */
ATTN_API attn_status attn_checkpoint_open(attn_checkpoint **weights, attn_context *context, const char *path,
                                          const attn_weights_options *options, attn_config *metadata);
ATTN_API void attn_checkpoint_close(attn_checkpoint *weights); /* NULL is allowed */
/* The i-th tensor; false past the end. */
ATTN_API bool attn_checkpoint_at(const attn_checkpoint *weights, int64_t i, attn_checkpoint_entry *entry);
/* The numbers of the i-th, read with the options; the caller destroys *tensor, whose shape is the entry's; NULL on
 * failure. ATTN_ERROR_ARGUMENT: there is no i-th; ATTN_ERROR_FORMAT: more numbers than the file can hold;
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_checkpoint_tensor(attn_tensor **tensor, const attn_checkpoint *weights, int64_t i);

/* Writes the tensors in the order given, in their own types, data aligned to 64 bytes.  `metadata` (may be
 * NULL) becomes __metadata__: its values as texts.  ATTN_ERROR_ARGUMENT: two tensors of one name. */
ATTN_API attn_status attn_safetensors_write(const attn_named_list *list, const char *path, const attn_config *metadata);

/* ------------------------------------------------------------------------------------------------ .npy */

/* NumPy's array format 1 to 3, both byte orders, Fortran order converted to rows.  f2 f4 give F32, f8 F64, i1 i2 i4
 * u2 I32, i8 u4 I64, u1 U8, b1 BOOL; u8 gives I64 if it fits.  The caller destroys the tensor, whose shape [n0,n1,...]
 * is the file's.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT (damaged, with the offset),
 * ATTN_ERROR_UNSUPPORTED (of a kind that is not read), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_read(attn_tensor **tensor, attn_context *context, const char *path);
/* Version 1, little endian, rows.  BF16 is written as f4 (NumPy has no such type).  Any shape.  ATTN_ERROR_IO;
 * ATTN_ERROR_UNSUPPORTED; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_npy_write(const attn_tensor *tensor, attn_context *context, const char *path);

#ifdef __cplusplus
}
#endif
#endif
