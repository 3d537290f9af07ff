/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the axial transformer as a distribution over images: the loss of an untrained model, and which numbers depend
 * on which. The sampler with caches must draw the same numbers as the definition.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "models/axial_transformer.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct world {
    attn_context *context;
    attn_tape *tape;
    attn_model *model;
    attn_tensor *x;
    int64_t shape[4], size, levels;
} world;

typedef struct sizes {
    int64_t height, width, channels, levels, dim, heads, exterior, outer, inner;
    double residual;
    int64_t frames; /* 0 means 1 */
    attn_dtype dtype;
} sizes;

static attn_model *build(attn_context *context, const sizes *s)
{
    attn_config *config;
    attn_model *model;
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {
        {"height", s->height},     {"width", s->width}, {"channels", s->channels},        {"levels", s->levels},
        {"dim", s->dim},           {"heads", s->heads}, {"exterior_blocks", s->exterior}, {"outer_blocks", s->outer},
        {"inner_blocks", s->inner}};
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        attn_config_set_int(config, keys[i].key, keys[i].value);
    if (s->frames > 0)
        attn_config_set_int(config, "frames", s->frames);
    if (s->residual > 0)
        attn_config_set_real(config, "residual_init", s->residual);
    if (attn_model_create(&model, context, "axial-transformer", config,
                          &(attn_model_options){.seed = 5, .dtype = s->dtype}) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    attn_config_destroy(config);
    return model;
}

static void begin(world *w, const sizes *s, int64_t batch)
{
    *w = (world){.context = test_context(),
                 .levels = s->levels,
                 .shape = {batch, s->channels * (s->frames ? s->frames : 1), s->height, s->width}};
    w->model = build(w->context, s);
    assert_int_equal(attn_tape_create(&w->tape, w->context), ATTN_OK);
    assert_int_equal(attn_tensor_create(&w->x, w->context, ATTN_I32, 4, w->shape), ATTN_OK);
    w->size = attn_tensor_size(w->x);
    attn__rng rng = {.seed = 11};
    for (int64_t i = 0; i < w->size; i++)
        ((int32_t *)attn_tensor_data(w->x))[i] = (int32_t)attn__rng_below(&rng, (uint64_t)s->levels);
}

static void end(world *w)
{
    attn_tensor_destroy(w->x);
    attn_tape_destroy(w->tape);
    attn_model_destroy(w->model);
    end_context(w->context);
}

static int32_t *numbers(const world *w)
{
    return attn_tensor_data(w->x);
}

/* Sets weights so that all residual branches matter and no bias is zero. A leak or an omission then changes the
 * results. */
static void stir(world *w)
{
    attn_named_list *list = attn_model_parameters(w->model);
    for (int64_t i = 0; i < list->n; i++) {
        attn__rng rng = {.seed = 17, .stream = (uint64_t)i};
        attn_tensor *p = list->items[i].tensor;
        for (int64_t j = 0; j < attn_tensor_size(p) && attn_tensor_rank(p) == 1; j++)
            test_set(p, j, test_at(p, j) + 0.3 * attn__rng_normal(&rng));
    }
}

static const sizes small = {.height = 4,
                            .width = 5,
                            .channels = 3,
                            .levels = 7,
                            .dim = 8,
                            .heads = 2,
                            .exterior = 2,
                            .outer = 4,
                            .inner = 2,
                            .residual = 1};

static const sizes video = {.height = 4,
                            .width = 4,
                            .channels = 2,
                            .levels = 7,
                            .dim = 8,
                            .heads = 2,
                            .exterior = 2,
                            .outer = 2,
                            .inner = 2,
                            .residual = 1,
                            .frames = 2};

/* ------------------------------------------------------------------------------------------ bits and size */

static void an_untrained_model_costs_eight_bits(void **state)
{
    world w;
    begin(&w,
          &(sizes){.height = 6,
                   .width = 4,
                   .channels = 3,
                   .levels = 256,
                   .dim = 16,
                   .heads = 2,
                   .exterior = 2,
                   .outer = 2,
                   .inner = 2},
          2);
    attn_tape_reset(w.tape, NULL);
    attn_tensor *bits = attn_axial_transformer_bits(w.model, w.tape, w.x, NULL);
    assert_non_null(bits);
    assert_true(fabs(test_at(bits, 0) - 8) < 1e-6);
    attn_tensor *slices = attn_tape_tensor(w.tape, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){2, 0});
    assert_true(fabs(test_at(attn_axial_transformer_bits(w.model, w.tape, w.x, slices), 0) - 8) < 1e-6);
    end(&w);
}

