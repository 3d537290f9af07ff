/* SPDX-License-Identifier: MIT
 *
 * formats.h - the readers of single formats, which attn_weights_parse and attn_npy_read call. */
#ifndef ATTN_IO_FORMATS_H
#define ATTN_IO_FORMATS_H

#include "attn/io.h"

/* Reads safetensors (github.com/huggingface/safetensors): a header of at most 100,000,000 bytes, offsets in order and
 * without holes, no duplicate names. Parameters as in attn_weights_read. ATTN_ERROR_FORMAT (damaged, with the offset),
 * ATTN_ERROR_UNSUPPORTED (a feature that is not supported), ATTN_ERROR_MEMORY. */
attn_status attn_safetensors_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                   const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads files of PyTorch's torch.save: the zip form (since 1.6) and the older form of pickles one after the other.
 * Dicts inside of dicts and lists give names joined by dots ("model.encoder.weight", "states.0"). The pickle is read as
 * data, and nothing is called. OrderedDict, tensors, parameters and argparse.Namespace are known. Every other class is
 * skipped with a note in the report. Parameters as in attn_weights_read. ATTN_ERROR_FORMAT (damaged, with the offset),
 * ATTN_ERROR_UNSUPPORTED (a feature that is not supported), ATTN_ERROR_MEMORY. */
attn_status attn_pt_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                          const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads NumPy's .npz, a zip of .npy files, stored or deflated. The arrays are named without ".npy". Parameters as in
 * attn_weights_read. ATTN_ERROR_FORMAT (damaged, with the offset), ATTN_ERROR_UNSUPPORTED (a feature that is not
 * supported), ATTN_ERROR_MEMORY. */
attn_status attn_npz_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                           const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads a file in memory like attn_npy_read. `name` is used in messages. */
attn_status attn_npy_parse(attn_tensor **tensor, attn_context *context, const void *data, size_t size,
                           const char *name);

#endif
