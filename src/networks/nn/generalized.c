/* SPDX-License-Identifier: MIT
 *
 * Implements generalized attention. A score is a sum of terms of the key's content and of the relative position. A term
 * uses the query, or a learned vector in place of the query.
 *
 * The terms of relative positions are tables of the attention engine: one table for columns and one for rows. The query
 * for content (q + u) and the query for positions (q + v) can differ. If they differ, they are concatenated along the
 * channels. Only the tables use the second half of the channels, so the keys are zero in that half. */
#include "nn/check.h"

#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"
#include "tensor/number.h"

#include <math.h>

enum {
    CONTENT = ATTN_FACTOR_QUERY_KEY | ATTN_FACTOR_KEY_ONLY,
    PLACE = ATTN_FACTOR_QUERY_RELPOS | ATTN_FACTOR_RELPOS_ONLY,
    WITH_QUERY = ATTN_FACTOR_QUERY_KEY | ATTN_FACTOR_QUERY_RELPOS
};

static void parameters_init(attn_nn_generalized_attention *layer, attn_nn_builder *builder, int64_t dim)
{
    int64_t all = layer->heads * layer->dim_head;
    /* initial values of u and v, the learned vectors in place of the query, as in mmcv */
    attn_nn_initializer stand_in = {.start = ATTN_INIT_UNIFORM, .scale = 1 / sqrt(2 * (double)layer->dim_head)};
    if (layer->factors & WITH_QUERY)
        attn__nn_pointwise_named(&layer->query, builder, "query_conv", dim, all, false);
    if (layer->factors & CONTENT)
        attn__nn_pointwise_named(&layer->key, builder, "key_conv", dim, all, false);
    attn__nn_pointwise_named(&layer->value, builder, "value_conv", dim, all, false);
    if (layer->factors & PLACE) {
        attn__nn_linear_named(&layer->fc_x, builder, "appr_geom_fc_x", layer->position_dim / 2, all, false);
        attn__nn_linear_named(&layer->fc_y, builder, "appr_geom_fc_y", layer->position_dim / 2, all, false);
    }
    if (layer->factors & ATTN_FACTOR_KEY_ONLY)
        layer->u = attn_nn_parameter(builder, "appr_bias", 1, &all, stand_in);
    if (layer->factors & ATTN_FACTOR_RELPOS_ONLY)
        layer->v = attn_nn_parameter(builder, "geom_bias", 1, &all, stand_in);
    attn__nn_pointwise_named(&layer->proj, builder, "proj_conv", all, dim, true);
    layer->gamma =
        attn_nn_parameter(builder, "gamma", 1, (int64_t[]){1}, (attn_nn_initializer){.start = ATTN_INIT_ZEROS});
}

/* Records an error if a number does not fit. Returns whether it fits. */
static bool demand(attn_nn_builder *builder, bool fits, const char *what, int64_t found, const char *expected)
{
    if (!fits)
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%sgeneralized attention: the %s is %lld; expected %s",
                   builder->prefix, what, (long long)found, expected);
    return fits;
}

void attn_nn_generalized_attention_init(attn_nn_generalized_attention *layer, attn_nn_builder *builder,
                                        const attn_nn_generalized_attention_options *options)
{
    const attn_nn_generalized_attention_options *o = options;
    *layer = (attn_nn_generalized_attention){.heads = o->heads,
                                             .factors = o->factors ? o->factors : CONTENT | PLACE,
                                             .magnitude = o->magnitude > 0 ? o->magnitude : 1};
    layer->dim_head = o->dim_head ? o->dim_head : o->heads > 0 ? o->dim / o->heads : 0;
    layer->position_dim = o->position_dim ? o->position_dim : o->dim - o->dim % 4;
    bool places = !(layer->factors & PLACE) || (layer->position_dim > 0 && layer->position_dim % 4 == 0);
    const char *at_least = "at least 1";
    if (demand(builder, o->dim >= 1, "number of channels", o->dim, at_least) &&
        demand(builder, o->heads >= 1, "number of heads", o->heads, at_least) &&
        demand(builder, layer->dim_head >= 1, "number of channels of a head", layer->dim_head, at_least) &&
        demand(builder, places, "number of sines (position_dim)", layer->position_dim, "a positive multiple of 4"))
        parameters_init(layer, builder, o->dim);
}

