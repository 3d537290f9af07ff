/* SPDX-License-Identifier: MIT
 * Weights that two processes pack for each other: what the products of a step see is what the parameters are then. */
#include "support/cmocka.h"

#include "attn/train.h"
#include "support/forked_ranks.h"
#include "support/tensors.h"
#include "support/two_ranks.h"
#include "tensor/all_reduce_inner.h"
#include "tensor/gemm_slices.h"
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 192, IN = 192, HIDDEN = 256, OUT = 160, LAYERS_STEPS = 7, BY_HAND = 3, ELSEWHERE = 5, OF_ALL = 2 };

/* What the other rank makes do with, as ATTN_ISA may tell it; ATTN_ISA_COUNT: what the machine has. */
static attn__isa of_the_other = ATTN_ISA_COUNT;

/* Two linear layers of which every rank has as many rows; odd ones where it is alone. */
typedef struct layers {
    attn_context *context;
    attn_named_list list;
    attn_tensor *w[2], *x;
    attn_tape *tape;
    attn_optimizer *optimizer;
    attn__all_reduce *all_reduce; /* NULL: alone */
    int taken;                    /* products that found their weights packed */
} layers;

static double number(int64_t i)
{
    return (double)((i * 7919 + 13) % 1009) / 1009 - 0.5;
}

static attn_status make_layers(layers *l, bool many)
{
    static const int64_t shapes[2][2] = {{HIDDEN, IN}, {OUT, HIDDEN}};
    *l = (layers){.context = test_context()};
    l->context->threads = 1; /* a process that has several cannot be forked */
    attn_status status = many ? attn__ranks_join_with(l->context, &forked_ranks) : ATTN_OK;
    if (attn_ranks_rank(l->context) == 1 && of_the_other != ATTN_ISA_COUNT)
        l->context->isa = of_the_other;
    int64_t rows = many ? ROWS : OF_ALL * ROWS;
    l->list = (attn_named_list){.context = l->context, .owns = true};
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = attn_tensor_create(&l->w[i], l->context, ATTN_F32, 2, shapes[i]);
        if (status == ATTN_OK && (status = attn_named_add(&l->list, i ? "b" : "a", l->w[i])) != ATTN_OK)
            attn_tensor_destroy(l->w[i]);
        for (int64_t k = 0; status == ATTN_OK && k < l->w[i]->size; k++)
            test_set(l->w[i], k, 0.2 * number(k + i));
        if (status == ATTN_OK)
            attn_tensor_set_requires_grad(l->w[i], true);
    }
    if (status == ATTN_OK)
        status = attn_tensor_create(&l->x, l->context, ATTN_F32, 2, (int64_t[]){rows, IN});
    for (int64_t k = 0; status == ATTN_OK && k < rows * IN; k++)
        test_set(l->x, k, number(k + (many ? attn_ranks_rank(l->context) : 0) * ROWS * IN));
    if (status == ATTN_OK)
        status = attn_optimizer_create(&l->optimizer, l->context, &l->list, NULL);
    if (status == ATTN_OK)
        status = attn_tape_create(&l->tape, l->context);
    if (status == ATTN_OK && many)
        status = attn__all_reduce_create(&l->all_reduce, l->context, &l->list, attn_optimizer_state(l->optimizer), 0);
    if (l->all_reduce)
        l->all_reduce->pack_from = 0;
    return status;
}

static void end_layers(layers *l)
{
    attn__all_reduce_destroy(l->all_reduce);
    attn_tape_destroy(l->tape);
    attn_optimizer_destroy(l->optimizer);
    attn_tensor_destroy(l->x);
    attn_named_clear(&l->list);
    attn_ranks_leave(l->context);
    attn_context_destroy(l->context);
}

static attn_tensor *output_of(layers *l)
{
    attn_tensor *hidden = attn_linear(l->tape, l->x, l->w[0], NULL, ATTN_ACTIVATION_TANH);
    for (int i = 0; i < 2 && l->all_reduce; i++)
        l->taken += attn__weight_cache_find(l->all_reduce, l->w[i], i == 0, ROWS) != NULL;
    return attn_linear(l->tape, hidden, l->w[1], NULL, ATTN_ACTIVATION_IDENTITY);
}

/* What a validation computes between two steps, bit for bit what the step after it will. */
static bool outputs_agree(layers *l, const attn_tensor *in_step)
{
    size_t bytes = (size_t)in_step->size * sizeof(float);
    float *kept = malloc(bytes);
    attn_tape *tape = NULL, *of_step = l->tape;
    if (!kept || attn_tape_create(&tape, l->context) != ATTN_OK)
        return false;
    memcpy(kept, in_step->data, bytes);
    l->tape = tape;
    attn_tensor *y = output_of(l);
    bool same = y && memcmp(kept, y->data, bytes) == 0;
    l->tape = of_step;
    attn_tape_destroy(tape);
    free(kept);
    return same;
}

static attn_status layers_step(layers *l, double *loss)
{
    double totals[] = {0}, norm;
    attn_tape_reset(l->tape, &(attn_tape_options){.record = true});
    if (l->all_reduce)
        attn__all_reduce_begin(l->all_reduce, l->tape, false);
    attn_tensor *y = output_of(l), *mean = y ? attn_mean(l->tape, attn_mul(l->tape, y, y), -1) : NULL;
    mean = mean ? attn_mean(l->tape, mean, 0) : NULL;
    if (!mean || !outputs_agree(l, y))
        return attn_context_status(l->context) == ATTN_OK ? ATTN_ERROR_INTERNAL : attn_context_status(l->context);
    totals[0] = *loss = test_at(mean, 0);
    if (!l->all_reduce) {
        attn_status status = attn_backward(l->tape, mean);
        return status == ATTN_OK ? attn_optimizer_step(l->optimizer, 0.001, &norm) : status;
    }
    attn_status status = attn__all_reduce_backward(l->all_reduce, l->tape, mean, 1.0 / OF_ALL, totals, 1);
    *loss = totals[0] / OF_ALL;
    return status == ATTN_OK ? attn__optimizer_step_shared(l->optimizer, l->all_reduce, 0.001, &norm) : status;
}

