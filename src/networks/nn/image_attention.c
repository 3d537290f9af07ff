/* SPDX-License-Identifier: MIT
 *
 * Implements stand-alone self-attention over images, global or in windows. Channels stay before the spatial axes,
 * because the attention engine reads heads, queries and a window's keys by strides. The engine adds the terms of
 * relative positions from tables. Neither copies of windows nor an array of scores are stored. */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"
#include "tensor/tape_state.h"

#include <math.h>

typedef attn_nn_image_attention_options options_of;

static int64_t channels(const options_of *o)
{
    return o->heads * o->mid;
}

/* Returns the number of rows of a table of relative positions: one for each possible distance between a query and
 * its keys. */
static int64_t table_rows(const options_of *o)
{
    int64_t reach = o->window ? o->window : o->max_positions;
    return o->window && o->border != ATTN_BORDER_SHIFT ? reach : 2 * reach - 1;
}

static const char *complaint(const options_of *o)
{
    if (o->in_channels < 1 || o->mid < 1 || o->heads < 1 || o->out_channels < 1 || o->stride < 0)
        return "channels, heads and stride must be positive";
    if (o->window < 0 || (o->window > 0 && o->window % 2 == 0))
        return "a window must have an odd number of taps";
    if (!o->window && o->relative && o->max_positions < 1)
        return "relative positions need max_positions";
    if (o->relative && (o->whole ? channels(o) : o->mid) % 2 != 0)
        return "relative positions need an even number of channels: half for rows, half for columns";
    if (o->relative && o->per_channel && !o->whole)
        return "heads of one channel cannot be halved; relative_span must be whole";
    if (!o->project && o->out_channels != channels(o))
        return "without the last projection the output channels must be heads * mid channels";
    return NULL;
}

static attn_tensor *table_init(attn_nn_builder *builder, const char *name, const options_of *o)
{
    int64_t shape[2] = {table_rows(o), (o->whole ? channels(o) : o->mid) / 2};
    attn_nn_push(builder, name);
    attn_tensor *table =
        attn_nn_parameter(builder, "weight", 2, shape, (attn_nn_initializer){.start = ATTN_INIT_NORMAL});
    attn_nn_pop(builder);
    return table;
}

void attn_nn_image_attention_init(attn_nn_image_attention *layer, attn_nn_builder *builder, const options_of *options)
{
    const char *wrong = complaint(options);
    *layer = (attn_nn_image_attention){.options = *options};
    if (wrong) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "%sself-attention over an image: %s (%lld heads of %lld channels, "
                   "window %lld, %lld in, %lld out)",
                   builder->prefix, wrong, (long long)options->heads, (long long)options->mid,
                   (long long)options->window, (long long)options->in_channels, (long long)options->out_channels);
        return;
    }
    attn__nn_pointwise_named(&layer->query, builder, "query", options->in_channels, channels(options), options->bias);
    attn__nn_pointwise_named(&layer->key, builder, "key", options->in_channels, channels(options), options->bias);
    attn__nn_pointwise_named(&layer->value, builder, "value", options->in_channels, channels(options), options->bias);
    if (options->project) {
        attn__nn_pointwise_named(&layer->wout, builder, "wout", channels(options), options->out_channels,
                                 options->bias);
    }
    if (options->relative) {
        layer->row = table_init(builder, "row_embedding", options);
        layer->col = table_init(builder, "col_embedding", options);
    }
}

/* -------------------------------------------------------------------------------------------- the problem */

/* Tells which channels belong to which head: the number of heads, the channels per head, the step from head to head,
 * and the step from channel to channel. */
typedef struct head_layout {
    int64_t heads, dim, head_step, dim_step;
} head_layout;

static head_layout layout_of(const options_of *o)
{
    if (o->per_channel)
        return (head_layout){channels(o), 1, 1, 1};
    return o->head_major ? (head_layout){o->heads, o->mid, o->mid, 1} : (head_layout){o->heads, o->mid, 1, o->heads};
}

enum { BATCH, HEAD, QUERY_Y, QUERY_X, KEY_Y, KEY_X, CONTRACT, VALUE, DIMS };

typedef struct sizes {
    int64_t batch, y, x, out_y, out_x, taps_y, taps_x, step;
} sizes;

