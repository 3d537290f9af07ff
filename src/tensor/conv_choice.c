/* SPDX-License-Identifier: MIT
 * Which convolutions go to the matrix unit. */
#include "tensor/conv_digits.h"

#include "base/integers.h"
#include "tensor/op.h"

static bool is_plain(const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    return a->spatial == 2 && a->groups == 1 && g->stride[1] == 1 && g->stride[2] == 1;
}

static bool forward(attn_tape *tape, const attn__digits_kernel *kernel, const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    int64_t taps = g->kernel[1] * g->kernel[2];
    return attn__correlate_by_digits(&(attn__correlation){.kernel = kernel,
                                                          .tape = tape,
                                                          .batch = a->batch,
                                                          .channels = a->in,
                                                          .results = a->out,
                                                          .height = g->in[1],
                                                          .width = g->in[2],
                                                          .out_height = g->out[1],
                                                          .out_width = g->out[2],
                                                          .kernel_height = g->kernel[1],
                                                          .kernel_width = g->kernel[2],
                                                          .top = g->padding[1],
                                                          .left = g->padding[2],
                                                          .result_stride = a->in * taps,
                                                          .channel_stride = taps,
                                                          .from = a->x,
                                                          .w = a->w,
                                                          .bias = a->bias,
                                                          .activation = a->activation,
                                                          .to = a->y});
}

/* A padding of more than the kernel would be a border below zero here. */
static bool input_gradient(attn_tape *tape, const attn__digits_kernel *kernel, const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    int64_t taps = g->kernel[1] * g->kernel[2], top = g->kernel[1] - 1 - g->padding[1],
            left = g->kernel[2] - 1 - g->padding[2];
    return top >= 0 && left >= 0 &&
           attn__correlate_by_digits(&(attn__correlation){.kernel = kernel,
                                                          .tape = tape,
                                                          .batch = a->batch,
                                                          .channels = a->out,
                                                          .results = a->in,
                                                          .height = g->out[1],
                                                          .width = g->out[2],
                                                          .out_height = g->in[1],
                                                          .out_width = g->in[2],
                                                          .kernel_height = g->kernel[1],
                                                          .kernel_width = g->kernel[2],
                                                          .top = top,
                                                          .left = left,
                                                          .result_stride = taps,
                                                          .channel_stride = a->in * taps,
                                                          .flipped = true,
                                                          .from = a->y,
                                                          .w = a->w,
                                                          .to = a->x});
}

bool attn__conv_by_digits(attn_tape *tape, const attn__conv_args *a)
{
    const attn__digits_kernel *kernel = attn__digits_for(tape->context->isa);
    if (!kernel || !is_plain(a))
        return false;
    return a->pass == ATTN__CONV_FORWARD ? forward(tape, kernel, a)
           : a->pass == ATTN__CONV_INPUT ? input_gradient(tape, kernel, a)
                                         : attn__conv_weights_by_digits(tape, kernel, a);
}

/* Multiply-adds that whole tiles hold. */
static double whole_sums(int64_t results, int64_t channels, int64_t height, int64_t width)
{
    return (double)(attn__round_up(results, ATTN__DIGITS_SIDE) * attn__round_up(channels, ATTN__DIGITS_DEPTH)) *
           (double)(height * attn__round_up(width, ATTN__DIGITS_SIDE));
}

/* The same of sums along places, borders to the right included. */
static double whole_weights(const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    return (double)(attn__round_up(a->in, ATTN__DIGITS_SIDE) * attn__round_up(a->out, ATTN__DIGITS_SIDE)) *
           (double)attn__round_up(g->out[1] * (g->out[2] + g->kernel[2] - 1), ATTN__DIGITS_DEPTH);
}

/* All in multiply-adds of oneDNN.  Measured on one core of a Sapphire Rapids: the unit does 2.6 in the time of one, a
 * number of an image is cut in that of 60, a weight gathered and cut in that of 65. */
bool attn__conv_digits_pay(const attn_tape *tape, const attn__conv_args *a)
{
    if (!attn__digits_for(tape->context->isa) || !is_plain(a))
        return false;
    const attn__window_grid *g = &a->grid;
    double taps = (double)(g->kernel[1] * g->kernel[2]), batch = (double)a->batch, weights = (double)(a->in * a->out);
    double x = (double)a->in * (double)(g->in[1] * g->in[2]), y = (double)a->out * (double)(g->out[1] * g->out[2]);
    double direct = (double)a->in * y * taps * batch, whole, split;
    if (a->pass == ATTN__CONV_FORWARD) {
        whole = whole_sums(a->out, a->in, g->out[1], g->out[2]);
        split = 60 * x;
    } else if (a->pass == ATTN__CONV_INPUT) {
        whole = whole_sums(a->in, a->out, g->in[1], g->in[2]);
        split = 60 * y;
    } else {
        whole = whole_weights(a);
        split = 60 * (x + y);
    }
    return batch * (whole * taps / 2.6 + split) + 65 * weights * taps < 0.9 * direct;
}