/* All ranks write the same. */
static void write_by_hand(layers *l)
{
    for (int64_t k = 0; k < l->w[0]->size; k++)
        test_set(l->w[0], k, 0.3 * number(3 * k));
}

/* As the averages of weights take the parameters' place: a step of which nothing is kept. */
static attn_status forward_with_others(layers *l)
{
    enum { BYTES = HIDDEN * IN * sizeof(float) };
    void *own = l->w[0]->data, *zero = calloc(1, BYTES);
    if (!zero)
        return ATTN_ERROR_MEMORY;
    l->w[0]->data = zero;
    attn_tape_reset(l->tape, &(attn_tape_options){.record = true});
    if (l->all_reduce)
        l->tape->all_reduce = l->all_reduce;
    attn_tensor *y = output_of(l);
    bool zeros = y != NULL;
    for (int64_t k = 0; zeros && k < y->size; k++)
        zeros = ((const float *)y->data)[k] == 0;
    l->tape->all_reduce = NULL;
    attn_tape_reset(l->tape, NULL);
    l->w[0]->data = own;
    free(zero);
    return zeros ? ATTN_OK : ATTN_ERROR_INTERNAL;
}

static attn_status losses_of(layers *l, bool many, double losses[LAYERS_STEPS])
{
    attn_status status = make_layers(l, many);
    for (int64_t step = 0; step < LAYERS_STEPS && status == ATTN_OK; step++) {
        if (step == BY_HAND)
            write_by_hand(l);
        if (step == ELSEWHERE)
            status = forward_with_others(l);
        if (status == ATTN_OK)
            status = layers_step(l, &losses[step]);
    }
    return status;
}

/* 0 if two ranks have the losses of one, weights being packed in all steps but the first. */
static int compare_losses(void *alone)
{
    const double *want = alone;
    double losses[LAYERS_STEPS];
    layers l;
    attn_status status = losses_of(&l, true, losses);
    bool digits = attn__gemm_slices_takes(l.context, ROWS, HIDDEN, IN) && of_the_other == ATTN_ISA_COUNT;
    int taken = l.taken;
    end_layers(&l);
    if (status != ATTN_OK)
        return 1;
    for (int i = 0; i < LAYERS_STEPS; i++) {
        if (!(fabs(losses[i] - want[i]) <= 1e-5 * want[i]))
            return 2;
    }
    /* Twice in a step and twice more beside it; where the parameter lay elsewhere only the other one. */
    return taken == (digits ? 4 * (LAYERS_STEPS - 1) + 1 : 0) ? 0 : 3;
}

static void weights_are_packed_as_they_are(void **state)
{
    (void)state;
    double alone[LAYERS_STEPS];
    layers l;
    assert_int_equal(losses_of(&l, false, alone), ATTN_OK);
    end_layers(&l);
    assert_true(fabs(alone[BY_HAND] - alone[BY_HAND - 1]) > 1e-2 * alone[BY_HAND]);
    int process = forked_ranks_begin(compare_losses, alone);
    assert_true(process > 0);
    assert_int_equal(compare_losses(alone), 0);
    assert_int_equal(forked_ranks_end(process), 0);
}

/* A rank without AMX packs nothing, and nothing is packed for it. */
static void ranks_have_other_units(void **state)
{
    (void)state;
    double alone[LAYERS_STEPS];
    layers l;
    assert_int_equal(losses_of(&l, false, alone), ATTN_OK);
    end_layers(&l);
    of_the_other = ATTN_ISA_SCALAR;
    int process = forked_ranks_begin(compare_losses, alone);
    assert_true(process > 0);
    int here = compare_losses(alone);
    of_the_other = ATTN_ISA_COUNT;
    assert_int_equal(forked_ranks_end(process), 0);
    assert_int_equal(here, 0);
}

static int die_between_steps(void *user)
{
    layers l;
    double loss;
    (void)user;
    return make_layers(&l, true) != ATTN_OK || layers_step(&l, &loss) != ATTN_OK || layers_step(&l, &loss) != ATTN_OK;
}

/* Who waits for another rank's share of the digits hears of its end, and has the parameters as they were. */
static void packing_is_left(void **state)
{
    (void)state;
    enum { N = HIDDEN * IN };
    static float before[N];
    layers l;
    double loss;
    int asked = 0;
    int process = forked_ranks_begin(die_between_steps, NULL);
    assert_true(process > 0);
    assert_int_equal(make_layers(&l, true), ATTN_OK);
    assert_int_equal(layers_step(&l, &loss), ATTN_OK);
    assert_int_equal(layers_step(&l, &loss), ATTN_OK);
    memcpy(before, attn_tensor_data(l.w[0]), sizeof before);
    attn_ranks_set_stop(l.context, two_ranks_stop, &asked);
    assert_int_equal(layers_step(&l, &loss), ATTN_ERROR_INTERRUPTED);
    attn__all_reduce_abandon(l.all_reduce, l.tape);
    assert_memory_equal(before, attn_tensor_data(l.w[0]), sizeof before);
    end_layers(&l);
    assert_int_equal(forked_ranks_end(process), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_packed_as_they_are),
        cmocka_unit_test(ranks_have_other_units),
        cmocka_unit_test(packing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