static sizes sizes_of(const options_of *o, const attn_tensor *x)
{
    const int64_t *shape = attn_tensor_shape(x), step = o->window && o->stride ? o->stride : 1;
    sizes s = {.batch = shape[0], .y = shape[2], .x = shape[3], .step = step};
    s.out_y = (s.y + step - 1) / step;
    s.out_x = (s.x + step - 1) / step;
    s.taps_y = o->window ? o->window : s.y;
    s.taps_x = o->window ? o->window : s.x;
    return s;
}

static void describe(attn_problem *p, const options_of *o, const sizes *s)
{
    head_layout l = layout_of(o);
    int64_t all = channels(o), in = s->y * s->x, out = s->out_y * s->out_x, taps = s->taps_y * s->taps_x;
    *p = (attn_problem){.ndims = DIMS};
    p->dims[BATCH] = (attn_dim){.role = ATTN_ROLE_BATCH,
                                .n = s->batch,
                                .q = all * in,
                                .k = all * in,
                                .v = all * in,
                                .o = all * out,
                                .lse = l.heads * out,
                                .weights = l.heads * out * taps};
    p->dims[HEAD] = (attn_dim){.role = ATTN_ROLE_BATCH,
                               .n = l.heads,
                               .q = l.head_step * in,
                               .k = l.head_step * in,
                               .v = l.head_step * in,
                               .o = l.head_step * out,
                               .lse = out,
                               .weights = out * taps};
    p->dims[QUERY_Y] = (attn_dim){.role = ATTN_ROLE_QUERY,
                                  .n = s->out_y,
                                  .q = s->step * s->x,
                                  .o = s->out_x,
                                  .lse = s->out_x,
                                  .weights = s->out_x * taps};
    p->dims[QUERY_X] =
        (attn_dim){.role = ATTN_ROLE_QUERY, .n = s->out_x, .q = s->step, .o = 1, .lse = 1, .weights = taps};
    p->dims[KEY_Y] = (attn_dim){.role = ATTN_ROLE_KEY, .n = s->taps_y, .k = s->x, .v = s->x, .weights = s->taps_x};
    p->dims[KEY_X] = (attn_dim){.role = ATTN_ROLE_KEY, .n = s->taps_x, .k = 1, .v = 1, .weights = 1};
    p->dims[CONTRACT] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = l.dim, .q = l.dim_step * in, .k = l.dim_step * in};
    p->dims[VALUE] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = l.dim, .v = l.dim_step * in, .o = l.dim_step * out};
    for (int axis = 0; o->window && axis < 2; axis++) {
        p->windows[p->nwindows++] = (attn_window){.query_dim = QUERY_Y + axis,
                                                  .key_dim = KEY_Y + axis,
                                                  .size = axis ? s->x : s->y,
                                                  .step = s->step,
                                                  .offset = -(o->window / 2),
                                                  .border = o->border};
    }
}

/* Describes two tables of relative positions to the engine. The rows' table applies to the first half of a head's
 * channels, and the columns' table to the second half. */
static void describe_halves(attn_problem *p, const options_of *o)
{
    for (int axis = 0; axis < 2; axis++) {
        attn_relative *r = &p->relatives[p->nrelatives++];
        *r = (attn_relative){.query_dim = QUERY_Y + axis,
                             .key_dim = KEY_Y + axis,
                             .offset = table_rows(o) / 2,
                             .rows = table_rows(o),
                             .row_stride = o->mid / 2,
                             .begin = axis * (o->mid / 2),
                             .end = (axis + 1) * (o->mid / 2)};
        r->stride[CONTRACT] = 1;
    }
}

/* Describes two tables of relative positions that have all channels. set_tables sets the second half of the rows'
 * table and the first half of the columns' table to zero. */
static void describe_whole(attn_problem *p, const options_of *o)
{
    head_layout l = layout_of(o);
    for (int axis = 0; axis < 2; axis++) {
        attn_relative *r = &p->relatives[p->nrelatives++];
        *r = (attn_relative){.query_dim = QUERY_Y + axis,
                             .key_dim = KEY_Y + axis,
                             .offset = table_rows(o) / 2,
                             .rows = table_rows(o),
                             .row_stride = channels(o)};
        r->stride[HEAD] = l.head_step;
        r->stride[CONTRACT] = l.dim_step;
    }
}