/* -------------------------------------------------------------------------------------------- positions */

/* Returns the sines and cosines of all relative distances. Row r of the table is for key - query = r - (n - 1). The
 * angles are those of query - key. As in mmcv, the base of the wavelengths is 1000 instead of 10000. */
static attn_tensor *distance_sines(const attn_nn_generalized_attention *layer, attn_tape *tape, attn_dtype dtype,
                                   int64_t n)
{
    int64_t quarter = layer->position_dim / 4;
    attn_tensor *table = attn_tape_tensor(tape, dtype, 2, (int64_t[]){2 * n - 1, 2 * quarter}, NULL);
    for (int64_t r = 0; table && r < 2 * n - 1; r++) {
        for (int64_t j = 0; j < quarter; j++) {
            double angle = (double)(n - 1 - r) * layer->magnitude / pow(1000, (double)j / (double)quarter);
            attn__set_number(table, r * 2 * quarter + j, sin(angle));
            attn__set_number(table, r * 2 * quarter + quarter + j, cos(angle));
        }
    }
    return table;
}

/* [2n-1, H*Dh] */
static attn_tensor *table_of(const attn_nn_generalized_attention *layer, attn_tape *tape, const attn_nn_linear *fc,
                             attn_dtype dtype, int64_t n)
{
    attn_tensor *sines = distance_sines(layer, tape, dtype, n);
    return attn_affine(tape, attn_nn_linear_forward(fc, tape, sines), sqrt(0.5), 0);
}

/* -------------------------------------------------------------------------------------------- operands */

/* Returns the queries of a term: q [B,H,Dh,N], plus stand_in if stand_in is not NULL. If q is NULL, returns stand_in
 * [1,H,Dh,1], which all positions share. */
static attn_tensor *asking(const attn_nn_generalized_attention *layer, attn_tape *tape, attn_tensor *q,
                           attn_tensor *stand_in)
{
    int64_t shape[4] = {1, layer->heads, layer->dim_head, 1};
    attn_tensor *constant = stand_in ? attn_reshape(tape, stand_in, 4, shape) : NULL;
    if (stand_in && !constant)
        return NULL;
    return q && constant ? attn_add(tape, q, constant) : q ? q : constant;
}

typedef struct operands {
    attn_tensor *q, *k, *v;
    bool split; /* true: the queries for content and for positions differ; each uses one half of the channels */
} operands;

/* Appends Dh zero channels to the Dh channels of each head. Returns [B,H,2*Dh,N]. */
static attn_tensor *beside_zeros(attn_tape *tape, attn_tensor *x)
{
    attn_tensor *zeros =
        x ? attn_tape_tensor(tape, attn_tensor_dtype(x), attn_tensor_rank(x), attn_tensor_shape(x), NULL) : NULL;
    return attn_concat(tape, (attn_tensor *[]){x, zeros}, 2, 2);
}

/* Broadcasts x, a query that all positions share, to the shape of `like`. */
static attn_tensor *spread(attn_tape *tape, attn_tensor *x, const attn_tensor *like)
{
    return attn_add(
        tape, attn_tape_tensor(tape, attn_tensor_dtype(like), attn_tensor_rank(like), attn_tensor_shape(like), NULL),
        x);
}

/* Concatenates the query for content and the query for positions. If only one of the two is shared by all positions,
 * it is broadcast first. */
static attn_tensor *both_queries(const attn_nn_generalized_attention *layer, attn_tape *tape, attn_tensor *content,
                                 attn_tensor *place)
{
    if (!content || !place)
        return NULL;
    bool content_asks = layer->factors & ATTN_FACTOR_QUERY_KEY, place_asks = layer->factors & ATTN_FACTOR_QUERY_RELPOS;
    attn_tensor *both[2] = {content_asks || !place_asks ? content : spread(tape, content, place),
                            place_asks || !content_asks ? place : spread(tape, place, content)};
    return attn_concat(tape, both, 2, 2);
}

