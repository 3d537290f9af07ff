/* SPDX-License-Identifier: MIT */
#include "io/file.h"

#include "base/bf16.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *type_name(attn_dtype dtype)
{
    static const char *const names[] = {
        [ATTN_F32] = "<f4", [ATTN_BF16] = "<f4", [ATTN_F64] = "<f8", [ATTN_F16] = "<f2",
        [ATTN_I32] = "<i4", [ATTN_I64] = "<i8",  [ATTN_U8] = "|u1",  [ATTN_BOOL] = "|b1",
    };
    return names[dtype];
}

/* Writes the header of version 1 and returns its size. The header is padded so that the elements begin at a multiple
 * of 64 bytes. */
static size_t make_header(const attn_tensor *tensor, char *header, size_t size)
{
    enum { BEFORE = 10, ALIGN = 64 };
    int rank = attn_tensor_rank(tensor);
    size_t used = BEFORE;
    used += (size_t)snprintf(header + used, size - used, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                             type_name(attn_tensor_dtype(tensor)));
    for (int i = 0; i < rank; i++)
        used += (size_t)snprintf(header + used, size - used, "%" PRId64 "%s", attn_tensor_length(tensor, i),
                                 i + 1 < rank ? ", "
                                 : rank == 1  ? ","
                                              : "");
    used += (size_t)snprintf(header + used, size - used, "), }");
    while ((used + 1) % ALIGN != 0)
        header[used++] = ' ';
    header[used++] = '\n';
    memcpy(header, "\x93NUMPY\x01", 8);
    header[8] = (char)((used - BEFORE) & 255);
    header[9] = (char)((used - BEFORE) >> 8);
    return used;
}

static void write_widened(attn__output *output, const uint16_t *x, int64_t n)
{
    enum { RUN = 1024 };
    float wide[RUN];
    for (int64_t i = 0; i < n; i += RUN) {
        int64_t length = n - i < RUN ? n - i : RUN;
        for (int64_t j = 0; j < length; j++)
            wide[j] = attn__from_bf16(x[i + j]);
        attn__output_write(output, wide, (size_t)length * sizeof *wide);
    }
}

attn_status attn_npy_write(const attn_tensor *tensor, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    char header[512];
    attn_dtype dtype = attn_tensor_dtype(tensor);
    attn__output output;
    attn_status status = attn__tensor_must_have_data(context, tensor, path);
    if (status != ATTN_OK)
        return status;
    attn__output_begin(&output, context, path);
    attn__output_write(&output, header, make_header(tensor, header, sizeof header));
    if (dtype == ATTN_BF16)
        write_widened(&output, attn_tensor_data(tensor), attn_tensor_size(tensor));
    else
        attn__output_write(&output, attn_tensor_data(tensor),
                           (size_t)attn_tensor_size(tensor) * attn_dtype_size(dtype));
    return attn__output_end(&output);
}
