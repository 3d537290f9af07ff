/* SPDX-License-Identifier: MIT
 *
 * Computes the vectors of texts. Texts are sorted by length, and packed one after another without padding. */
#include "apps/encoder/encoder.h"

#include "base/context.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "models/kind.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 1024 }; /* more is not faster and needs more memory */

/* ------------------------------------------------------------------------------------------------ pieces */

int64_t attn__encoder_piece_size(const attn__encoder_piece *piece)
{
    return piece->n + (piece->part ? 2 : 0);
}

int64_t attn__encoder_piece_ids(const attn_encoder_text *text, const attn__encoder_piece *piece, int32_t *ids)
{
    int64_t first = piece->part ? 1 : 0;
    memcpy(ids + first, text->ids + piece->begin, (size_t)piece->n * sizeof *ids);
    if (piece->part) {
        ids[0] = text->ids[0];
        ids[piece->n + 1] = text->ids[text->n - 1];
    }
    return piece->n + 2 * first;
}

static int64_t windows_of(const attn_encoder *encoder, const attn_encoder_text *text)
{
    int64_t most = encoder->info.max_length - 2, residues = text->n - 2;
    if (!encoder->info.protein || text->n <= encoder->info.max_length || most < 2)
        return 1;
    return 1 + attn__ceil_div(residues - most, most / 2);
}

/* Windows overlap by half, but the last one ends with the text. */
static int64_t cut(const attn_encoder *encoder, const attn_encoder_text *text, int64_t index,
                   attn__encoder_piece *pieces)
{
    int64_t count = windows_of(encoder, text), most = encoder->info.max_length - 2, residues = text->n - 2;
    bool protein = encoder->info.protein;
    int64_t skip = attn__min(protein ? 1 : text->skip, text->n);
    if (count == 1) {
        *pieces = (attn__encoder_piece){
            .text = index, .n = text->n, .keep = skip, .kept = protein ? attn__max(text->n - 1, skip) : text->n};
        return 1;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = i + 1 < count ? i * (most / 2) : residues - most;
        int64_t next = i + 2 < count ? (i + 1) * (most / 2) : residues - most;
        int64_t end = i + 1 < count ? (next + begin + most) / 2 : residues; /* the middle of the overlap */
        /* token 0 of the text is <cls>, so that residue r is token r + 1, of the text and of the window alike */
        pieces[i] = (attn__encoder_piece){.text = index,
                                          .begin = begin + 1,
                                          .n = most,
                                          .keep = kept - begin + 1,
                                          .kept = end - begin + 1,
                                          .row = kept,
                                          .part = true};
        kept = end;
    }
    return count;
}