static attn_tensor *heads_of(const attn_nn_generalized_attention *layer, attn_tape *tape, const attn_nn_conv *conv,
                             attn_tensor *x)
{
    attn_tensor *y = attn_nn_conv_forward(conv, tape, x);
    const int64_t *n = attn_tensor_shape(x);
    return y ? attn_reshape(tape, y, 4, (int64_t[]){n[0], layer->heads, layer->dim_head, n[2] * n[3]}) : NULL;
}

static bool operands_make(const attn_nn_generalized_attention *layer, attn_tape *tape, attn_tensor *x, operands *a)
{
    unsigned f = layer->factors;
    attn_tensor *q = f & WITH_QUERY ? heads_of(layer, tape, &layer->query, x) : NULL;
    if ((f & WITH_QUERY) && !q)
        return false;
    attn_tensor *content = f & CONTENT ? asking(layer, tape, f & ATTN_FACTOR_QUERY_KEY ? q : NULL, layer->u) : NULL;
    attn_tensor *place = f & PLACE ? asking(layer, tape, f & ATTN_FACTOR_QUERY_RELPOS ? q : NULL, layer->v) : NULL;
    *a = (operands){.q = content ? content : place, .v = heads_of(layer, tape, &layer->value, x)};
    if (f & CONTENT) {
        a->k = heads_of(layer, tape, &layer->key, x);
        /* Only the tables contribute to the scores. All keys are therefore one zero element, which is read with strides
     * of 0. */
    } else {
        a->k = attn_tape_tensor(tape, attn_tensor_dtype(x), 1, (int64_t[]){1}, NULL);
    }
    if (content && place && content != place) {
        a->split = true;
        a->q = both_queries(layer, tape, content, place);
        a->k = beside_zeros(tape, a->k);
    }
    return a->q && a->k && a->v && !((f & CONTENT) && !content) && !((f & PLACE) && !place);
}

/* -------------------------------------------------------------------------------------------- problem */

enum { BATCH, HEAD, QUERY_Y, QUERY_X, KEY_Y, KEY_X, CHANNEL, VALUE, DIMS };

/* Describes the attention to the engine. If `alone` is true, the result is the same for all queries of an image, so
 * only one query is computed. */
static void describe(attn_problem *p, const attn_nn_generalized_attention *layer, const operands *a,
                     const int64_t shape[4], bool alone)
{
    int64_t n = shape[2] * shape[3], width = shape[3], h = layer->heads, d = layer->dim_head;
    int64_t c = a->split ? 2 * d : d, asked = alone ? 1 : n;
    bool spread = attn_tensor_length(a->q, 3) == 1 && n > 1, has_keys = layer->factors & CONTENT;
    int64_t qn = spread ? 1 : n, kn = has_keys ? n : 0, key = has_keys ? 1 : 0;
    *p = (attn_problem){.ndims = DIMS, .scale = 1};
    p->dims[BATCH] = (attn_dim){.role = ATTN_ROLE_BATCH,
                                .n = shape[0],
                                .q = attn_tensor_length(a->q, 0) == 1 ? 0 : h * c * qn,
                                .k = h * c * kn,
                                .v = h * d * n,
                                .o = h * d * asked,
                                .lse = h * asked};
    p->dims[HEAD] =
        (attn_dim){.role = ATTN_ROLE_BATCH, .n = h, .q = c * qn, .k = c * kn, .v = d * n, .o = d * asked, .lse = asked};
    p->dims[QUERY_Y] = (attn_dim){
        .role = ATTN_ROLE_QUERY, .n = alone ? 1 : shape[2], .q = spread ? 0 : width, .o = width, .lse = width};
    p->dims[QUERY_X] =
        (attn_dim){.role = ATTN_ROLE_QUERY, .n = alone ? 1 : width, .q = spread ? 0 : 1, .o = 1, .lse = 1};
    p->dims[KEY_Y] = (attn_dim){.role = ATTN_ROLE_KEY, .n = shape[2], .k = key * width, .v = width};
    p->dims[KEY_X] = (attn_dim){.role = ATTN_ROLE_KEY, .n = width, .k = key, .v = 1};
    p->dims[CHANNEL] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = c, .q = qn, .k = kn};
    p->dims[VALUE] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = d, .v = n, .o = asked};
    int64_t weights = 1;
    for (int i = KEY_X; i >= BATCH; i--) { /* [B,H,Y,X,Y,X] */
        p->dims[i].weights = weights;
        weights *= p->dims[i].n;
    }
}

