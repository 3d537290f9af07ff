/* SPDX-License-Identifier: MIT
 * The loops of image.h, compiled twice. */
#include "tensor/image.h"

#include <string.h>

int64_t attn__volume(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

#define REAL       float
#define NAME(name) name##_float
#include "tensor/image_tmpl.h"
#undef REAL
#undef NAME

#define REAL       double
#define NAME(name) name##_double
#include "tensor/image_tmpl.h"

const attn__image_loops *attn__image_loops_for(bool is_double)
{
    return is_double ? &loops_double : &loops_float;
}
