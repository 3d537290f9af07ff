/* SPDX-License-Identifier: MIT
 *
 * Checks the inputs and outputs that a caller names against the architecture's ports. Converts inputs to the types of
 * the ports.
 */
#include "models/kind.h"

#include "base/context.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const attn_port *find_port(const attn_port *ports, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0)
            return &ports[i];
    return NULL;
}

/* A double represents all valid ids exactly. */
static double number_at(const attn_tensor *x, int64_t i)
{
    const void *data = attn_tensor_data(x);
    switch (attn_tensor_dtype(x)) {
    case ATTN_F32:
        return ((const float *)data)[i];
    case ATTN_F64:
        return ((const double *)data)[i];
    case ATTN_I32:
        return ((const int32_t *)data)[i];
    case ATTN_I64:
        return (double)((const int64_t *)data)[i];
    case ATTN_U8:
    case ATTN_BOOL:
        return ((const uint8_t *)data)[i];
    default:
        return NAN;
    }
}

/* Converts x to I32. Its values must be whole numbers, but may have any type, because files often store ids as
 * 64-bit integers or as real numbers. */
static attn_tensor *as_integers(const attn__call *call, const char *name, attn_tensor *x)
{
    attn_context *context = attn_tape_context(call->tape);
    if (attn_tensor_dtype(x) == ATTN_I32)
        return x;
    attn_tensor *y = attn_tape_tensor(call->tape, ATTN_I32, attn_tensor_rank(x), attn_tensor_shape(x), NULL);
    int32_t *ids = y ? attn_tensor_data(y) : NULL;
    for (int64_t i = 0; y && i < attn_tensor_size(x); i++) {
        double value = number_at(x, i);
        if (!(value >= INT32_MIN && value <= INT32_MAX) || value != floor(value)) {
            attn__fail(context, ATTN_ERROR_ARGUMENT,
                       "input %s: element %" PRId64 " is %.10g; expected a 32-bit integer", name, i, value);
            return NULL;
        }
        ids[i] = (int32_t)value;
    }
    return y;
}

static attn_tensor *as_reals(const attn__call *call, const char *name, attn_tensor *x)
{
    attn_dtype dtype = attn_tensor_dtype(x);
    if (dtype == call->model->dtype)
        return x;
    if (dtype != ATTN_F32 && dtype != ATTN_F64 && dtype != ATTN_F16 && dtype != ATTN_BF16) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT, "input %s: expected real numbers, found %s",
                   name, attn_dtype_name(dtype));
        return NULL;
    }
    return attn_cast(call->tape, x, call->model->dtype);
}

attn_tensor *attn__call_numbers(const attn__call *call, const char *name)
{
    attn_tensor *x = attn_named_find(call->inputs, name);
    attn_dtype dtype = x ? attn_tensor_dtype(x) : ATTN_F32;
    if (dtype != ATTN_I32 && dtype != ATTN_I64 && dtype != ATTN_U8 && dtype != ATTN_BOOL)
        return attn__call_input(call, name);
    attn_tensor *y = attn_tape_tensor(call->tape, call->model->dtype, attn_tensor_rank(x), attn_tensor_shape(x), NULL);
    const double most = call->model->dtype == ATTN_F32 ? 0x1p24 : 0x1p53;
    for (int64_t i = 0; y && i < attn_tensor_size(x); i++) {
        double value = number_at(x, i);
        if (fabs(value) > most) {
            attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT,
                       "input %s: element %" PRId64 " is %.0f, which %s cannot hold", name, i, value,
                       attn_dtype_name(call->model->dtype));
            return NULL;
        }
        attn__set_number(y, i, value);
    }
    return y;
}

attn_tensor *attn__call_input(const attn__call *call, const char *name)
{
    const attn_architecture *a = &call->model->kind->about;
    const attn_port *port = find_port(a->inputs, a->ninputs, name);
    attn_tensor *x = attn_named_find(call->inputs, name);
    if (!x) {
        if (!port->optional) {
            attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT, "%s: input %s %s is missing", a->name, name,
                       port->shape);
        }
        return NULL;
    }
    return port->integer ? as_integers(call, name, x) : as_reals(call, name, x);
}