/* An axis of length 1 needs no table: its only distance would add the same value to all scores of a query, and softmax
 * ignores this. */
static bool add_tables(attn_attention *a, const attn_nn_generalized_attention *layer, attn_tape *tape,
                       const operands *o, const int64_t shape[4])
{
    for (int axis = 0; axis < 2; axis++) {
        int64_t n = shape[2 + axis];
        if (n == 1)
            continue;
        int i = a->problem.nrelatives++;
        attn_relative *r = &a->problem.relatives[i];
        *r = (attn_relative){.query_dim = QUERY_Y + axis,
                             .key_dim = KEY_Y + axis,
                             .offset = n - 1,
                             .rows = 2 * n - 1,
                             .row_stride = layer->heads * layer->dim_head};
        r->stride[HEAD] = layer->dim_head;
        r->stride[CHANNEL] = 1;
        if (o->split) {
            r->begin = layer->dim_head;
            r->end = 2 * layer->dim_head;
        }
        a->table[i] = table_of(layer, tape, axis ? &layer->fc_x : &layer->fc_y, attn_tensor_dtype(o->q), n);
        if (!a->table[i])
            return false;
    }
    return true;
}

static attn_tensor *attend(const attn_nn_generalized_attention *layer, attn_tape *tape, attn_tensor *x,
                           const operands *o, attn_tensor **weights)
{
    const int64_t *shape = attn_tensor_shape(x);
    bool alone = layer->factors == ATTN_FACTOR_KEY_ONLY;
    int64_t asked[2] = {alone ? 1 : shape[2], alone ? 1 : shape[3]};
    attn_attention a = {.q = {o->q, 0},
                        .k = {o->k, 0},
                        .v = {o->v, 0},
                        .rank = 4,
                        .shape = {shape[0], layer->heads * layer->dim_head, asked[0], asked[1]},
                        .weights = weights,
                        .weights_rank = 6,
                        .weights_shape = {shape[0], layer->heads, asked[0], asked[1], shape[2], shape[3]}};
    describe(&a.problem, layer, o, shape, alone);
    a.problem.dtype = attn_tensor_dtype(x);
    if ((layer->factors & PLACE) && !add_tables(&a, layer, tape, o, shape))
        return NULL;
    return attn_attend(tape, &a);
}

attn_tensor *attn_nn_generalized_attention_forward(const attn_nn_generalized_attention *layer, attn_tape *tape,
                                                   attn_tensor *x, attn_tensor **weights)
{
    operands o;
    if (!attn__nn_has_rank(tape, x, 4, "generalized attention: x") || !operands_make(layer, tape, x, &o))
        return NULL;
    /* If ATTN_FACTOR_KEY_ONLY is the only factor, attend() returns one vector per image. The projection of that
     * vector is cheap. */
    attn_tensor *y = attn_nn_conv_forward(&layer->proj, tape, attend(layer, tape, x, &o, weights));
    if (!y)
        return NULL;
    /* gamma is broadcast to the channels before the multiplication. Its gradient, a sum of values of both signs, is
     * then summed in two steps, which causes less rounding error than one long sum. */
    attn_tensor *zeros =
        attn_tape_tensor(tape, attn_tensor_dtype(y), 3, (int64_t[]){attn_tensor_length(y, 1), 1, 1}, NULL);
    return attn_add(tape, x, attn_mul(tape, y, attn_add(tape, zeros, layer->gamma)));
}