static int64_t parameters_of(const sizes *s)
{
    attn_context *context = test_context();
    attn_model *model = build(context, s);
    attn_named_list *list = attn_model_parameters(model);
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        n += attn_tensor_size(list->items[i].tensor);
    attn_model_destroy(model);
    end_context(context);
    return n;
}

/* Returns the number of parameters by a formula. It gives the published numbers for the ImageNet models, and is also
 * used for the small models here. */
static int64_t expected_parameters(const sizes *s)
{
    int64_t d = s->dim, blocks = s->exterior + s->outer + s->inner;
    return blocks * (6 * d * d + 10 * d) + d * (2 * s->levels + 18 * s->channels + 1 + 2 * (s->height + s->width) + 2) +
           s->levels;
}

static void parameters_are_as_many_as_published(void **state)
{
    const sizes imagenet32 = {.height = 32,
                              .width = 32,
                              .channels = 3,
                              .levels = 256,
                              .dim = 1536,
                              .heads = 16,
                              .exterior = 8,
                              .outer = 8,
                              .inner = 8};
    assert_int_equal(expected_parameters(&imagenet32), 341178112);
    const sizes narrow = {.height = 32,
                          .width = 32,
                          .channels = 3,
                          .levels = 256,
                          .dim = 32,
                          .heads = 4,
                          .exterior = 8,
                          .outer = 8,
                          .inner = 8};
    assert_int_equal(parameters_of(&narrow), expected_parameters(&narrow));
    assert_int_equal(parameters_of(&small), expected_parameters(&small));
}

/* ------------------------------------------------------------------------------------------- dependence */

static void logits_into(world *w, double *out)
{
    attn_tape_reset(w->tape, NULL);
    attn_tensor *logits = attn_axial_transformer_logits(w->model, w->tape, w->x, NULL);
    assert_non_null(logits);
    for (int64_t i = 0; i < w->size * w->levels; i++)
        out[i] = test_at(logits, i);
}

/* Changing number j must change the logits of all later numbers, and no other logits. */
static void check_dependence(const sizes *s)
{
    enum { MOST = 4 * 4 * 5 * 7 };
    static double before[MOST], after[MOST];
    world w;
    begin(&w, s, 1);
    stir(&w);
    assert_true(w.size * 7 <= MOST);
    logits_into(&w, before);
    for (int64_t j = 0; j < w.size; j++) {
        int32_t kept = numbers(&w)[j];
        numbers(&w)[j] = (kept + 3) % 7;
        logits_into(&w, after);
        numbers(&w)[j] = kept;
        for (int64_t i = 0; i < w.size; i++) {
            double change = 0;
            for (int64_t k = 0; k < 7; k++)
                change = fmax(change, fabs(after[i * 7 + k] - before[i * 7 + k]));
            if (i <= j && change != 0)
                fail_msg("number %d of the image sees number %d", (int)i, (int)j);
            if (i > j && change == 0)
                fail_msg("number %d of the image does not see number %d", (int)i, (int)j);
        }
    }
    end(&w);
}

static void numbers_depend_on_all_earlier_and_no_later_ones(void **state)
{
    check_dependence(&small);
    check_dependence(&video);
}

/* Returns the probability of a binary number, given all earlier numbers, from its two logits. */
static double chance(const attn_tensor *logits, int64_t i, int32_t level)
{
    return 1 / (1 + exp(test_at(logits, 2 * i + !level) - test_at(logits, 2 * i + level)));
}

/* The probabilities of all 256 videos (two frames of 2 x 2 black and white pixels) sum to 1. The probabilities of
 * the 16 second frames that may follow a first frame sum to 1, too. */
