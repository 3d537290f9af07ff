/* SPDX-License-Identifier: MIT
 * Which convolutions go to the matrix unit. */
#include "tensor/conv_parts.h"

#include "tensor/op.h"

static int64_t up_to(int64_t n, int64_t size)
{
    return (n + size - 1) / size * size;
}

static bool is_plain(const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    return a->spatial == 2 && a->groups == 1 && g->stride[1] == 1 && g->stride[2] == 1;
}

static bool forward(attn_tape *tape, const attn__parts_kernel *kernel, const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    int64_t taps = g->kernel[1] * g->kernel[2];
    return attn__correlate_by_parts(&(attn__correlation){.kernel = kernel,
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
                                                         .to = a->y});
}

/* A padding of more than the kernel would be a border below zero here. */
static bool input_gradient(attn_tape *tape, const attn__parts_kernel *kernel, const attn__conv_args *a)
{
    const attn__window_grid *g = &a->grid;
    int64_t taps = g->kernel[1] * g->kernel[2], top = g->kernel[1] - 1 - g->padding[1],
            left = g->kernel[2] - 1 - g->padding[2];
    return top >= 0 && left >= 0 &&
           attn__correlate_by_parts(&(attn__correlation){.kernel = kernel,
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

bool attn__conv_by_parts(attn_tape *tape, const attn__conv_args *a)
{
    const attn__parts_kernel *kernel = attn__parts_for(tape->context->isa);
    if (!kernel || !is_plain(a))
        return false;
    return a->pass == ATTN__CONV_FORWARD ? forward(tape, kernel, a)
           : a->pass == ATTN__CONV_INPUT ? input_gradient(tape, kernel, a)
                                         : false;
}

/* Tiles are whole: what they hold beside the convolution must not be too much of it. */
bool attn__conv_parts_pay(const attn__conv_args *a)
{
    enum { LEAST = 4000000 };
    const attn__window_grid *g = &a->grid;
    bool back = a->pass == ATTN__CONV_INPUT;
    int64_t results = back ? a->in : a->out, channels = back ? a->out : a->in;
    int64_t width = back ? g->in[2] : g->out[2], height = back ? g->in[1] : g->out[1];
    double exact = (double)(results * channels) * (double)(height * width),
           whole = (double)(up_to(results, ATTN__PARTS_SIDE) * up_to(channels, ATTN__PARTS_DEPTH)) *
                   (double)(height * up_to(width, ATTN__PARTS_SIDE));
    return whole <= 1.3 * exact && exact * (double)(a->batch * g->kernel[1] * g->kernel[2]) >= LEAST;
}
