/* SPDX-License-Identifier: MIT
 *
 * Computes the loss of a set of boxes. It has three terms: the weighted cross-entropy of the classes, the L1 distance
 * of assigned boxes, and their generalized intersection over union. */
#include "train/detection_loss.h"

#include "base/context.h"
#include "tensor/number.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"
#include "tensor/tensor.h"
#include "train/assignment.h"

#include <math.h>
#include <string.h>

/* Arrays and sizes of one call. `blocks` is the product of the lengths of the leading axes. Each block has its own
 * assignment of queries to objects. */
typedef struct set_loss {
    attn_context *context;
    attn_tape *tape;
    attn_tensor *logits, *boxes;
    const attn__targets *targets;
    attn__detection_loss_options options;
    int64_t blocks, queries, outputs, objects; /* outputs: number of classes, including the class "no object" */
    int64_t *query;                            /* [blocks][objects] */
    double *cost;                              /* [objects of one image][queries] */
} set_loss;

/* ------------------------------------------------------------------------------------------ assignment */

/* Returns the probability of a class for one query. The query's logits begin at element `row`. */
static double probability(const attn_tensor *logits, int64_t row, int64_t outputs, int32_t class)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < outputs; c++)
        largest = fmax(largest, attn__number(logits, row + c));
    for (int64_t c = 0; c < outputs; c++)
        sum += exp(attn__number(logits, row + c) - largest);
    return exp(attn__number(logits, row + class) - largest) / sum;
}

/* Queries are counted over all blocks and images, and objects over all images. */
static double cost_of(const set_loss *s, int64_t at, int64_t object)
{
    const double *target = s->targets->boxes + 4 * object;
    double box[4], distance = 0;
    for (int k = 0; k < 4; k++) {
        box[k] = attn__number(s->boxes, 4 * at + k);
        distance += fabs(box[k] - target[k]);
    }
    return s->options.l1 * distance - s->options.giou * attn__box_giou(box, target) -
           probability(s->logits, at * s->outputs, s->outputs, s->targets->classes[object]);
}

static attn_status assign_image(const set_loss *s, int64_t block, int64_t image)
{
    int64_t begin = s->targets->begin[image], n = s->targets->begin[image + 1] - begin;
    int64_t first = (block * s->targets->images + image) * s->queries;
    for (int64_t i = 0; i < n * s->queries; i++) {
        s->cost[i] = cost_of(s, first + i % s->queries, begin + i / s->queries);
        if (!isfinite(s->cost[i]))
            return attn__fail(s->context, ATTN_ERROR_ARGUMENT,
                              "detection loss: logits or box of query %lld of image %lld of the batch are not finite",
                              (long long)(i % s->queries), (long long)image);
    }
    return attn__assign(s->context, s->cost, n, s->queries, s->query + block * s->objects + begin);
}

static attn_status assign(set_loss *s)
{
    int64_t most = 0;
    for (int64_t i = 0; i < s->targets->images; i++) {
        int64_t n = s->targets->begin[i + 1] - s->targets->begin[i];
        most = n > most ? n : most;
    }
    s->cost = attn__alloc(s->context, attn__size_mul((size_t)(most * s->queries + 1), sizeof *s->cost));
    attn_status status = s->cost ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < s->blocks * s->targets->images && status == ATTN_OK; i++)
        status = assign_image(s, i / s->targets->images, i % s->targets->images);
    attn__free(s->context, s->cost);
    return status;
}

/* ----------------------------------------------------------------------------------------------- terms */

/* Returns the row of the query that is assigned to object i. Rows count queries over all blocks and images, and i
 * counts objects over all blocks and images. */
static int64_t row_of(const set_loss *s, int64_t i)
{
    int64_t block = i / s->objects, object = i % s->objects, image = 0;
    while (s->targets->begin[image + 1] <= object)
        image++;
    return (block * s->targets->images + image) * s->queries + s->query[i];
}

