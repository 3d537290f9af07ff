/* SPDX-License-Identifier: MIT */
#include "attn/attn.h"

#include <string.h>

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

static const char *const precisions[] = {"default", "f32", "fma", "bf16", "int8"};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

const char *attn_precision_name(attn_precision precision)
{
    return (unsigned)precision < PRECISIONS ? precisions[precision] : "unknown";
}

bool attn_precision_find(attn_precision *precision, const char *name)
{
    for (int i = ATTN_PRECISION_F32; name && i < PRECISIONS; i++) {
        if (strcmp(precisions[i], name) == 0) {
            *precision = (attn_precision)i;
            return true;
        }
    }
    return false;
}