attn_status attn__encoder_pieces(const attn_encoder *encoder, const attn_encoder_text *texts, int64_t n,
                                 attn__encoder_piece **pieces, int64_t *npieces)
{
    int64_t count = 0;
    *npieces = 0;
    for (int64_t i = 0; i < n; i++) {
        if (texts[i].n < 1 || (encoder->info.protein && texts[i].n < 3))
            return attn__fail(encoder->context, ATTN_ERROR_ARGUMENT, "text %lld has no tokens", (long long)i + 1);
        count += windows_of(encoder, &texts[i]);
    }
    *pieces = attn__alloc(encoder->context, attn__size_mul((size_t)count, sizeof **pieces));
    if (!*pieces)
        return count > 0 ? ATTN_ERROR_MEMORY : ATTN_OK;
    for (int64_t i = 0; i < n; i++)
        *npieces += cut(encoder, &texts[i], i, *pieces + *npieces);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ the model */

attn_tensor *attn__encoder_forward(attn_encoder *encoder, const int32_t *ids, const int32_t *types, int64_t n,
                                   const int32_t *offsets, int64_t texts, const char *output)
{
    attn_tape_reset(encoder->tape, &(attn_tape_options){0});
    attn_named_list inputs = {.context = encoder->context}, outputs = inputs;
    attn_tensor *tokens = attn_tape_tensor(encoder->tape, ATTN_I32, 2, (int64_t[]){1, n}, ids), *result = NULL;
    attn_tensor *segments = types ? attn_tape_tensor(encoder->tape, ATTN_I32, 2, (int64_t[]){1, n}, types) : NULL;
    attn_tensor *bounds =
        offsets ? attn_tape_tensor(encoder->tape, ATTN_I32, 1, (int64_t[]){texts + 1}, offsets) : NULL;
    bool made = tokens && (!types || segments) && (!offsets || bounds) &&
                attn_named_add(&inputs, "tokens", tokens) == ATTN_OK &&
                (!types || attn_named_add(&inputs, "segments", segments) == ATTN_OK) &&
                (!offsets || attn_named_add(&inputs, "offsets", bounds) == ATTN_OK) &&
                attn_named_add(&outputs, output, NULL) == ATTN_OK;
    if (made && attn_model_forward(encoder->model, encoder->tape, &inputs, &outputs) == ATTN_OK)
        result = attn_named_find(&outputs, output);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    return result;
}

/* ------------------------------------------------------------------------------------------------ pooling */

typedef struct run {
    attn_encoder *encoder;
    const attn_encoder_text *texts;
    int64_t n, dim;
    attn_pool pool;
    attn__encoder_piece *pieces;
    int64_t npieces;
    int64_t *rows; /* [n + 1]: the first row of each text in the results */
    double *sums;  /* [n,D] sums of MEAN; NULL for other pools */
    int32_t *ids, *types, *offsets;
    float *vectors;
    /* the pack that is pooled */
    const float *hidden;
    int64_t first;
} run;

static void add_rows(double *sums, const float *x, int64_t rows, int64_t dim)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            sums[d] += (double)x[r * dim + d];
}

static void take_largest(float *to, const float *x, int64_t rows, int64_t dim)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            to[d] = to[d] > x[r * dim + d] ? to[d] : x[r * dim + d];
}

/* Adds piece i of the pack to the results of its text. */
static void pool_piece(void *user, int64_t i, int thread)
{
    const run *r = user;
    const attn__encoder_piece *piece = &r->pieces[r->first + i];
    const float *x = r->hidden + (int64_t)r->offsets[i] * r->dim;
    const int64_t size = attn__encoder_piece_size(piece), kept = piece->kept - piece->keep;
    float *to = r->vectors + r->rows[piece->text] * r->dim;
    bool last = !piece->part || piece->begin + piece->n == r->texts[piece->text].n - 1;
    (void)thread;
    switch (r->pool) {
    case ATTN_POOL_CLS:
        if (piece->row == 0) /* of a long protein the first window's */
            memcpy(to, x, (size_t)r->dim * sizeof *to);
        break;
    case ATTN_POOL_LAST:
        if (last)
            memcpy(to, x + (size - 1) * r->dim, (size_t)r->dim * sizeof *to);
        break;
    case ATTN_POOL_MAX:
        take_largest(to, x + piece->keep * r->dim, kept, r->dim);
        break;
    case ATTN_POOL_NONE:
        memcpy(to + piece->row * r->dim, x + piece->keep * r->dim, (size_t)(kept * r->dim) * sizeof *to);
        break;
    default:
        add_rows(r->sums + piece->text * r->dim, x + piece->keep * r->dim, kept, r->dim);
    }
}

/* Returns the number of tokens of a text that are pooled. */
static int64_t pooled_of(const attn_encoder *encoder, const attn_encoder_text *text)
{
    return encoder->info.protein ? attn__max(text->n - 2, 0) : text->n - attn__min(text->skip, text->n);
}