/* Computes the mean of -log p, weighted by class, where p is the probability of the right class. The mean is the sum of
 * two cross-entropies: of the queries that are assigned to objects, and of all other queries. */
static attn_tensor *class_term(const set_loss *s)
{
    enum { LEFT_OUT = -1 };
    int64_t rows = s->blocks * s->targets->images * s->queries;
    attn_tensor *found = attn_tape_tensor(s->tape, ATTN_I32, 1, &rows, NULL);
    attn_tensor *others = attn_tape_tensor(s->tape, ATTN_I32, 1, &rows, NULL);
    if (!found || !others)
        return NULL;
    int32_t *class = attn_tensor_data(found), *none = attn_tensor_data(others);
    for (int64_t i = 0; i < rows; i++) {
        class[i] = LEFT_OUT;
        none[i] = (int32_t)s->outputs - 1;
    }
    for (int64_t i = 0; i < s->blocks * s->objects; i++) {
        int64_t row = row_of(s, i);
        class[row] = s->targets->classes[i % s->objects];
        none[row] = LEFT_OUT;
    }
    attn_cross_entropy_options how = {
        .use_ignore_index = true, .ignore_index = LEFT_OUT, .divisor = s->options.weights};
    attn_tensor *term = attn_cross_entropy(s->tape, s->logits, found, &how);
    how.divisor /= s->options.no_object;
    return attn_add(s->tape, term, attn_cross_entropy(s->tape, s->logits, others, &how));
}

static bool box_terms(const set_loss *s, attn__detection_terms *terms)
{
    int64_t n = s->blocks * s->objects, all = s->blocks * s->targets->images * s->queries;
    attn_tensor *rows = attn_tape_tensor(s->tape, ATTN_I32, 1, &n, NULL);
    attn_tensor *target = attn_tape_tensor(s->tape, attn_tensor_dtype(s->boxes), 2, (int64_t[]){n, 4}, NULL);
    if (!rows || !target)
        return false;
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)attn_tensor_data(rows))[i] = (int32_t)row_of(s, i);
        for (int k = 0; k < 4; k++)
            attn__set_number(target, 4 * i + k, s->targets->boxes[4 * (i % s->objects) + k]);
    }
    attn_tensor *flat = attn_reshape(s->tape, s->boxes, 2, (int64_t[]){all, 4});
    attn_tensor *boxes = attn_index_select(s->tape, flat, rows);
    terms->l1 = attn_box_loss(s->tape, boxes, target, s->options.l1 / s->options.objects, 0);
    terms->giou = attn_box_loss(s->tape, boxes, target, 0, s->options.giou / s->options.objects);
    return terms->l1 && terms->giou;
}

static attn_tensor *combine(const set_loss *s, attn__detection_terms *terms)
{
    attn__detection_terms own;
    terms = terms ? terms : &own;
    terms->classes = class_term(s);
    return box_terms(s, terms) ? attn_add(s->tape, terms->classes, attn_add(s->tape, terms->l1, terms->giou)) : NULL;
}

/* -------------------------------------------------------------------------------------------- checking */

static attn_status check_shapes(const set_loss *s)
{
    int rank = attn_tensor_rank(s->logits);
    bool fits = rank >= 3 && attn_tensor_rank(s->boxes) == rank && attn_tensor_length(s->boxes, -1) == 4 &&
                attn_tensor_length(s->logits, -1) >= 2 && attn_tensor_length(s->logits, -3) == s->targets->images;
    for (int i = 0; i < rank - 1 && fits; i++)
        fits = attn_tensor_length(s->logits, i) == attn_tensor_length(s->boxes, i);
    char logits[ATTN__SHAPE_TEXT], boxes[ATTN__SHAPE_TEXT];
    return fits ? ATTN_OK
                : attn__fail(
                      s->context, ATTN_ERROR_SHAPE,
                      "detection loss: logits %s, boxes %s; expected logits [...,B,Q,C+1] and boxes [...,B,Q,4] of "
                      "B = %lld images",
                      attn__shape_text(s->logits, logits), attn__shape_text(s->boxes, boxes),
                      (long long)s->targets->images);
}

