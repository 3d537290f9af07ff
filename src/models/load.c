/* SPDX-License-Identifier: MIT
 *
 * Parameters from a state dict: everything that does not fit is told at once, and nothing is changed then. */
#include "models/kind.h"

#include "base/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct complaint {
    int n; /* problems so far */
    size_t used;
    char text[400];
} complaint;

static void complain(complaint *c, const char *problem, const char *name, const char *shapes)
{
    int n = snprintf(c->text + c->used, sizeof c->text - c->used, "%s%s %s%s", c->n ? "; " : "", problem, name, shapes);
    c->n++;
    c->used += n > 0 && (size_t)n < sizeof c->text - c->used ? (size_t)n : 0;
    c->text[c->used] = 0;
}

static void shape_text(const attn_tensor *x, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < attn_tensor_rank(x) && used + 24 < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "", attn_tensor_dim(x, i));
    }
    snprintf(text + used, size - used, "]");
}

static bool same_shape(const attn_tensor *a, const attn_tensor *b)
{
    int rank = attn_tensor_rank(a);
    return rank == attn_tensor_rank(b) &&
           (rank == 0 || memcmp(attn_tensor_shape(a), attn_tensor_shape(b), (size_t)rank * sizeof(int64_t)) == 0);
}

static bool is_real(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_BF16 || dtype == ATTN_F16;
}

static void compare(complaint *c, const attn_named *own, const attn_tensor *given)
{
    char wanted[80], found[80], both[200];
    if (!given) {
        complain(c, "missing", own->name, "");
    } else if (!is_real(attn_tensor_dtype(given))) {
        complain(c, "not of real numbers:", own->name, "");
    } else if (!same_shape(own->tensor, given)) {
        shape_text(own->tensor, wanted, sizeof wanted);
        shape_text(given, found, sizeof found);
        snprintf(both, sizeof both, " wanted %s, found %s", wanted, found);
        complain(c, "misshapen", own->name, both);
    }
}

static float half_value(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
    uint32_t word = sign | (exponent + 112) << 23 | fraction << 13;
    float value;
    if (exponent == 0) { /* zero and subnormal: a multiple of 2^-24 */
        value = (float)fraction / 16777216.0f;
        return sign ? -value : value;
    }
    if (exponent == 31) {
        word = sign | 0x7f800000u | fraction << 13;
    }
    memcpy(&value, &word, sizeof value);
    return value;
}

static double real_at(const void *data, attn_dtype dtype, int64_t i)
{
    uint16_t bits;
    uint32_t word;
    float value;
    switch (dtype) {
    case ATTN_F32:
        return ((const float *)data)[i];
    case ATTN_F64:
        return ((const double *)data)[i];
    case ATTN_BF16:
        memcpy(&bits, (const char *)data + 2 * i, sizeof bits);
        word = (uint32_t)bits << 16;
        memcpy(&value, &word, sizeof value);
        return value;
    default:
        memcpy(&bits, (const char *)data + 2 * i, sizeof bits);
        return half_value(bits);
    }
}

static void copy_values(attn_tensor *to, const attn_tensor *from)
{
    attn_dtype dtype = attn_tensor_dtype(from);
    const void *in = attn_tensor_data(from);
    void *out = attn_tensor_data(to);
    int64_t n = attn_tensor_size(to);
    if (dtype == attn_tensor_dtype(to)) {
        memcpy(out, in, (size_t)n * attn_dtype_size(dtype));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double value = real_at(in, dtype, i);
        if (attn_tensor_dtype(to) == ATTN_F64) {
            ((double *)out)[i] = value;
        } else {
            ((float *)out)[i] = (float)value;
        }
    }
}

attn_status attn_model_load(attn_model *model, const attn_named_list *from)
{
    const attn_named_list *own = &model->parameters;
    complaint c = {0};
    for (int64_t i = 0; i < own->n; i++) {
        compare(&c, &own->items[i], attn_named_find(from, own->items[i].name));
    }
    for (int64_t i = 0; i < from->n; i++) {
        if (!attn_named_find(own, from->items[i].name)) {
            complain(&c, "extra", from->items[i].name, "");
        }
    }
    if (c.n > 0) {
        return attn__fail(model->context, ATTN_SHAPE, "%s: %d parameter%s wrong: %s", model->kind->about.name, c.n,
                          c.n > 1 ? "s are" : " is", c.text);
    }
    for (int64_t i = 0; i < own->n; i++) {
        copy_values(own->items[i].tensor, attn_named_find(from, own->items[i].name));
    }
    return ATTN_OK;
}
