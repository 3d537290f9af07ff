/* SPDX-License-Identifier: MIT
 *
 * Draws a generator's attention while it predicts one value, as a picture or as an interactive page.
 */
#include "apps/generator/generator.h"

#include "base/context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char about[] = "Exterior blocks read the planes before this one, outer blocks the rows above, inner "
                            "blocks the pixels to the left. "
                            "Each attends along a row or down a column. What an outer block finds at a place is for "
                            "the place below it; a place of "
                            "an inner block has what is known to its left and above it.";

/* ------------------------------------------------------------------------------------------------- inputs */

static attn_status refuse(const attn__generator_look *s, const char *what, int64_t asked, int64_t most)
{
    return attn__fail(s->g->context, ATTN_ERROR_ARGUMENT, "%s %lld does not exist: there are %lld, counted from 1",
                      what, (long long)asked, (long long)most);
}

/* Checks the view and fills in its defaults. n is the number of given frames of a video. */
static attn_status resolve(attn__generator_look *s, int64_t n)
{
    attn_image_shape shape = s->g->shape;
    attn_classifier_view *v = &s->view.view;
    if (s->view.channel < 0 || s->view.channel > shape.channels)
        return refuse(s, "channel", s->view.channel, shape.channels);
    if (v->query_row < 0 || v->query_row > shape.height)
        return refuse(s, "the query's row", v->query_row, shape.height);
    if (v->query_col < 0 || v->query_col > shape.width)
        return refuse(s, "the query's column", v->query_col, shape.width);
    if (s->view.frame < 0 || s->view.frame > shape.frames)
        return refuse(s, "frame", s->view.frame, shape.frames);
    if (s->view.frame > n)
        return attn__fail(s->g->context, ATTN_ERROR_ARGUMENT,
                          "frame %lld is requested, but the number of given frames is %lld", (long long)s->view.frame,
                          (long long)n);
    s->view.frame = s->view.frame ? s->view.frame : n < shape.frames ? n : shape.frames;
    s->view.channel = s->view.channel ? s->view.channel : shape.channels;
    v->query_row = v->query_row ? v->query_row : shape.height / 2 + 1;
    v->query_col = v->query_col ? v->query_col : shape.width / 2 + 1;
    s->slice = (s->view.frame - 1) * shape.channels + s->view.channel - 1;
    s->found = (attn_generator_prediction){
        .row = v->query_row, .col = v->query_col, .channel = s->view.channel, .frame = s->view.frame};
    return ATTN_OK;
}

/* Converts a plane of levels [Y,X] to a grey image. */
static attn_status plane_of(const attn_generator *g, attn_image *plane, const int32_t *levels)
{
    attn_status status = attn_image_alloc(plane, g->context, g->shape.width, g->shape.height, 1);
    for (int64_t i = 0; status == ATTN_OK && i < g->shape.width * g->shape.height; i++)
        plane->pixels[i] = attn__sample_of(levels[i], g->levels);
    return status;
}

/* Converts the frames up to the chosen frame to levels. Fills later frames with zeros. Makes images of the two
 * planes that are drawn. */
static attn_status put_frames(attn__generator_look *s, const attn_image *images, attn_tensor *x)
{
    attn_image_shape shape = s->g->shape;
    int64_t plane = shape.width * shape.height;
    int32_t *levels = attn_tensor_data(x);
    attn_status status = ATTN_OK;
    memset(levels, 0, (size_t)attn_tensor_size(x) * sizeof *levels);
    for (int64_t f = 0; f < s->view.frame && status == ATTN_OK; f++) {
        attn_image fitted = {0};
        status = attn__generator_fit(s->g, &images[f], &fitted);
        if (status == ATTN_OK)
            attn__generator_put_rows(s->g, &fitted, shape.height, levels + f * shape.channels * plane);
        attn_image_free(s->g->context, &fitted);
    }
    if (status == ATTN_OK)
        status = plane_of(s->g, &s->plane, levels + s->slice * plane);
    if (status == ATTN_OK && s->slice > 0)
        status = plane_of(s->g, &s->before, levels + (s->slice - 1) * plane);
    return status;
}

/* ------------------------------------------------------------------------------------------------- layers */

/* Adds the n blocks of one stack. Their weights begin at index *from of `weights`. Adds n to *from. */
static attn_status add_stack(attn__generator_look *s, const attn_tensor *weights, int64_t *from, const char *stack)
{
    char key[32];
    snprintf(key, sizeof key, "%s_blocks", stack);
    bool inner = strcmp(stack, "inner") == 0, outer = strcmp(stack, "outer") == 0, exterior = !inner && !outer;
    int64_t n = attn_config_int(attn_model_config(s->g->model), key, 0);
    int64_t size = weights ? attn_tensor_size(weights) / attn_tensor_length(weights, 0) : 0;
    for (int64_t i = 0; i < n; i++) {
        attn__block_attention *b = attn__attention_add(&s->attention);
        if (!b)
            return ATTN_ERROR_MEMORY;
        *b = (attn__block_attention){.heads = attn_tensor_length(weights, 2),
                                     .rows = s->g->shape.height,
                                     .cols = s->g->shape.width,
                                     .where = ATTN_KEYS_CROSS,
                                     .stack = stack,
                                     .axis = inner || i % 2 == 0 ? "row" : "column",
                                     .above = outer};
        if (exterior && s->slice > 0)
            b->under = &s->before;
        else if (exterior)
            b->blind = "the exterior encoder has no earlier plane for the first one";
        if (outer && s->found.row == 1)
            b->blind = "the outer decoder has no row above the first one";
        attn_status status =
            attn__attention_take_cross(&s->attention, b, (const float *)attn_tensor_data(weights) + (*from + i) * size);
        if (status != ATTN_OK)
            return status;
    }
    *from += n;
    return ATTN_OK;
}