static void finish(const run *r, attn_normalize normalize)
{
    for (int64_t i = 0; i < r->n && r->pool == ATTN_POOL_MEAN; i++) {
        double count = (double)attn__max(pooled_of(r->encoder, &r->texts[i]), 1);
        for (int64_t d = 0; d < r->dim; d++)
            r->vectors[i * r->dim + d] = (float)(r->sums[i * r->dim + d] / count);
    }
    for (int64_t row = 0; row < r->rows[r->n] && normalize == ATTN_NORMALIZE_YES; row++) {
        double sum = 0;
        float *x = r->vectors + row * r->dim;
        for (int64_t d = 0; d < r->dim; d++)
            sum += (double)x[d] * (double)x[d];
        double length = sqrt(sum) > 1e-12 ? sqrt(sum) : 1e-12;
        for (int64_t d = 0; d < r->dim; d++)
            x[d] = (float)((double)x[d] / length);
    }
}

/* ------------------------------------------------------------------------------------------------ packs */

/* Longer pieces first; among equals, in the order of the texts. */
static int by_size(const void *a, const void *b)
{
    const attn__encoder_piece *x = a, *y = b;
    int64_t nx = attn__encoder_piece_size(x), ny = attn__encoder_piece_size(y);
    if (nx != ny)
        return nx > ny ? -1 : 1;
    return x->text != y->text ? (x->text < y->text ? -1 : 1) : (x->row < y->row ? -1 : x->row > y->row);
}

/* Runs `count` pieces from r->first on. */
static attn_status run_pack(run *r, int64_t count, bool typed)
{
    int64_t tokens = 0;
    bool parts = false;
    for (int64_t i = 0; i < count; i++) {
        const attn__encoder_piece *piece = &r->pieces[r->first + i];
        const attn_encoder_text *text = &r->texts[piece->text];
        r->offsets[i] = (int32_t)tokens;
        for (int64_t t = 0; typed && t < piece->n; t++)
            r->types[tokens + t] = text->types ? text->types[piece->begin + t] : 0;
        tokens += attn__encoder_piece_ids(text, piece, r->ids + tokens);
        parts = parts || piece->part;
    }
    r->offsets[count] = (int32_t)tokens;
    attn_tensor *out =
        attn__encoder_forward(r->encoder, r->ids, typed ? r->types : NULL, tokens, r->offsets, count, "out");
    if (!out)
        return attn__result_status(r->encoder->context, NULL);
    r->hidden = attn_tensor_data(out);
    /* windows of one text are added to the same result, so they are pooled one after another */
    attn__parallel_items(parts ? 1 : attn_context_threads(r->encoder->context), count, pool_piece, r);
    return ATTN_OK;
}

static attn_status run_packs(run *r, int64_t most)
{
    attn_status status = ATTN_OK;
    bool typed = false;
    for (int64_t i = 0; i < r->n; i++)
        typed = typed || r->texts[i].types;
    for (r->first = 0; r->first < r->npieces && status == ATTN_OK;) {
        int64_t count = 0, tokens = 0;
        while (r->first + count < r->npieces &&
               (count == 0 || tokens + attn__encoder_piece_size(&r->pieces[r->first + count]) <= most))
            tokens += attn__encoder_piece_size(&r->pieces[r->first + count++]);
        status = run_pack(r, count, typed);
        r->first += count;
        if (status == ATTN_OK)
            status = attn__work(r->encoder->context, "texts", r->first, r->npieces);
    }
    return status;
}

