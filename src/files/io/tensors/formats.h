/* SPDX-License-Identifier: MIT
 *
 * formats.h - the readers for single formats. attn_weights_parse and attn_npy_read call them.
 */
#ifndef ATTN_IO_FORMATS_H
#define ATTN_IO_FORMATS_H

#include "attn/io.h"

/* Reads safetensors (github.com/huggingface/safetensors). The header must have at most 100,000,000 bytes, offsets must
 * be ascending without holes, and names must be unique. The parameters are those of attn_weights_read.
 * ATTN_ERROR_FORMAT: the file is damaged; the message gives the offset. ATTN_ERROR_UNSUPPORTED: the file uses a feature
 * that is not supported. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_safetensors_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                   const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads files of PyTorch's torch.save, in the zip format or in the format before PyTorch 1.6. The names of nested dicts
 * and lists are joined by dots ("model.encoder.weight", "states.0"). The pickle is read as data, and no code is called.
 * The known classes are OrderedDict, tensors, parameters and argparse.Namespace. An object of any other class is
 * skipped, with a note in the report.
 *
 * The parameters are those of attn_weights_read. ATTN_ERROR_FORMAT: the file is damaged; the message gives the offset.
 * ATTN_ERROR_UNSUPPORTED: the file uses a feature that is not supported. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_pt_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                          const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads NumPy's .npz, which is a zip archive of .npy files, stored or deflated. The name of an array is the name of its
 * file without ".npy". The parameters are those of attn_weights_read. ATTN_ERROR_FORMAT: the file is damaged; the
 * message gives the offset. ATTN_ERROR_UNSUPPORTED: the file uses a feature that is not supported. ATTN_ERROR_MEMORY:
 * there is no memory. */
attn_status attn_npz_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                           const attn_weights_options *options, attn_config *metadata, attn_bytes *report);

/* Reads a .npy file that is in memory, like attn_npy_read. `name` is used in messages. */
attn_status attn_npy_parse(attn_tensor **tensor, attn_context *context, const void *data, size_t size,
                           const char *name);

#endif
