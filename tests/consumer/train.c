/* SPDX-License-Identifier: MIT
 *
 * train.h: Adam fits a line through points, under a schedule; then the measures of translations. */
#include <attn/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { POINTS = 8, STEPS = 300 };

int main(void)
{
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    float x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++)
        y[i] = 2 * (x[i] = (float)i / POINTS) - 0.5f;

    attn_named_list parameters = {.context = context, .owns = true};
    attn_tensor *slope, *intercept;
    CHECK(attn_tensor_create(&slope, context, ATTN_F32, 2, (int64_t[]){1, 1}) == ATTN_OK);
    CHECK(attn_tensor_create(&intercept, context, ATTN_F32, 1, (int64_t[]){1}) == ATTN_OK);
    attn_tensor_set_requires_grad(slope, true);
    attn_tensor_set_requires_grad(intercept, true);
    CHECK(attn_named_add(&parameters, "slope", slope) == ATTN_OK);
    CHECK(attn_named_add(&parameters, "intercept", intercept) == ATTN_OK);
    attn_optimizer *optimizer;
    CHECK(attn_optimizer_create(&optimizer, context, &parameters, NULL) == ATTN_OK);
    attn_schedule schedule = {.kind = ATTN_SCHEDULE_COSINE, .peak = 0.1, .warmup = 10, .total = STEPS};

    attn_tape *tape;
    CHECK(attn_tape_create(&tape, context) == ATTN_OK);
    double first_norm = 0, norm;
    for (int step = 1; step <= STEPS; step++) {
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true});
        attn_tensor *input = attn_tape_tensor(tape, ATTN_F32, 2, (int64_t[]){POINTS, 1}, x);
        attn_tensor *target = attn_tape_tensor(tape, ATTN_F32, 2, (int64_t[]){POINTS, 1}, y);
        attn_tensor *error =
            attn_sub(tape, attn_linear(tape, input, slope, intercept, ATTN_ACTIVATION_IDENTITY), target);
        attn_tensor *loss = attn_mean(tape, attn_mean(tape, attn_mul(tape, error, error), 1), 0);
        CHECK(loss && attn_backward(tape, loss) == ATTN_OK);
        CHECK(attn_optimizer_step(optimizer, attn_schedule_rate(&schedule, step), &norm) == ATTN_OK);
        if (step == 1)
            first_norm = norm;
    }
    /* The first gradient, at 0: the means of -2 y x and of -2 y. */
    double by_slope = 0, by_intercept = 0;
    for (int i = 0; i < POINTS; i++) {
        by_slope -= 2.0 * y[i] * x[i] / POINTS;
        by_intercept -= 2.0 * y[i] / POINTS;
    }
    CHECK(fabs(first_norm - hypot(by_slope, by_intercept)) < 1e-5);
    CHECK(attn_optimizer_steps(optimizer) == STEPS);
    CHECK(fabs(*(float *)attn_tensor_data(slope) - 2) < 0.01);
    CHECK(fabs(*(float *)attn_tensor_data(intercept) + 0.5) < 0.01);
    CHECK(attn_named_find(attn_optimizer_state(optimizer), "m.slope"));
    CHECK(fabs(attn_schedule_rate(&schedule, 5) - 0.05) < 1e-12);   /* half of the warm-up */
    CHECK(fabs(attn_schedule_rate(&schedule, 155) - 0.05) < 1e-12); /* the middle of the cosine */
    CHECK(attn_schedule_rate(&schedule, STEPS) < 1e-12);

    /* "the the cat" has 2 of its 3 words in the reference, which has the first "the" only once. */
    static const char *const same[] = {"the red cat sat on the mat ."}, *const other[] = {"the the cat"},
                             *const reference[] = {"the cat"};
    attn_bleu bleu;
    double chrf;
    CHECK(attn_bleu_corpus(&bleu, context, same, same, NULL, 1) == ATTN_OK && fabs(bleu.score - 100) < 1e-9);
    CHECK(attn_chrf_corpus(&chrf, context, same, same, NULL, 1) == ATTN_OK && fabs(chrf - 100) < 1e-9);
    CHECK(attn_bleu_corpus(&bleu, context, other, reference, NULL, 1) == ATTN_OK);
    CHECK(fabs(bleu.precisions[0] - 200.0 / 3) < 1e-9 && bleu.prediction_length == 3 && bleu.reference_length == 2);
    CHECK(attn_bleu_corpus(&bleu, context, same, same, (int64_t[]){0}, 1) == ATTN_ERROR_ARGUMENT);
    printf("train: y = %.3f x %+.3f; %s\n", *(float *)attn_tensor_data(slope), *(float *)attn_tensor_data(intercept),
           attn_context_error(context));

    attn_tape_destroy(tape);
    attn_optimizer_destroy(optimizer);
    attn_named_clear(&parameters);
    attn_context_destroy(context);
    return 0;
}
