/* SPDX-License-Identifier: MIT */
#include "support/hostile.h"
#include "attn/tensor.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    const hostile_case *c;
    conv_ref shape;
    int64_t in, out, taps;
    int64_t nx, nw, ny;
    float *x, *w, *bias, *g;
} layer;

/* ------------------------------------------------------------------------------------------- the operands */

static hostile values_of(const layer *l)
{
    const conv_ref *s = &l->shape;
    const hostile_aim aim = l->c->aim;
    hostile h = {.structure = l->c->structure, .seed = l->c->seed, .swap = l->c->swap};
    h.rows[0] = aim == HOSTILE_FORWARD ? s->batch * l->in : aim == HOSTILE_DX ? s->batch * l->out : s->outputs;
    h.rows[1] = aim == HOSTILE_FORWARD ? s->outputs : s->channels / (aim == HOSTILE_DX ? s->groups : 1);
    h.k = aim == HOSTILE_FORWARD ? s->channels / s->groups : aim == HOSTILE_DX ? s->outputs : s->batch * l->out;
    return h;
}

/* Fills x or g with numbers of the structure: row i is a pixel, and index k is a channel. If `across` is true, row i
 * is a channel, and index k is a pixel. */
static void fill_image(float *data, const hostile *h, hostile_operand operand, bool across, const int64_t n[3])
{
    for (int64_t b = 0, at = 0; b < n[0]; b++) {
        for (int64_t c = 0; c < n[1]; c++) {
            for (int64_t i = 0; i < n[2]; i++) {
                const int64_t pixel = b * n[2] + i;
                data[at++] = across ? hostile_value(h, operand, c, pixel % h->k, pixel / h->k)
                                    : hostile_value(h, operand, pixel, c % h->k, c / h->k);
            }
        }
    }
}

static void fill_weights(layer *l, const hostile *h, bool across)
{
    const int64_t each = l->shape.channels / l->shape.groups;
    for (int64_t at = 0; at < l->nw; at++) {
        const int64_t o = at / l->taps / each, e = at / l->taps % each, tap = at % l->taps;
        l->w[at] = across ? hostile_value(h, HOSTILE_B, e, o, tap) : hostile_value(h, HOSTILE_B, o, e, tap);
    }
}

static void fill_operands(layer *l)
{
    const hostile h = values_of(l), plain = {.seed = l->c->seed + 1, .rows = {1, 1}, .k = INT64_MAX};
    const conv_ref *s = &l->shape;
    const int64_t of_x[3] = {s->batch, s->channels, l->in}, of_g[3] = {s->batch, s->outputs, l->out};
    const hostile_aim aim = l->c->aim;
    fill_image(l->x, aim == HOSTILE_DX ? &plain : &h, aim == HOSTILE_DW ? HOSTILE_B : HOSTILE_A, aim == HOSTILE_DW,
               of_x);
    fill_weights(l, aim == HOSTILE_DW ? &plain : &h, aim == HOSTILE_DX);
    fill_image(l->g, aim == HOSTILE_FORWARD ? &plain : &h, HOSTILE_A, aim == HOSTILE_DW, of_g);
    for (int64_t o = 0; o < s->outputs; o++)
        l->bias[o] = l->c->n[C_BIAS] ? hostile_value(&plain, HOSTILE_A, o, 7, 7) : 0;
}

static layer open_layer(const hostile_case *c)
{
    layer l = {.c = c};
    conv_ref *s = &l.shape;
    s->batch = c->n[C_BATCH];
    s->channels = c->n[C_CHANNELS];
    s->outputs = c->n[C_OUTPUTS];
    s->groups = c->n[C_GROUPS];
    for (int a = 0; a < 3; a++) {
        s->size[a] = c->n[C_SIZE + a];
        s->kernel[a] = c->n[C_KERNEL + a];
        s->stride[a] = c->n[C_STRIDE + a];
        s->padding[a] = c->n[C_PADDING + a];
    }
    conv_ref_result(s);
    l.in = conv_ref_pixels(s->size);
    l.out = conv_ref_pixels(s->result);
    l.taps = conv_ref_pixels(s->kernel);
    l.nx = s->batch * s->channels * l.in;
    l.nw = s->outputs * (s->channels / s->groups) * l.taps;
    l.ny = s->batch * s->outputs * l.out;
    l.x = hostile_floats(l.nx);
    l.w = hostile_floats(l.nw);
    l.g = hostile_floats(l.ny);
    l.bias = hostile_floats(s->outputs);
    fill_operands(&l);
    return l;
}

static void close_layer(layer *l)
{
    free(l->x);
    free(l->w);
    free(l->g);
    free(l->bias);
}