static attn_status prepare(run *r, int64_t most)
{
    attn_context *context = r->encoder->context;
    attn_status status = attn__encoder_pieces(r->encoder, r->texts, r->n, &r->pieces, &r->npieces);
    if (status != ATTN_OK)
        return status;
    if (!r->pieces) /* each text has one */
        return ATTN_ERROR_MEMORY;
    int64_t largest = 0, total = 0;
    for (int64_t i = 0; i < r->npieces; i++) {
        largest = attn__max(largest, attn__encoder_piece_size(&r->pieces[i]));
        total += attn__encoder_piece_size(&r->pieces[i]);
    }
    if (largest > INT32_MAX / 2) {
        attn__fail(context, ATTN_ERROR_SHAPE, "a text has %lld tokens; at most %d are supported", (long long)largest,
                   INT32_MAX / 2);
        return ATTN_ERROR_SHAPE;
    }
    qsort(r->pieces, (size_t)r->npieces, sizeof *r->pieces, by_size);
    size_t room = (size_t)attn__max(largest, attn__min(most, total));
    r->ids = attn__alloc(context, room * sizeof *r->ids);
    r->types = attn__alloc_zero(context, room * sizeof *r->types);
    r->offsets = attn__alloc(context, (room + 1) * sizeof *r->offsets);
    r->rows = attn__alloc(context, attn__size_mul((size_t)r->n + 1, sizeof *r->rows));
    r->sums = r->pool == ATTN_POOL_MEAN
                  ? attn__alloc_zero(context, attn__size_mul((size_t)(r->n * r->dim), sizeof *r->sums))
                  : NULL;
    if (!r->ids || !r->types || !r->offsets || !r->rows || (r->pool == ATTN_POOL_MEAN && !r->sums))
        return ATTN_ERROR_MEMORY;
    r->rows[0] = 0;
    for (int64_t i = 0; i < r->n; i++)
        r->rows[i + 1] = r->rows[i] + (r->pool == ATTN_POOL_NONE ? pooled_of(r->encoder, &r->texts[i]) : 1);
    for (int64_t i = 0; r->pool == ATTN_POOL_MAX && i < r->n * r->dim; i++)
        r->vectors[i] = -INFINITY;
    return ATTN_OK;
}

static attn_pool pool_of(const attn_encoder *encoder, const attn_encoder_options *options)
{
    return options && options->pool != ATTN_POOL_OWN ? options->pool : encoder->info.pool;
}

int64_t attn_encoder_rows(const attn_encoder *encoder, const attn_encoder_text *text,
                          const attn_encoder_options *options)
{
    return pool_of(encoder, options) == ATTN_POOL_NONE ? pooled_of(encoder, text) : 1;
}

attn_status attn_encoder_run(attn_encoder *encoder, const attn_encoder_text *texts, int64_t n,
                             const attn_encoder_options *options, float *vectors)
{
    ATTN__CALL(encoder->context);
    if (ATTN__CHECK_RESERVED(encoder->context, options, attn_encoder_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_encoder_options o = options ? *options : (attn_encoder_options){0};
    run r = {.encoder = encoder,
             .texts = texts,
             .n = n,
             .dim = encoder->info.dim,
             .pool = pool_of(encoder, &o),
             .vectors = vectors};
    if (attn__check_choice(encoder->context, "attn_encoder_options: pool", (int)o.pool, ATTN_POOL_NONE) != ATTN_OK ||
        attn__check_choice(encoder->context, "attn_encoder_options: normalize", (int)o.normalize, ATTN_NORMALIZE_NO) !=
            ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (o.normalize == ATTN_NORMALIZE_OWN)
        o.normalize = encoder->info.normalize && r.pool != ATTN_POOL_NONE ? ATTN_NORMALIZE_YES : ATTN_NORMALIZE_NO;
    int64_t most = o.max_tokens > 0 ? attn__min(o.max_tokens, INT32_MAX / 2) : TOGETHER;
    if (n <= 0)
        return ATTN_OK;
    attn_status status = prepare(&r, most);
    if (status == ATTN_OK)
        status = run_packs(&r, most);
    if (status == ATTN_OK)
        finish(&r, o.normalize);
    attn__free(encoder->context, r.pieces);
    attn__free(encoder->context, r.rows);
    attn__free(encoder->context, r.sums);
    attn__free(encoder->context, r.ids);
    attn__free(encoder->context, r.types);
    attn__free(encoder->context, r.offsets);
    return status;
}
