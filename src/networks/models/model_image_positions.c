/* SPDX-License-Identifier: MIT
 *
 * Defines DETR's positions of an image. They are returned as a map [b,h,w,c], and as a sequence for the inputs p_q and
 * p_kv of attention.
 */
#include "models/model_keys.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "tensor/tape_state.h"

static const attn_setting sine_keys[] = {
    {"num_pos_feats", ATTN_CONFIG_TYPE_INT, "64", 2, 1 << 20, NULL, "channels of each axis, even"},
    {"temperature", ATTN_CONFIG_TYPE_REAL, "10000", 1e-6, 1e12, NULL, "longest wavelength over 2 pi"},
    ATTN__KEY_FLAG("normalize", "false", "positions divided by the last one of their line, times scale"),
    {"scale", ATTN_CONFIG_TYPE_REAL, "0", 0, 1e12, NULL, "with normalize; 0: 2 pi"},
};
static const attn_setting learned_keys[] = {
    ATTN__KEY_COUNT("num_pos_feats", "256", "channels of each axis"),
    ATTN__KEY_COUNT("max_positions", "50", "longest side"),
    ATTN__KEY_INIT,
};
static const attn_port sine_inputs[] = {
    ATTN__PORT("x", "(b,c,h,w)", "an image, of which only the size counts"),
    {"mask", "(b,h,w)", true, true, "1 where there is padding, which is not counted"},
};
static const attn_port learned_inputs[] = {ATTN__PORT("x", "(b,c,h,w)", "an image, of which only the size counts")};
#define OUTPUTS(first)                                                                                                 \
    ATTN__PORT("pos", "(b,2*num_pos_feats,h,w)", first),                                                               \
        ATTN__PORT_OPTIONAL("sequence", "(b,h*w,2*num_pos_feats)", "the same, row by row, for p_q and p_kv")
static const attn_port sine_outputs[] = {OUTPUTS("the row's channels, then the column's")};
static const attn_port learned_outputs[] = {OUTPUTS("the column's channels, then the row's")};

/* Sets the outputs from the positions `map` [b,h,w,c]. */
static void give(const attn__call *call, attn_tensor *map)
{
    attn_tensor *sequence = NULL;
    if (!map)
        return;
    attn__call_output(call, "pos", attn_permute(call->tape, map, (int[]){0, 3, 1, 2}));
    if (attn__wanted(call, "sequence", &sequence)) {
        int64_t shape[3] = {attn_tensor_length(map, 0), -1, attn_tensor_length(map, 3)};
        attn__call_output(call, "sequence", attn_reshape(call->tape, map, 3, shape));
    }
}

static bool size_of(const attn__call *call, int64_t shape[3])
{
    attn_tensor *x = attn__call_input(call, "x");
    if (x && attn_tensor_rank(x) != 4) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE, "positions: expected x (b,c,h,w), found %d axes",
                   attn_tensor_rank(x));
    }
    if (!x || attn_tensor_rank(x) != 4)
        return false;
    shape[0] = attn_tensor_length(x, 0);
    shape[1] = attn_tensor_length(x, 2);
    shape[2] = attn_tensor_length(x, 3);
    return true;
}

static void sine_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_sine_positions *layer = self;
    const double two_pi = 6.283185307179586476925;
    double scale = attn_config_real(config, "scale", 0);
    bool normalize = attn_config_bool(config, "normalize", false);
    *layer = (attn_nn_sine_positions){.feats = attn_config_int(config, "num_pos_feats", 64),
                                      .temperature = attn_config_real(config, "temperature", 10000),
                                      .scale = !normalize  ? 0
                                               : scale > 0 ? scale
                                                           : two_pi};
    if (scale > 0 && !normalize)
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "sine-position-encoding: scale (%g) needs normalize=true",
                   scale);
}

static void sine_forward(const void *self, const attn__call *call)
{
    attn_tensor *mask = attn__call_input(call, "mask"), *padding = NULL;
    int64_t shape[3];
    if (!size_of(call, shape))
        return;
    if (mask) { /* I32 */
        padding = attn_tape_tensor(call->tape, ATTN_U8, attn_tensor_rank(mask), attn_tensor_shape(mask), NULL);
        for (int64_t i = 0; padding && i < attn_tensor_size(mask); i++)
            ((uint8_t *)attn_tensor_data(padding))[i] = ((const int32_t *)attn_tensor_data(mask))[i] != 0;
    }
    if (!mask || padding)
        give(call, attn_nn_sine_positions_forward(self, call->tape, call->model->dtype, shape, padding));
}

static void learned_build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    attn_nn_learned_positions_init(self, builder, attn_config_int(config, "num_pos_feats", 256),
                                   attn_config_int(config, "max_positions", 50));
}

static void learned_forward(const void *self, const attn__call *call)
{
    int64_t shape[3];
    attn_tensor *one =
        size_of(call, shape) ? attn_nn_learned_positions_forward(self, call->tape, shape[1], shape[2]) : NULL;
    if (!one)
        return;
    int64_t wide = attn_tensor_length(one, 2);
    attn_tensor *zeros =
        attn_tape_tensor(call->tape, call->model->dtype, 4, (int64_t[]){shape[0], shape[1], shape[2], wide}, NULL);
    give(call, attn_add(call->tape, zeros, one));
}

const attn__kind attn__kind_sine_position_encoding = {
    .about = {.name = "sine-position-encoding",
              .summary = "sines of rows and columns, padding left out of the count",
              .source = "Carion et al. 2020, arXiv:2005.12872",
              ATTN__PORTS(sine_keys, sine_inputs, sine_outputs)},
    .size = sizeof(attn_nn_sine_positions),
    .build = sine_build,
    .forward = sine_forward,
};

const attn__kind attn__kind_learned_position_encoding = {
    .about = {.name = "learned-position-encoding",
              .summary = "learned columns and rows",
              .source = "Carion et al. 2020, arXiv:2005.12872",
              ATTN__PORTS(learned_keys, learned_inputs, learned_outputs)},
    .size = sizeof(attn_nn_learned_positions),
    .build = learned_build,
    .forward = learned_forward,
};
