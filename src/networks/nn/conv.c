/* SPDX-License-Identifier: MIT */
#include "nn/spatial.h"

#include "base/context.h"

#include <string.h>

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

static bool options_fit(attn_nn_builder *builder, const attn_nn_conv_options *o)
{
    int64_t groups = or_one(o->groups);
    if (o->spatial < 1 || o->spatial > 3) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sconvolution over %d axes: 1 to 3 are supported",
                   builder->prefix, o->spatial);
        return false;
    }
    if (o->in_channels < 1 || o->out_channels < 1 || groups < 1 || o->in_channels % groups != 0 ||
        o->out_channels % groups != 0) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sconvolution: %lld groups must divide the %lld input channels and the %lld output channels",
                   builder->prefix, (long long)groups, (long long)o->in_channels, (long long)o->out_channels);
        return false;
    }
    if (o->activation < ATTN_ACTIVATION_IDENTITY || o->activation > ATTN_ACTIVATION_SILU) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sconvolution: activation is %d; it must be between 0 and %d", builder->prefix, (int)o->activation,
                   (int)ATTN_ACTIVATION_SILU);
        return false;
    }
    return true;
}

/* With PyTorch's policy, weight and bias are uniform in (-b, b) with b = 1/sqrt(fan_in). fan_in is the kernel's size
 * times the number of input channels of a group. */
static attn_nn_initializer weight_fill(const attn_nn_builder *builder, const attn_nn_conv_options *o)
{
    if (o->zero)
        return (attn_nn_initializer){.start = ATTN_INIT_ZEROS};
    if (o->fill.start != ATTN_INIT_ZEROS)
        return o->fill;
    bool torch = builder->policy == ATTN_POLICY_TORCH;
    return (attn_nn_initializer){.start = torch ? ATTN_INIT_KAIMING_UNIFORM : ATTN_INIT_XAVIER_UNIFORM};
}

void attn_nn_conv_init(attn_nn_conv *layer, attn_nn_builder *builder, const attn_nn_conv_options *options)
{
    *layer = (attn_nn_conv){0};
    if (!options_fit(builder, options))
        return;
    layer->geometry =
        (attn_conv){.spatial = options->spatial, .groups = options->groups, .activation = options->activation};
    memcpy(layer->geometry.stride, options->stride, sizeof options->stride);
    memcpy(layer->geometry.padding, options->padding, sizeof options->padding);
    int64_t shape[5] = {options->out_channels, options->in_channels / or_one(options->groups)};
    double fan_in = (double)shape[1];
    for (int i = 0; i < options->spatial; i++) {
        shape[2 + i] = or_one(options->kernel[i]);
        fan_in *= (double)shape[2 + i];
        layer->geometry.dilation[i] = options->dilation;
    }
    layer->weight = attn_nn_parameter(builder, "weight", 2 + options->spatial, shape, weight_fill(builder, options));
    if (options->bias) {
        bool random = builder->policy == ATTN_POLICY_TORCH && !options->zero;
        attn_nn_initializer fill = {.start = random ? ATTN_INIT_KAIMING_UNIFORM : ATTN_INIT_ZEROS, .fan_in = fan_in};
        layer->bias = attn_nn_parameter(builder, "bias", 1, &options->out_channels, fill);
    }
}

attn_tensor *attn_nn_conv_forward(const attn_nn_conv *layer, attn_tape *tape, attn_tensor *x)
{
    return attn_convolve(tape, x, layer->weight, layer->bias, &layer->geometry);
}