static void the_probabilities_of_all_videos_sum_to_1(void **state)
{
    enum { FRAME = 4, BITS = 2 * FRAME, VIDEOS = 1 << BITS, FRAMES = 1 << FRAME };
    sizes s = video;
    world w;
    double all = 0, following[FRAMES] = {0};
    s.height = s.width = s.levels = 2;
    s.channels = 1;
    s.dtype = ATTN_F64;
    begin(&w, &s, VIDEOS);
    stir(&w);
    assert_int_equal(w.size, VIDEOS * BITS);
    for (int64_t i = 0; i < w.size; i++)
        numbers(&w)[i] = (int32_t)(i / BITS >> i % BITS & 1);
    attn_tape_reset(w.tape, NULL);
    attn_tensor *logits = attn_axial_transformer_logits(w.model, w.tape, w.x, NULL);
    assert_non_null(logits);
    for (int64_t v = 0; v < VIDEOS; v++) {
        double p[2] = {1, 1};
        for (int64_t i = 0; i < BITS; i++)
            p[i / FRAME] *= chance(logits, v * BITS + i, numbers(&w)[v * BITS + i]);
        all += p[0] * p[1];
        following[v % FRAMES] += p[1];
    }
    assert_true(fabs(all - 1) < 1e-12);
    for (int i = 0; i < FRAMES; i++)
        assert_true(fabs(following[i] - 1) < 1e-12);
    end(&w);
}

/* --------------------------------------------------------------------------------------------- sampling */

static attn_tensor *gumbel(world *w)
{
    attn_tensor *noise;
    attn__rng rng = {.seed = 23};
    int64_t shape[5] = {w->shape[0], w->shape[1], w->shape[2], w->shape[3], w->levels};
    assert_int_equal(attn_tensor_create(&noise, w->context, ATTN_F32, 5, shape), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(noise); i++)
        test_set(noise, i, -log(-log(attn__rng_uniform(&rng))));
    return noise;
}

static void sample(world *w, attn_axial_transformer_options options, int32_t *out)
{
    assert_ok(w->context, attn_axial_transformer_sample(w->model, w->x, &options));
    memcpy(out, numbers(w), (size_t)w->size * sizeof *out);
}

enum { IMAGE = 2 * 3 * 4 * 5 };

static void the_fast_sampler_draws_what_the_slow_one_draws(void **state)
{
    world w;
    int32_t fast[IMAGE], slow[IMAGE];
    for (int kind = 0; kind < 4; kind++) {
        sizes s = small;
        s.outer = 4 - kind;
        s.exterior = kind;
        s.inner = 1 + kind;
        begin(&w, &s, 2);
        stir(&w);
        attn_tensor *noise = gumbel(&w);
        sample(&w, (attn_axial_transformer_options){.noise = noise, .slow = true}, slow);
        sample(&w, (attn_axial_transformer_options){.noise = noise}, fast);
        assert_memory_equal(fast, slow, sizeof fast);
        sample(&w, (attn_axial_transformer_options){.seed = 9, .temperature = 0.7, .slow = true}, slow);
        sample(&w, (attn_axial_transformer_options){.seed = 9, .temperature = 0.7}, fast);
        assert_memory_equal(fast, slow, sizeof fast);
        attn_tensor_destroy(noise);
        end(&w);
    }
}

static void frames_of_a_video_are_drawn_as_by_the_slow_sampler(void **state)
{
    enum { VIDEO = 2 * 2 * 4 * 4 };
    world w;
    int32_t fast[VIDEO], slow[VIDEO];
    begin(&w, &video, 1);
    stir(&w);
    assert_int_equal(w.size, VIDEO);
    attn_tensor *noise = gumbel(&w);
    sample(&w, (attn_axial_transformer_options){.noise = noise, .slow = true}, slow);
    sample(&w, (attn_axial_transformer_options){.noise = noise}, fast);
    assert_memory_equal(fast, slow, sizeof fast);
    attn_tensor_destroy(noise);
    end(&w);
}

/* Zero weights of this convolution disconnect the encoder, which must change the drawn image. */
static void what_is_drawn_depends_on_earlier_slices(void **state)
{
    world w;
    int32_t with[IMAGE], without[IMAGE];
    begin(&w, &small, 2);
    stir(&w);
    attn_tensor *noise = gumbel(&w), *conv = attn_named_find(attn_model_parameters(w.model), "exterior.conv.weight");
    sample(&w, (attn_axial_transformer_options){.noise = noise}, with);
    memset(attn_tensor_data(conv), 0, (size_t)attn_tensor_size(conv) * sizeof(float));
    sample(&w, (attn_axial_transformer_options){.noise = noise}, without);
    assert_memory_not_equal(with, without, sizeof with);
    attn_tensor_destroy(noise);
    end(&w);
}

