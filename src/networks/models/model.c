/* SPDX-License-Identifier: MIT
 *
 * Builds a model from a config, and runs it on named inputs. */
#include "models/model_keys.h"

#include "base/context.h"
#include "base/integers.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "tensor/packed_weights.h"

#include <string.h>

const char *const attn__init_choices[] = {"xavier", "torch", NULL};

int attn__config_choice(const attn_config *config, const char *key, const char *const *choices)
{
    const char *value = attn_config_text(config, key, choices[0]);
    int i = 0;
    while (choices[i + 1] && strcmp(choices[i], value) != 0)
        i++;
    return i;
}

/* Allocates memory for the weights that do not have memory yet. Weights that can be packed while they are loaded
 * stay without memory. */
static void settle_waiting(attn_model *model)
{
    for (int64_t i = 0; i < model->parameters.n; i++) {
        attn_tensor *w = model->parameters.items[i].tensor;
        if (w->data)
            continue;
        if (attn__weight_can_pack_on_load(w, model->precision))
            w->packs_on_load = model->precision;
        else if (attn__tensor_allocate(w, NULL))
            memset(w->data, 0, attn__tensor_bytes(w));
    }
}

/* Reports whether packed weights take less memory in this precision than in f32. */
static bool is_small(attn_precision precision)
{
    return precision == ATTN_PRECISION_BF16 || precision == ATTN_PRECISION_INT8;
}

static void build(attn_model *model, const attn_model_options *options)
{
    const char *init = attn_config_text(model->config, "init", "xavier");
    attn_nn_builder builder = {
        .context = model->context,
        .parameters = &model->parameters,
        .constants = &model->constants,
        .dtype = model->dtype,
        .seed = options->seed,
        .blank = options->blank,
        .waits = model->context->inference && is_small(model->precision),
        .limit = options->limit,
        .policy = strcmp(init, "torch") == 0 ? ATTN_POLICY_TORCH : ATTN_POLICY_XAVIER,
    };
    if (model->kind->build)
        model->kind->build(model->self, &builder, model->config);
    settle_waiting(model);
}

static attn_model *begin(attn_context *context, const attn__kind *kind, const attn_config *config,
                         const attn_model_options *options)
{
    attn_model *model = attn__alloc_zero(context, sizeof *model);
    if (!model)
        return NULL;
    model->context = context;
    model->kind = kind;
    model->dtype = options->dtype;
    if (model->dtype == ATTN_F32)
        model->precision = options->precision ? options->precision : context->precision;
    model->parameters = model->constants = (attn_named_list){.context = context, .owns = true};
    attn__keys keys = {.keys = kind->about.keys, .n = kind->about.nkeys};
    attn__keys_options named = {.name = kind->about.name};
    (void)attn__keys_resolve(&model->config, context, &keys, config, &named);
    model->self = attn__alloc_zero(context, kind->size);
    if (!model->config || !model->self) {
        attn_model_destroy(model);
        return NULL;
    }
    return model;
}

static attn_status fail_architecture(attn_context *context, const char *name)
{
    attn_nearest nearest = {.word = name};
    for (int i = 0; i < attn_architecture_count(); i++)
        attn_nearest_offer(&nearest, attn_architecture_at(i)->name);
    bool near = attn_nearest_found(&nearest);
    return attn__fail(context, ATTN_ERROR_NOT_FOUND, "there is no architecture \"%.80s\"%s%s%s", name,
                      near ? "; did you mean \"" : "", near ? nearest.best : "", near ? "\"?" : "");
}

attn_status attn_model_create(attn_model **model, attn_context *context, const char *architecture,
                              const attn_config *config, const attn_model_options *options)
{
    ATTN__CALL(context);
    attn_model_options o = options ? *options : (attn_model_options){0};
    const attn__kind *kind = attn__kind_find(architecture);
    *model = NULL;
    if (!kind)
        return fail_architecture(context, architecture ? architecture : "");
    if (ATTN__CHECK_RESERVED(context, options, attn_model_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (o.dtype != ATTN_F32 && o.dtype != ATTN_F64) {
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: parameters must be f32 or f64, not %s", architecture,
                          attn_dtype_name(o.dtype));
    }
    if ((unsigned)o.precision > ATTN_PRECISION_INT8 || (o.dtype == ATTN_F64 && o.precision)) {
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: the precision \"%s\" is not supported for %s parameters",
                          architecture, attn_precision_name(o.precision), attn_dtype_name(o.dtype));
    }
    if (o.precision == ATTN_PRECISION_FMA && context->isa == ATTN_ISA_AMX) {
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the precision fma needs a context without AMX; create the context with this precision",
                          architecture);
    }
    attn_model *m = begin(context, kind, config, &o);
    if (m)
        build(m, &o);
    if (attn__call_status(context) != ATTN_OK) { /* layers report errors only through the context */
        attn_model_destroy(m);
        return attn__call_status(context);
    }
    *model = m;
    return ATTN_OK;
}

void attn_model_destroy(attn_model *model)
{
    if (!model)
        return;
    attn_named_clear(&model->parameters);
    attn_named_clear(&model->constants);
    attn_config_destroy(model->config);
    attn__free(model->context, model->self);
    attn__free(model->context, model);
}

const attn_architecture *attn_model_architecture(const attn_model *model)
{
    return &model->kind->about;
}

const attn_config *attn_model_config(const attn_model *model)
{
    return model->config;
}

attn_context *attn_model_context(const attn_model *model)
{
    return model->context;
}

attn_dtype attn_model_dtype(const attn_model *model)
{
    return model->dtype;
}

attn_precision attn_model_precision(const attn_model *model)
{
    return model->precision;
}

bool attn__model_begin(const attn_model *model, attn_tape *tape)
{
    if (model->precision == ATTN_PRECISION_INT8 && tape->options.record) {
        attn__fail(model->context, ATTN_ERROR_UNSUPPORTED, "%s: int8 has no gradients: train in f32 or bf16",
                   model->kind->about.name);
        return false;
    }
    tape->precision = model->precision;
    return true;
}

void attn__model_end(attn_tape *tape)
{
    tape->precision = ATTN_PRECISION_DEFAULT;
}

attn_named_list *attn_model_parameters(const attn_model *model)
{
    return (attn_named_list *)&model->parameters;
}

attn_status attn_model_pack_weights(attn_model *model)
{
    ATTN__CALL(model->context);
    const int64_t n = model->parameters.n;
    attn_status status = ATTN_OK;
    /* The first n iterations pack the weights whose packing frees memory. The last n iterations pack the others. */
    for (int64_t i = 0; i < 2 * n && status == ATTN_OK; i++) {
        attn_tensor *w = model->parameters.items[i % n].tensor;
        if (attn__weight_can_pack_on_load(w, model->precision) == (i < n))
            status = attn__weight_pack(w, model->precision);
    }
    return status;
}
