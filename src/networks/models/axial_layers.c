/* SPDX-License-Identifier: MIT
 *
 * Defines self-attention, alone and behind a norm (pre-norm), self-attention along every axis of an array (axial
 * attention), learned positions along every axis, and the norm over channels.
 */
#include "models/axial_parts.h"

#include "nn/axial.h"
#include "base/context.h"
#include "nn/check.h"
#include "nn/named.h"

#include <string.h>

static void layer_build(attn_nn_self_attention *layer, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_self_attention_init(layer, builder, attn_config_int(config, "dim", 0), attn_config_int(config, "heads", 0),
                                attn_config_int(config, "dim_heads", 0));
}

typedef struct self_attention {
    attn_nn_self_attention layer;
    attn_nn_multi_head plain; /* multi-head attention without an output projection */
    bool project;
} self_attention;

static void self_attention_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    self_attention *s = self;
    int64_t dim = attn_config_int(config, "dim", 0), heads = attn_config_int(config, "heads", 0);
    s->project = attn_config_bool(config, "project", true);
    if (s->project) {
        layer_build(&s->layer, builder, config);
        return;
    }
    int64_t dim_head = attn_config_int(config, "dim_heads", 0);
    attn_nn_multi_head_init(&s->plain, builder,
                            &(attn_nn_multi_head_options){.hidden = dim_head > 0 ? heads * dim_head : dim,
                                                          .heads = heads,
                                                          .query_size = dim,
                                                          .key_size = dim,
                                                          .value_size = dim,
                                                          .plain = true});
}

static void self_attention_forward(const void *self, const attn__call *call)
{
    const self_attention *s = self;
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn_tensor *x = attn__call_input(call, "x"), *kv = attn__call_input(call, "kv");
    kv = kv ? kv : x;
    attn__call_output(call, "out",
                      s->project ? attn_nn_self_attention_forward(&s->layer, call->tape, x, kv, wanted)
                                 : attn_nn_multi_head_forward(&s->plain, call->tape, x, kv, kv, NULL, wanted));
    attn__call_output(call, "weights", weights);
}

static const attn_setting self_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    ATTN__KEY_COUNT("heads", NULL, "heads; divides dim where dim_heads is not given"),
    ATTN__KEY_COUNT("dim_heads", "", "channels of a head; default dim / heads"),
    ATTN__KEY_FLAG("project", "true",
                   "a projection of the heads to dim channels; false: the heads side by side are the result, and the "
                   "weights are called query, key and value"),
    ATTN__KEY_INIT,
};
static const attn_port self_inputs[] = {
    ATTN__PORT("x", "(b,t,dim)", ""),
    ATTN__PORT_OPTIONAL("kv", "(b,s,dim)", "the input of keys and values; default x")};
static const attn_port self_outputs[] = {
    ATTN__PORT("out", "(b,t,dim)", "without project as many channels as the heads have"),
    ATTN__PORT_OPTIONAL("weights", "(b,h,t,s)", "attention weights")};

const attn__kind attn__kind_self_attention = {
    .about = {.name = "self-attention",
              .summary = "multi-head attention of a sequence to itself, or to another one",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention",
              ATTN__PORTS(self_keys, self_inputs, self_outputs)},
    .size = sizeof(self_attention),
    .build = self_attention_build,
    .forward = self_attention_forward,
};

/* ----------------------------------------------------------------------------------------- every axis */

enum { MOST_AXES = ATTN_MAX_RANK - 2 };

typedef struct axial {
    int axes, channel; /* axes: number of axes other than batch and channels; channel: index of the channels' axis */
    bool sum;
    int64_t dim;
    attn_nn_self_attention layer[MOST_AXES];
} axial;

static void axial_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    axial *a = self;
    a->axes = (int)attn_config_int(config, "num_dimensions", 2);
    int64_t index = attn_config_int(config, "dim_index", -1);
    a->channel = (int)(index < 0 ? index + a->axes + 2 : index);
    a->sum = attn_config_bool(config, "sum_axial_out", true);
    a->dim = attn_config_int(config, "dim", 0);
    if (a->channel < 1 || a->channel > a->axes + 1) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "axial-attention: dim_index is %d; allowed: 1 to %d, -1 to %d", (int)index, a->axes + 1,
                   -a->axes - 1);
        return;
    }
    for (int i = 0; i < a->axes; i++) {
        attn_nn_pushf(builder, "axial_attentions.%d.fn", i);
        layer_build(&a->layer[i], builder, config);
        attn_nn_pop(builder);
    }
}

