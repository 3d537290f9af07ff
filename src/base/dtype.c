/* SPDX-License-Identifier: MIT
 * Element types: size and name, one table. */
#include "attn/attn.h"

static const struct {
    size_t size;
    const char *name;
} dtypes[] = {
    [ATTN_F32] = {4, "f32"}, [ATTN_BF16] = {2, "bf16"}, [ATTN_F64] = {8, "f64"}, [ATTN_F16] = {2, "f16"},
    [ATTN_I32] = {4, "i32"}, [ATTN_I64] = {8, "i64"},   [ATTN_U8] = {1, "u8"},   [ATTN_BOOL] = {1, "bool"},
};

static bool known(attn_dtype dtype)
{
    return (unsigned)dtype < sizeof dtypes / sizeof *dtypes;
}

size_t attn_dtype_size(attn_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].size : 0;
}

const char *attn_dtype_name(attn_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : "unknown";
}