static attn_status check_targets(const set_loss *s)
{
    for (int64_t i = 0; i < s->targets->images; i++) {
        int64_t n = s->targets->begin[i + 1] - s->targets->begin[i];
        if (n > s->queries)
            return attn__fail(
                s->context, ATTN_ERROR_ARGUMENT,
                "detection loss: image %lld of the batch has %lld objects, more than the model's %lld queries",
                (long long)i, (long long)n, (long long)s->queries);
    }
    for (int64_t i = 0; i < s->objects; i++) {
        const double *box = s->targets->boxes + 4 * i;
        if (s->targets->classes[i] < 0 || s->targets->classes[i] >= s->outputs - 1)
            return attn__fail(s->context, ATTN_ERROR_ARGUMENT,
                              "detection loss: the class of object %lld is %d; it must be 0 to %lld", (long long)i,
                              (int)s->targets->classes[i], (long long)s->outputs - 2);
        if (!(box[2] > 0 && box[3] > 0))
            return attn__fail(s->context, ATTN_ERROR_ARGUMENT,
                              "detection loss: target box %lld is %g x %g; width and height must be above 0",
                              (long long)i, box[2], box[3]);
    }
    return ATTN_OK;
}

void attn__detection_divisors(attn__detection_loss_options *options, int64_t queries, int64_t objects)
{
    double no_object = options->no_object > 0 ? options->no_object : 0.1;
    options->weights = (double)objects + no_object * (double)(queries - objects);
    options->objects = objects > 0 ? (double)objects : 1;
}

static attn_status begin(set_loss *s, const attn__detection_loss_options *options)
{
    if (!s->logits || !s->boxes)
        return attn__result_status(s->context, NULL);
    attn_status status = check_shapes(s);
    if (status != ATTN_OK)
        return status;
    attn__detection_loss_options o = options ? *options : (attn__detection_loss_options){0}, own = o;
    s->queries = attn_tensor_length(s->logits, -2);
    s->outputs = attn_tensor_length(s->logits, -1);
    s->objects = s->targets->begin[s->targets->images];
    int64_t rows = s->targets->images * s->queries;
    s->blocks = rows > 0 ? attn_tensor_size(s->logits) / s->outputs / rows : 0;
    attn__detection_divisors(&own, rows, s->objects);
    s->options = (attn__detection_loss_options){.no_object = o.no_object > 0 ? o.no_object : 0.1,
                                                .l1 = o.l1 > 0 ? o.l1 : 5,
                                                .giou = o.giou > 0 ? o.giou : 2,
                                                .weights = o.weights > 0 ? o.weights : own.weights,
                                                .objects = o.objects > 0 ? o.objects : own.objects};
    return check_targets(s);
}

attn_tensor *attn__detection_loss(attn_tape *tape, attn_tensor *logits, attn_tensor *boxes,
                                  const attn__targets *targets, const attn__detection_loss_options *options,
                                  attn__detection_terms *terms)
{
    attn_context *context = attn_tape_context(tape);
    set_loss s = {.context = context, .tape = tape, .logits = logits, .boxes = boxes, .targets = targets};
    if (begin(&s, options) != ATTN_OK)
        return NULL;
    size_t bytes = attn__size_mul((size_t)(s.blocks * s.objects) + 1, sizeof *s.query);
    s.query = attn__alloc(context, bytes);
    attn_status status = s.query ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && options && options->query)
        memcpy(s.query, options->query, bytes - sizeof *s.query);
    else if (status == ATTN_OK)
        status = assign(&s);
    attn_tensor *loss = status == ATTN_OK ? combine(&s, terms) : NULL;
    attn__free(context, s.query);
    return loss;
}