static void axial_forward(const void *self, const attn__call *call)
{
    const axial *a = self;
    attn_tensor *x = attn__call_input(call, "x"), *sum = NULL, *maps[MOST_AXES] = {NULL}, *wanted = NULL;
    bool keep = attn__wanted(call, "weights", &wanted) != NULL;
    if (!x)
        return;
    if (!attn__nn_has_channels(call->tape, "axial-attention", x, a->axes + 2, a->channel, a->dim))
        return;
    for (int i = 0; i < a->axes; i++) { /* a->axes does not count the batch axis and the channels' axis */
        int axis = i + 1 < a->channel ? i + 1 : i + 2;
        attn_tensor *y =
            attn_nn_self_attention_axis(&a->layer[i], call->tape, x, axis, a->channel, keep ? &maps[i] : NULL);
        sum = sum ? attn_add(call->tape, sum, y) : y;
        x = a->sum ? x : y;
    }
    attn__call_output(call, "out", a->sum ? sum : x);
    attn__call_output(call, "weights", keep ? attn_concat(call->tape, maps, a->axes, -1) : NULL);
}

static const attn_setting axial_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    {"num_dimensions", ATTN_CONFIG_TYPE_INT, "2", 1, MOST_AXES, NULL, "number of axes to attend along"},
    ATTN__KEY_COUNT("heads", "8", "heads; divides dim where dim_heads is not given"),
    ATTN__KEY_COUNT("dim_heads", "", "channels of a head; default dim / heads"),
    {"dim_index", ATTN_CONFIG_TYPE_INT, "-1", -ATTN_MAX_RANK, ATTN_MAX_RANK, NULL,
     "the axis of the channels, from the end if negative"},
    ATTN__KEY_FLAG("sum_axial_out", "true", "the sum over the axes; false: one after the other"),
    ATTN__KEY_INIT,
};
static const attn_port axial_inputs[] = {ATTN__PORT("x", "num_dimensions + 2 axes", "batch first")};
static const attn_port axial_outputs[] = {
    ATTN__PORT("out", "as x", ""),
    ATTN__PORT_OPTIONAL("weights", "(b,heads,axes...,sum of the axes)",
                        "of each place over its line along the first axis, then along the next"),
};

const attn__kind attn__kind_axial_attention = {
    .about = {.name = "axial-attention",
              .summary = "self-attention along each axis of an image, a video, a volume",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention",
              ATTN__PORTS(axial_keys, axial_inputs, axial_outputs)},
    .size = sizeof(axial),
    .build = axial_build,
    .forward = axial_forward,
};

/* ------------------------------------------------------------------------------------------- positions */

const char *const attn__resize_choices[] = {"none", "slice", "linear", "cubic", NULL};

attn_nn_positions_fit attn__positions_fit(const attn_config *config)
{
    const char *fit = attn_config_text(config, "resize", "none");
    int i = 0;
    while (attn__resize_choices[i] && strcmp(fit, attn__resize_choices[i]) != 0)
        i++;
    /* the index can be cast, because the enum has the same order as the setting's choices */
    return (attn_nn_positions_fit)i;
}

static void positions_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    const attn_config_value *shape = attn_config_get(config, "shape");
    attn_nn_axial_positions_init(self, builder, attn_config_int(config, "dim", 0), (int)shape->n, shape->integers,
                                 (int)attn_config_int(config, "emb_dim_index", 1), attn__positions_fit(config));
}

static void positions_forward(const void *self, const attn__call *call)
{
    attn__call_output(call, "out", attn_nn_axial_positions_forward(self, call->tape, attn__call_input(call, "x")));
}

static const attn_setting positions_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    {"shape", ATTN_CONFIG_TYPE_INTS, NULL, 0, 0, NULL, "lengths of the axes except batch and channels"},
    {"emb_dim_index", ATTN_CONFIG_TYPE_INT, "1", -ATTN_MAX_RANK, ATTN_MAX_RANK, NULL,
     "the axis of the channels, from the end if negative"},
    ATTN__KEY_RESIZE,
};
static const attn_port positions_inputs[] = {ATTN__PORT("x", "as many axes as shape, and 2", "batch first")};
static const attn_port positions_outputs[] = {ATTN__PORT("out", "as x", "")};

