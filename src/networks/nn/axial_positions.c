/* SPDX-License-Identifier: MIT
 *
 * Implements positions that are the sum of one learned vector for each axis.
 */
#include "nn/axial.h"

#include "base/context.h"
#include "nn/check.h"
#include "tensor/tape_state.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the index in x of the i-th axis. The batch axis and the channels' axis are not counted by i. */
static int axis_of(const attn_nn_axial_positions *layer, int i)
{
    return i + 1 < layer->channel ? i + 1 : i + 2;
}

void attn_nn_axial_positions_init(attn_nn_axial_positions *layer, attn_nn_builder *builder, int64_t dim, int axes,
                                  const int64_t *shape, int channel, attn_nn_positions_fit fit)
{
    int from_front = channel < 0 ? channel + axes + 2 : channel;
    *layer = (attn_nn_axial_positions){.axes = axes, .channel = from_front, .fit = fit};
    if (axes < 1 || axes + 2 > ATTN_MAX_RANK) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%saxial positions of %d axes: 1 to %d are supported",
                   builder->prefix, axes, ATTN_MAX_RANK - 2);
        return;
    }
    if (from_front < 1 || from_front > axes + 1) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%saxial positions: channels at axis %d; allowed: 1 to %d, -1 to %d", builder->prefix, channel,
                   axes + 1, -axes - 1);
        return;
    }
    if (attn__check_choice(builder->context, "the fit of axial positions", (int)fit, ATTN_POSITIONS_CUBIC))
        return;
    for (int i = 0; i < axes; i++) {
        char name[16];
        int64_t full[ATTN_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        full[from_front] = dim;
        full[axis_of(layer, i)] = shape[i];
        snprintf(name, sizeof name, "param_%d", i);
        layer->param[i] = attn_nn_parameter(builder, name, axes + 2, full,
                                            (attn_nn_initializer){.start = ATTN_INIT_NORMAL, .scale = 1});
    }
}

static attn_tensor *too_long(attn_tape *tape, int axis, int64_t n, int64_t have, const char *allowed)
{
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
               "axial positions: axis %d of the input is %" PRId64 " long, but there are positions for %" PRId64 "; %s",
               axis, n, have, allowed);
    return NULL;
}

/* Returns the parameter `param`, fitted to an axis of length n by slicing or interpolation. */
static attn_tensor *fitted(const attn_nn_axial_positions *layer, attn_tape *tape, attn_tensor *param, int axis,
                           int64_t n)
{
    int64_t have = attn_tensor_length(param, axis);
    if (n == have)
        return param;
    switch (layer->fit) {
    case ATTN_POSITIONS_EXACT:
        return too_long(tape, axis, n, have, "resize=slice, linear or cubic would fit the positions");
    case ATTN_POSITIONS_SLICE:
        return n < have ? attn_slice(tape, param, axis, 0, n)
                        : too_long(tape, axis, n, have, "resize=slice can only shorten the positions");
    default:
        return attn_interpolate(tape, param, axis, n,
                                layer->fit == ATTN_POSITIONS_CUBIC ? ATTN_INTERPOLATE_CUBIC : ATTN_INTERPOLATE_LINEAR);
    }
}

attn_tensor *attn_nn_axial_positions_forward(const attn_nn_axial_positions *layer, attn_tape *tape, attn_tensor *x)
{
    if (!x || !layer->param[0])
        return NULL;
    int64_t dim = attn_tensor_length(layer->param[0], layer->channel);
    if (!attn__nn_has_channels(tape, "axial positions", x, layer->axes + 2, layer->channel, dim))
        return NULL;
    for (int i = 0; x && i < layer->axes; i++) {
        int axis = axis_of(layer, i);
        x = attn_add(tape, x, fitted(layer, tape, layer->param[i], axis, attn_tensor_length(x, axis)));
    }
    return x;
}