static void given_rows_stay_and_the_rest_is_drawn(void **state)
{
    world w;
    int32_t whole[IMAGE], completed[IMAGE], slow[IMAGE];
    attn_tensor *known;
    begin(&w, &small, 2);
    stir(&w);
    assert_int_equal(attn_tensor_create(&known, w.context, ATTN_U8, 4, w.shape), ATTN_OK);
    for (int64_t i = 0; i < w.size; i++)
        ((uint8_t *)attn_tensor_data(known))[i] = i % 20 < 10;
    sample(&w, (attn_axial_transformer_options){.seed = 1}, whole);
    sample(&w, (attn_axial_transformer_options){.seed = 1, .known = known}, completed);
    assert_memory_equal(whole, completed, sizeof whole);
    for (int64_t i = 0; i < w.size; i++)
        numbers(&w)[i] = i % 20 < 10 ? (int32_t)(i % 7) : 1000;
    sample(&w, (attn_axial_transformer_options){.seed = 1, .known = known}, completed);
    sample(&w, (attn_axial_transformer_options){.seed = 1, .known = known, .slow = true}, slow);
    assert_memory_equal(completed, slow, sizeof slow);
    for (int64_t i = 0; i < w.size; i++)
        assert_true(i % 20 < 10 ? completed[i] == i % 7 : completed[i] < 7);
    attn_tensor_destroy(known);
    end(&w);
}

/* At a temperature near 0, noise has no effect. Every number is the most likely one, given the earlier numbers. */
static void temperature_near_0_draws_the_most_likely(void **state)
{
    world w;
    static double logits[3 * 4 * 5 * 7];
    int32_t one[IMAGE], other[IMAGE];
    begin(&w, &small, 1);
    stir(&w);
    sample(&w, (attn_axial_transformer_options){.seed = 1, .temperature = 1e-6}, one);
    sample(&w, (attn_axial_transformer_options){.seed = 2, .temperature = 1e-6}, other);
    assert_memory_equal(one, other, (size_t)w.size * sizeof *one);
    logits_into(&w, logits);
    for (int64_t i = 0; i < w.size; i++)
        for (int64_t k = 0; k < 7; k++)
            assert_true(logits[i * 7 + k] <= logits[i * 7 + one[i]] + 1e-4);
    end(&w);
}

/* Draws the first number, which depends on no other number, many times. The share of each level must agree with the
 * softmax. */
static void numbers_are_drawn_as_often_as_they_are_likely(void **state)
{
    enum { DRAWS = 4000, LEVELS = 4 };
    world w;
    begin(&w,
          &(sizes){.height = 1,
                   .width = 1,
                   .channels = 1,
                   .levels = LEVELS,
                   .dim = 4,
                   .heads = 1,
                   .exterior = 1,
                   .outer = 1,
                   .inner = 1,
                   .residual = 1},
          DRAWS);
    stir(&w);
    double p[LEVELS], sum = 0, count[LEVELS] = {0};
    attn_tape_reset(w.tape, NULL);
    attn_tensor *logits = attn_axial_transformer_logits(w.model, w.tape, w.x, NULL);
    for (int k = 0; k < LEVELS; k++)
        sum += p[k] = exp(test_at(logits, k));
    assert_int_equal(attn_axial_transformer_sample(w.model, w.x, &(attn_axial_transformer_options){.seed = 4}),
                     ATTN_OK);
    for (int i = 0; i < DRAWS; i++)
        count[numbers(&w)[i]] += 1.0 / DRAWS;
    for (int k = 0; k < LEVELS; k++)
        assert_true(fabs(count[k] - p[k] / sum) < 4 * sqrt(0.25 / DRAWS));
    end(&w);
}

/* ----------------------------------------------------------------------------------------------- errors */

static bool stop(void *user, const char *things, int64_t done, int64_t total)
{
    assert_string_equal(things, "rows");
    assert_int_equal(total, 12);
    *(int64_t *)user = done;
    return done < 5;
}