/* ---------------------------------------------------------------------------------------------- checks */

static void check_all(hostile_report *report, const char *name, const attn_tensor *got, const double *value,
                      const double *magnitude, double terms)
{
    const int64_t n = attn_tensor_size(got), row = attn_tensor_length(got, 0) > 0 ? n / attn_tensor_length(got, 0) : 1;
    const float *data = attn_tensor_data(got);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at[2] = {i / row, i % row};
        hostile_note(report, name, at, (double)data[i], value[i],
                     product_ref_share((double)data[i], value[i], magnitude[i], terms));
    }
}

static void add_bias(const layer *l, conv_ref_sums *s)
{
    for (int64_t i = 0; i < l->ny; i++) {
        const double bias = (double)l->bias[i / l->out % l->shape.outputs];
        s->y[i] += bias;
        s->y_abs[i] += fabs(bias);
    }
}

static void check_bias(const layer *l, const attn_tensor *got, hostile_report *report)
{
    for (int64_t o = 0; o < l->shape.outputs; o++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < l->shape.batch * l->out; i++) {
            const double g = (double)l->g[(i / l->out * l->shape.outputs + o) * l->out + i % l->out];
            sum += g;
            size += fabs(g);
        }
        const int64_t at[2] = {o, 0};
        const double value = (double)((const float *)attn_tensor_data(got))[o];
        hostile_note(report, "dbias", at, value, sum,
                     product_ref_share(value, sum, size, (double)(l->shape.batch * l->out)));
    }
}

static void check_layer(const layer *l, attn_tensor *const t[4], hostile_report *report)
{
    const conv_ref *s = &l->shape;
    conv_ref_sums sums = conv_ref_run(s, l->x, l->w, l->g);
    const int64_t taps = l->taps, bias = l->c->n[C_BIAS];
    add_bias(l, &sums);
    check_all(report, "y", t[3], sums.y, sums.y_abs, (double)(s->channels / s->groups * taps + bias));
    check_all(report, "dx", attn_tensor_grad(t[0]), sums.dx, sums.dx_abs, (double)(s->outputs / s->groups * taps));
    check_all(report, "dw", attn_tensor_grad(t[1]), sums.dw, sums.dw_abs, (double)(s->batch * l->out));
    if (bias)
        check_bias(l, attn_tensor_grad(t[2]), report);
    conv_ref_free(&sums);
}

/* --------------------------------------------------------------------------------------------- running */

static attn_conv settings(const layer *l)
{
    const int spatial = (int)l->c->n[C_SPATIAL];
    attn_conv conv = {.spatial = spatial, .groups = l->shape.groups};
    for (int a = 0; a < spatial; a++) {
        conv.stride[a] = l->shape.stride[3 - spatial + a];
        conv.padding[a] = l->shape.padding[3 - spatial + a];
    }
    return conv;
}

/* Makes a tensor of the shape [n0, n1, axes]. A convolution with fewer than three axes uses only the last ones. */
static attn_tensor *image(attn_tape *tape, const layer *l, int64_t n0, int64_t n1, const int64_t axes[3],
                          const float *data)
{
    const int spatial = (int)l->c->n[C_SPATIAL];
    int64_t shape[5] = {n0, n1};
    memcpy(shape + 2, axes + 3 - spatial, (size_t)spatial * sizeof *axes);
    return hostile_tensor(tape, 2 + spatial, shape, data);
}

static bool both_ways(const layer *l, attn_tape *tape, attn_tensor *t[4])
{
    const attn_conv conv = settings(l);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    t[3] = attn_convolve(tape, t[0], t[1], l->c->n[C_BIAS] ? t[2] : NULL, &conv);
    attn_tensor *g =
        t[3] ? attn_tape_tensor(tape, ATTN_F32, attn_tensor_rank(t[3]), attn_tensor_shape(t[3]), l->g) : NULL;
    return g && attn_backward_from(tape, t[3], g) == ATTN_OK;
}

bool hostile_run_convolution(attn_tape *tape, const hostile_case *c, hostile_report *report)
{
    layer l = open_layer(c);
    const conv_ref *s = &l.shape;
    attn_tensor *t[4] = {image(tape, &l, s->batch, s->channels, s->size, l.x),
                         image(tape, &l, s->outputs, s->channels / s->groups, s->kernel, l.w),
                         hostile_tensor(tape, 1, &s->outputs, l.bias), NULL};
    if (both_ways(&l, tape, t))
        check_layer(&l, t, report);
    else
        hostile_refused(report, tape);
    attn_tape_reset(tape, NULL);
    for (int i = 0; i < 3; i++)
        attn_tensor_destroy(t[i]);
    close_layer(&l);
    return report->broken == 0;
}
