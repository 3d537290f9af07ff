/* SPDX-License-Identifier: MIT
 *
 * Defines generalized attention over images. The score has four terms (factors), and each can be switched on.
 */
#include "models/model_keys.h"

#include "nn/spatial.h"

#include <string.h>

static const char *const factors[] = {"query-key", "query-relpos", "key-only", "relpos-only", NULL};

static const attn_setting keys[] = {
    ATTN__KEY_COUNT("M", NULL, "heads"),
    ATTN__KEY_COUNT("d", NULL, "channels"),
    ATTN__KEY_COUNT("d_head", "", "channels of a head; default d / M, rounded down"),
    {"factors", ATTN_CONFIG_TYPE_TEXTS, "", 0, 0, factors, "the terms of the scores, a list; default: all four"},
    ATTN__KEY_COUNT("position_dim", "", "channels of the sines, a multiple of 4; default d, rounded down to one"),
    {"position_magnitude", ATTN_CONFIG_TYPE_REAL, "1", 1e-6, 1e6, NULL, "factor of the distances"},
    ATTN__KEY_INIT,
};
static const attn_port inputs[] = {ATTN__PORT("x", "(b,d,h,w)", "an image")};
static const attn_port outputs[] = {
    ATTN__PORT("out", "(b,d,h,w)", "x + gamma * attention; gamma starts at 0"),
    ATTN__PORT_OPTIONAL("weights", "(b,M,h,w,h,w)", "attention weights; if key-only is the only term (b,M,1,1,h,w)"),
};

/* Returns the factors of a config as a combination of bits. The bits ATTN_FACTOR_... have the same order as the
 * factors' names. The names need no check, because the table of keys has checked them. */
static unsigned factors_of(const attn_config *config)
{
    const attn_config_value *list = attn_config_get(config, "factors");
    unsigned found = 0;
    for (int64_t i = 0; list && list->type == ATTN_CONFIG_TYPE_TEXTS && i < list->n; i++) {
        int f = 0;
        while (strcmp(factors[f], list->texts[i]) != 0)
            f++;
        found |= 1u << f;
    }
    return found;
}

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_generalized_attention_options options = {
        .dim = attn_config_int(config, "d", 0),
        .heads = attn_config_int(config, "M", 0),
        .dim_head = attn_config_int(config, "d_head", 0),
        .factors = factors_of(config),
        .position_dim = attn_config_int(config, "position_dim", 0),
        .magnitude = attn_config_real(config, "position_magnitude", 1),
    };
    attn_nn_generalized_attention_init(self, builder, &options);
}

static void forward(const void *self, const attn__call *call)
{
    attn_tensor *weights = NULL, **wanted = attn__wanted(call, "weights", &weights);
    attn__call_output(call, "out",
                      attn_nn_generalized_attention_forward(self, call->tape, attn__call_input(call, "x"), wanted));
    attn__call_output(call, "weights", weights);
}

const attn__kind attn__kind_generalized_attention = {
    .about = {.name = "generalized-attention",
              .summary = "content and relative positions, with queries or without",
              .source = "Zhu et al. 2019, arXiv:1904.05873",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(attn_nn_generalized_attention),
    .build = build,
    .forward = forward,
};