static attn_named *find_item(const attn_named_list *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

void attn__call_output(const attn__call *call, const char *name, attn_tensor *tensor)
{
    attn_named *item = find_item(call->outputs, name);
    if (!tensor)
        return;
    if (item) {
        item->tensor = tensor;
    } else {
        /* the result is ignored, because a failure also sets the error in the context */
        (void)attn_named_add(call->outputs, name, tensor);
    }
}

attn_tensor **attn__wanted(const attn__call *call, const char *name, attn_tensor **slot)
{
    *slot = NULL;
    return find_item(call->outputs, name) ? slot : NULL;
}

void attn__block_begin(attn_tape *tape, bool maps)
{
    if (!maps)
        attn_scope_begin(tape);
}

attn_tensor *attn__block_end(attn_tape *tape, bool maps, attn_tensor *x)
{
    return maps ? x : attn_scope_end(tape, x);
}

void attn__weights_add(attn_named_list *list, const char *part, int index, attn_tensor *weights)
{
    char name[48];
    if (list && weights) {
        snprintf(name, sizeof name, "%s.%d", part, index);
        (void)attn_named_add(list, name, weights);
    }
}

attn_tensor *attn__stack(attn_tape *tape, const attn_named_list *list, const char *part)
{
    enum { MOST = 3 * 64 }; /* maximum number of weights: three stacks of 64 blocks */
    attn_tensor *all[MOST];
    int n = 0;
    size_t length = strlen(part);
    for (int64_t i = 0; i < list->n && n < MOST; i++) {
        if (strncmp(list->items[i].name, part, length) == 0 && list->items[i].name[length] == '.') {
            attn_tensor *x = list->items[i].tensor;
            int64_t shape[ATTN_MAX_RANK] = {1};
            memcpy(shape + 1, attn_tensor_shape(x), (size_t)attn_tensor_rank(x) * sizeof *shape);
            all[n++] = attn_reshape(tape, x, attn_tensor_rank(x) + 1, shape);
        }
    }
    return n > 0 ? attn_concat(tape, all, n, 0) : NULL;
}

/* Fails with a message that lists the ports, such as: a has no input "b"; it has x, kv. */
static attn_status fail_port(const attn__call *call, const char *kind, const char *name, const attn_port *ports, int n)
{
    char known[256] = "";
    size_t at = 0;
    for (int i = 0; i < n && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", ports[i].name);
    return attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT, "%s has no %s \"%s\"; it has %s",
                      call->model->kind->about.name, kind, name, known);
}

static attn_status check_ports(const attn__call *call)
{
    const attn_architecture *a = &call->model->kind->about;
    attn_context *context = attn_tape_context(call->tape);
    for (int64_t i = 0; i < call->inputs->n; i++)
        if (!find_port(a->inputs, a->ninputs, call->inputs->items[i].name))
            return fail_port(call, "input", call->inputs->items[i].name, a->inputs, a->ninputs);
    for (int64_t i = 0; i < call->outputs->n; i++)
        if (!find_port(a->outputs, a->noutputs, call->outputs->items[i].name))
            return fail_port(call, "output", call->outputs->items[i].name, a->outputs, a->noutputs);
    if (call->outputs->owns)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the list of outputs has owns set; owns must be false, since the tape owns the outputs");
    return ATTN_OK;
}

attn_status attn_model_forward(attn_model *model, attn_tape *tape, const attn_named_list *inputs,
                               attn_named_list *outputs)
{
    attn__call call = {.model = model, .tape = tape, .inputs = inputs, .outputs = outputs};
    attn_context *context = attn_tape_context(tape);
    ATTN__TAPE_CALL(context);
    uint64_t failures = context->failures;
    if (check_ports(&call) == ATTN_OK && attn__model_begin(model, tape)) {
        model->kind->forward(model->self, &call);
        attn__model_end(tape);
    }
    return context->failures == failures ? ATTN_OK : attn__call_status(context);
}