static attn_status add_layers(attn__generator_look *s)
{
    static const char *const stacks[] = {"exterior", "outer", "inner"};
    const attn_tensor *weights = attn_named_find(&s->attention.outputs, "weights");
    attn_status status = ATTN_OK;
    int64_t from = 0;
    for (int i = 0; i < 3 && status == ATTN_OK; i++)
        status = add_stack(s, weights, &from, stacks[i]);
    return status == ATTN_OK && from == 0
               ? attn__fail(s->g->context, ATTN_ERROR_UNSUPPORTED, "the model has no blocks, and so no weights to draw")
               : status;
}

/* ------------------------------------------------------------------------------------------------ running */

/* Computes the probability of the chosen value from logits [1,Y,X,K]. */
static attn_status predict(attn__generator_look *s, const attn_tensor *logits, const attn_tensor *x)
{
    attn_generator_prediction *f = &s->found;
    int64_t width = s->g->shape.width, at = (f->row - 1) * width + f->col - 1;
    const float *row = (const float *)attn_tensor_data(logits) + at * s->g->levels;
    double sum = 0;
    f->level = ((const int32_t *)attn_tensor_data(x))[s->slice * s->g->shape.height * width + at];
    for (int64_t k = 1; k < s->g->levels; k++)
        f->likeliest = row[k] > row[f->likeliest] ? (int32_t)k : f->likeliest;
    for (int64_t k = 0; k < s->g->levels; k++)
        sum += exp((double)row[k] - (double)row[f->likeliest]);
    f->of_likeliest = 1 / sum;
    f->probability = exp((double)row[f->level] - (double)row[f->likeliest]) / sum;
    return isfinite(f->probability) ? ATTN_OK
                                    : attn__fail(s->g->context, ATTN_ERROR_UNSUPPORTED,
                                                 "the probabilities are not finite: the weights hold NaN, infinity or "
                                                 "numbers that are too large");
}

static attn_status run_model(attn__generator_look *s, const attn_image *images)
{
    attn_tape *tape = s->attention.tape;
    attn_image_shape shape = s->g->shape;
    attn_named_list inputs = {.context = s->g->context};
    int32_t slice = (int32_t)s->slice;
    attn_tensor *x = attn_tape_tensor(tape, ATTN_I32, 4,
                                      (int64_t[]){1, shape.frames * shape.channels, shape.height, shape.width}, NULL);
    attn_tensor *slices = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){1}, &slice);
    attn_status status = x && slices ? put_frames(s, images, x) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = attn_named_add(&inputs, "image", x);
    if (status == ATTN_OK)
        status = attn_named_add(&inputs, "slices", slices);
    if (status == ATTN_OK)
        status = attn__attention_run(&s->attention, s->g->model, &inputs);
    attn_named_clear(&inputs);
    return status == ATTN_OK ? predict(s, attn_named_find(&s->attention.outputs, "logits"), x) : status;
}

attn_status attn__generator_look_at(attn__generator_look *s, attn_generator *g, const attn_image *images, int64_t n,
                                    const attn_generator_view *view)
{
    *s = (attn__generator_look){.g = g, .view = *view};
    attn_status status = resolve(s, n);
    if (status == ATTN_OK)
        status = attn__attention_begin(&s->attention, g->context);
    if (status == ATTN_OK)
        status = run_model(s, images);
    return status == ATTN_OK ? add_layers(s) : status;
}

void attn__generator_look_free(attn__generator_look *s)
{
    if (s->attention.tape)
        attn__attention_free(&s->attention);
    attn_image_free(s->g->context, &s->plane);
    attn_image_free(s->g->context, &s->before);
}

static attn_status draw(const attn__generator_look *s, attn_plot_format format, attn_bytes *picture)
{
    const attn_generator_prediction *f = &s->found;
    char title[160], channel[64] = "";
    int used = 0;
    if (s->g->shape.frames > 1)
        used = snprintf(channel, sizeof channel, ", frame %lld", (long long)f->frame);
    if (s->g->shape.channels > 1)
        snprintf(channel + used, sizeof channel - (size_t)used, ", channel %lld", (long long)f->channel);
    /* the title of the page names no pixel, because the page shows the attention of all pixels */
    if (format == ATTN_PLOT_HTML)
        snprintf(title, sizeof title, "Attention of each pixel%s", channel);
    else
        snprintf(title, sizeof title, "row %lld, column %lld%s: level %d has %.0f %%", (long long)f->row,
                 (long long)f->col, channel, f->level, 100 * f->probability);
    return attn__attention_draw(picture, &s->attention, &s->view.view, &s->plane, title, about, format);
}

attn_status attn_generator_render_attention(attn_generator *g, const attn_image *images, int64_t n,
                                            const attn_generator_view *view, attn_plot_format format,
                                            attn_bytes *picture, attn_generator_prediction *found)
{
    ATTN__CALL(g->context);
    attn__generator_look look;
    *picture = (attn_bytes){0};
    attn_status status = attn__generator_look_at(&look, g, images, n, view);
    if (status == ATTN_OK)
        status = draw(&look, format, picture);
    if (found)
        *found = look.found;
    attn__generator_look_free(&look);
    return status;
}