static void set_tables(attn_attention *a, const attn_nn_image_attention *layer, attn_tape *tape)
{
    if (!layer->row || !layer->col)
        return;
    if (!layer->options.whole) {
        describe_halves(&a->problem, &layer->options);
        a->table[0] = layer->row;
        a->table[1] = layer->col;
        return;
    }
    attn_tensor *zeros = attn_tape_tensor(tape, attn_tensor_dtype(layer->row), 2, attn_tensor_shape(layer->row), NULL);
    describe_whole(&a->problem, &layer->options);
    a->table[0] = attn_concat(tape, (attn_tensor *[]){layer->row, zeros}, 2, 1);
    a->table[1] = attn_concat(tape, (attn_tensor *[]){zeros, layer->col}, 2, 1);
}

/* ---------------------------------------------------------------------------------------------- forward */

static bool accepts(const options_of *o, attn_tape *tape, const attn_tensor *x)
{
    if (!attn__nn_has_rank(tape, x, 4, "self-attention over an image: x"))
        return false;
    int64_t y = attn_tensor_length(x, 2), width = attn_tensor_length(x, 3);
    if (!o->window && o->relative && (y > o->max_positions || width > o->max_positions)) {
        attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
                   "self-attention over an image of %lld x %lld: relative positions support sides of at most %lld "
                   "(max_pos_embedding)",
                   (long long)y, (long long)width, (long long)o->max_positions);
        return false;
    }
    return true;
}

static attn_tensor *without_bias(const attn_nn_conv *conv, attn_tape *tape, attn_tensor *x)
{
    return attn_convolve(tape, x, conv->weight, NULL, &conv->geometry);
}

/* Applies the output projection `wout` to the attention's result o + b. o was computed from values without their bias
 * b. Because the weights sum to 1, the bias b can be added to the result. With the weight W and bias c of wout, wout(o
 * + b) = W o + (W b + c). This makes a zero border correct: with biases, the values of the border's pixels would be b,
 * but the engine's border has zeros. The keys' bias is left out, because it adds the same value to all scores of a
 * query, and softmax ignores this. */
static attn_tensor *project(const attn_nn_image_attention *layer, attn_tape *tape, attn_tensor *o)
{
    int64_t all = channels(&layer->options);
    attn_tensor *bias = layer->value.bias;
    if (!layer->options.project)
        return bias ? attn_add(tape, o, attn_reshape(tape, bias, 3, (int64_t[]){all, 1, 1})) : o;
    if (bias) {
        attn_tensor *w = attn_reshape(tape, layer->wout.weight, 2, (int64_t[]){-1, all});
        bias = attn_linear(tape, bias, w, layer->wout.bias, ATTN_ACTIVATION_IDENTITY);
        return bias ? attn_convolve(tape, o, layer->wout.weight, bias, &layer->wout.geometry) : NULL;
    }
    return attn_nn_conv_forward(&layer->wout, tape, o);
}

attn_tensor *attn_nn_image_attention_forward(const attn_nn_image_attention *layer, attn_tape *tape, attn_tensor *x,
                                             attn_tensor **weights)
{
    const options_of *o = &layer->options;
    if (!accepts(o, tape, x))
        return NULL;
    sizes s = sizes_of(o, x);
    attn_tensor *q = attn_nn_conv_forward(&layer->query, tape, x), *k = without_bias(&layer->key, tape, x);
    attn_tensor *v = without_bias(&layer->value, tape, x);
    if (!q || !k || !v)
        return NULL;
    attn_attention a = {.q = {q, 0},
                        .k = {k, 0},
                        .v = {v, 0},
                        .rank = 4,
                        .shape = {s.batch, channels(o), s.out_y, s.out_x},
                        .weights = weights,
                        .weights_rank = 6,
                        .weights_shape = {s.batch, layout_of(o).heads, s.out_y, s.out_x, s.taps_y, s.taps_x}};
    describe(&a.problem, o, &s);
    a.problem.scale = o->scale > 0 ? o->scale : 1 / sqrt((double)o->in_channels);
    a.problem.dtype = attn_tensor_dtype(q);
    set_tables(&a, layer, tape);
    if (a.problem.nrelatives && (!a.table[0] || !a.table[1]))
        return NULL;
    return project(layer, tape, attn_attend(tape, &a));
}