static void assert_said(world *w, attn_status status, attn_status wanted, const char *part)
{
    assert_refused(w->context, status, wanted, part);
}

static void wrong_sampling_requests_are_refused(void **state)
{
    world w;
    int64_t rows = 0;
    begin(&w, &small, 2);
    assert_said(&w, attn_axial_transformer_sample(w.model, w.x, &(attn_axial_transformer_options){.temperature = -1}),
                ATTN_ERROR_ARGUMENT, "temperature is -1");
    assert_said(&w, attn_axial_transformer_sample(w.model, w.x, &(attn_axial_transformer_options){.noise = w.x}),
                ATTN_ERROR_SHAPE, "noise is of type i32; expected f32 or f64");
    assert_said(&w, attn_axial_transformer_sample(w.model, w.x, &(attn_axial_transformer_options){.known = w.x}),
                ATTN_ERROR_SHAPE, "known is of type i32; expected u8 or bool");
    attn_context_set_progress(w.context, stop, &rows);
    assert_said(&w, attn_axial_transformer_sample(w.model, w.x, NULL), ATTN_ERROR_INTERRUPTED,
                "stopped after 5 of 12 rows");
    attn_context_set_progress(w.context, NULL, NULL);
    assert_int_equal(rows, 5);
    attn_tape_reset(w.tape, NULL);
    numbers(&w)[3] = 7;
    assert_null(attn_axial_transformer_bits(w.model, w.tape, w.x, NULL));
    assert_said(&w, attn_context_status(w.context), ATTN_ERROR_ARGUMENT,
                "element 3 of the images is 7; it must be 0 to 6");
    numbers(&w)[3] = 0;
    attn_tensor *slices = attn_tape_tensor(w.tape, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){0, 3});
    assert_null(attn_axial_transformer_logits(w.model, w.tape, w.x, slices));
    assert_said(&w, attn_context_status(w.context), ATTN_ERROR_ARGUMENT, "slices[1] is 3; allowed: 0 to 2");
    assert_null(attn_axial_transformer_logits(w.model, w.tape, slices, NULL));
    assert_said(&w, attn_context_status(w.context), ATTN_ERROR_SHAPE,
                "the images have the shape [2]; expected [b,3,4,5]");
    end(&w);
}

/* If a logit of each number is NaN or infinite, no level is the most likely. */
static void not_finite_logits_are_refused_by_the_sampler(void **state)
{
    world w;
    begin(&w, &small, 2);
    attn_tensor *bias = attn_named_find(attn_model_parameters(w.model), "head.bias");
    assert_non_null(bias);
    for (int slow = 0; slow < 2; slow++) {
        for (int i = 0; i < 2; i++) {
            test_set(bias, 2, i ? (double)INFINITY : (double)NAN);
            assert_said(&w,
                        attn_axial_transformer_sample(w.model, w.x, &(attn_axial_transformer_options){.slow = slow}),
                        ATTN_ERROR_UNSUPPORTED, "the probabilities of element 0 of the images are not finite");
        }
    }
    test_set(bias, 2, (double)-INFINITY);
    assert_int_equal(attn_axial_transformer_sample(w.model, w.x, NULL), ATTN_OK);
    for (int64_t i = 0; i < w.size; i++)
        assert_int_not_equal(numbers(&w)[i], 2);
    end(&w);
}

RUN_TESTS(TEST(an_untrained_model_costs_eight_bits), TEST(parameters_are_as_many_as_published),
          TEST(numbers_depend_on_all_earlier_and_no_later_ones), TEST(the_fast_sampler_draws_what_the_slow_one_draws),
          TEST(the_probabilities_of_all_videos_sum_to_1), TEST(frames_of_a_video_are_drawn_as_by_the_slow_sampler),
          TEST(what_is_drawn_depends_on_earlier_slices), TEST(given_rows_stay_and_the_rest_is_drawn),
          TEST(temperature_near_0_draws_the_most_likely), TEST(numbers_are_drawn_as_often_as_they_are_likely),
          TEST(wrong_sampling_requests_are_refused), TEST(not_finite_logits_are_refused_by_the_sampler))