const attn__kind attn__kind_axial_positional_embedding = {
    .about = {.name = "axial-positional-embedding",
              .summary = "learned positions of an image or a video, one vector for each place along each axis",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention",
              ATTN__PORTS(positions_keys, positions_inputs, positions_outputs)},
    .size = sizeof(attn_nn_axial_positions),
    .build = positions_build,
    .forward = positions_forward,
};

/* ----------------------------------------------------------------------------------------------- norms */

typedef struct pre_norm {
    attn_nn_layer_norm norm;
    attn_nn_self_attention fn;
} pre_norm;

static void pre_norm_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    pre_norm *p = self;
    attn_nn_push(builder, "fn");
    layer_build(&p->fn, builder, config);
    attn_nn_pop(builder);
    attn__nn_layer_norm_named(&p->norm, builder, "norm", attn_config_int(config, "dim", 0), 0);
}

static void pre_norm_forward(const void *self, const attn__call *call)
{
    const pre_norm *p = self;
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn_tensor *x = attn_nn_layer_norm_forward(&p->norm, call->tape, attn__call_input(call, "x"));
    attn__call_output(call, "out", x ? attn_nn_self_attention_forward(&p->fn, call->tape, x, x, wanted) : NULL);
    attn__call_output(call, "weights", weights);
}

static const attn_setting pre_norm_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    ATTN__KEY_COUNT("heads", NULL, "heads; divides dim where dim_heads is not given"),
    ATTN__KEY_COUNT("dim_heads", "", "channels of a head; default dim / heads"),
    ATTN__KEY_INIT,
};
static const attn_port pre_norm_inputs[] = {ATTN__PORT("x", "(b,t,dim)", "")};
static const attn_port pre_norm_outputs[] = {ATTN__PORT("out", "(b,t,dim)", ""),
                                             ATTN__PORT_OPTIONAL("weights", "(b,h,t,t)", "attention weights")};

const attn__kind attn__kind_pre_norm = {
    .about = {.name = "pre-norm",
              .summary = "a layer norm followed by self-attention",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention",
              ATTN__PORTS(pre_norm_keys, pre_norm_inputs, pre_norm_outputs)},
    .size = sizeof(pre_norm),
    .build = pre_norm_build,
    .forward = pre_norm_forward,
};

typedef struct channel_norm {
    attn_nn_channel_norm norm;
    int64_t dim;
} channel_norm;

static void channel_norm_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    channel_norm *c = self;
    c->dim = attn_config_int(config, "dim", 0);
    attn_nn_channel_norm_init(&c->norm, builder, c->dim, attn_config_real(config, "eps", 0));
}

static void channel_norm_forward(const void *self, const attn__call *call)
{
    const channel_norm *c = self;
    attn_tensor *x = attn__call_input(call, "x");
    if (attn__nn_has_channels(call->tape, "channel-layer-norm", x, 4, 1, c->dim))
        attn__call_output(call, "out", attn_nn_channel_norm_forward(&c->norm, call->tape, x));
}

static const attn_setting channel_norm_keys[] = {
    ATTN__KEY_COUNT("dim", NULL, "channels"),
    {"eps", ATTN_CONFIG_TYPE_REAL, "1e-5", 1e-30, 1, NULL, "added to the standard deviation"},
};
static const attn_port channel_norm_inputs[] = {ATTN__PORT("x", "(b,dim,h,w)", "")};
static const attn_port channel_norm_outputs[] = {ATTN__PORT("out", "(b,dim,h,w)", "")};

const attn__kind attn__kind_channel_layer_norm = {
    .about = {.name = "channel-layer-norm",
              .summary = "a norm over the channels of each pixel",
              .source = "Ho et al. 2019, arXiv:1912.12180; lucidrains/axial-attention",
              ATTN__PORTS(channel_norm_keys, channel_norm_inputs, channel_norm_outputs)},
    .size = sizeof(channel_norm),
    .build = channel_norm_build,
    .forward = channel_norm_forward,
};
