/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests reversible stacks. Gradients must equal those of a plain evaluation, with and without dropout. Memory must not
 * grow with depth. Some branches must be refused.
 */
#include "support/fixture.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "attn/models.h"
#include "tensor/parts.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------- against the plain evaluation */

enum { BLOCKS = 3, WIDTH = 6, ROWS = 5 };

/* A branch with two dropout operations, whose result changes if the counter of dropout is shifted. */
typedef struct branch {
    attn_tensor *w, *b;
} branch;

static attn_tensor *run_branch(const void *self, attn_tape *tape, attn_tensor *x)
{
    const branch *own = self;
    attn_scope_begin(tape);
    attn_tensor *y = attn_dropout(tape, attn_linear(tape, x, own->w, own->b, ATTN_ACTIVATION_GELU_TANH), 0.4);
    y = attn_linear(tape, y, own->w, NULL, ATTN_ACTIVATION_TANH);
    return attn_scope_end(tape, attn_dropout(tape, y, 0.3));
}

/* Evaluates the stack by its definition, with all operations on the tape. */
static attn_tensor *evaluate_plainly(attn_tape *tape, attn_tensor *x, int n, const attn_reversible_block *blocks)
{
    attn_tensor *x1 = x, *x2 = x;
    for (int i = 0; i < n; i++) {
        x1 = attn_add(tape, x1, blocks[i].f.run(blocks[i].f.self, tape, x2));
        x2 = attn_add(tape, x2, blocks[i].g.run(blocks[i].g.self, tape, x1));
    }
    return attn_affine(tape, attn_add(tape, x1, x2), 0.5, 0);
}

typedef struct stack {
    attn_context *context;
    attn_tape *tape;
    attn_tensor *x, *c, *w[2 * BLOCKS], *b[2 * BLOCKS], *all[4 * BLOCKS + 1];
    branch branches[2 * BLOCKS];
    attn_reversible_block blocks[BLOCKS];
} stack;

static attn_tensor *made(stack *s, int rank, int64_t n, uint64_t seed)
{
    attn_tensor *x;
    assert_int_equal(attn_tensor_create(&x, s->context, ATTN_F64, rank, (int64_t[]){n, WIDTH}), ATTN_OK);
    gradcheck_fill(x, seed);
    attn_tensor_set_requires_grad(x, true);
    return x;
}

static void begin(stack *s)
{
    *s = (stack){.context = test_context()};
    assert_int_equal(attn_tape_create(&s->tape, s->context), ATTN_OK);
    s->x = s->all[0] = made(s, 2, ROWS, 1);
    s->c = made(s, 2, ROWS, 2);
    for (int i = 0; i < 2 * BLOCKS; i++) {
        s->w[i] = s->all[1 + 2 * i] = made(s, 2, WIDTH, 10 + (uint64_t)i);
        s->b[i] = s->all[2 + 2 * i] = made(s, 1, WIDTH, 20 + (uint64_t)i);
        s->branches[i] = (branch){s->w[i], s->b[i]};
    }
    for (int i = 0; i < BLOCKS; i++)
        s->blocks[i] =
            (attn_reversible_block){{run_branch, &s->branches[2 * i]}, {run_branch, &s->branches[2 * i + 1]}};
}

static void end(stack *s)
{
    attn_tape_destroy(s->tape);
    for (int i = 0; i < 4 * BLOCKS + 1; i++)
        attn_tensor_destroy(s->all[i]);
    attn_tensor_destroy(s->c);
    end_context(s->context);
}

enum { MOST = ROWS * WIDTH + 2 * BLOCKS * (WIDTH * WIDTH + WIDTH) };

static void collect(stack *s, bool plainly, bool train, double out[ROWS * WIDTH + MOST])
{
    int64_t n = 0;
    for (int i = 0; i < 4 * BLOCKS + 1; i++)
        attn_tensor_zero_grad(s->all[i]);
    attn_tape_reset(s->tape, &(attn_tape_options){.record = true, .train = train, .seed = 7});
    /* There is a dropout before the stack and one after it. Running the branches again must not change the second
     * dropout. */
    attn_tensor *x = attn_dropout(s->tape, s->x, 0.1);
    attn_tensor *y =
        plainly ? evaluate_plainly(s->tape, x, BLOCKS, s->blocks) : attn_reversible(s->tape, x, s->blocks, BLOCKS);
    y = attn_dropout(s->tape, y, 0.1);
    assert_non_null(y);
    for (int64_t i = 0; i < attn_tensor_size(y); i++)
        out[n++] = test_at(y, i);
    assert_ok(s->context, attn_backward_from(s->tape, y, s->c));
    for (int i = 0; i < 4 * BLOCKS + 1; i++) {
        assert_non_null(attn_tensor_grad(s->all[i]));
        for (int64_t j = 0; j < attn_tensor_size(s->all[i]); j++)
            out[n++] = test_at(attn_tensor_grad(s->all[i]), j);
    }
}

static void gradients_are_those_of_the_plain_evaluation(void **state)
{
    static double plain[ROWS * WIDTH + MOST], reversible[ROWS * WIDTH + MOST];
    stack s;
    begin(&s);
    for (int train = 0; train < 2; train++) {
        for (int pass = 0; pass < 2; pass++) {
            collect(&s, true, train, plain);
            collect(&s, false, train, reversible);
            double largest = 1;
            for (int i = 0; i < ROWS * WIDTH + MOST; i++)
                largest = fmax(largest, fabs(plain[i]));
            for (int i = 0; i < ROWS * WIDTH + MOST; i++)
                if (!(fabs(plain[i] - reversible[i]) <= 1e-12 * largest))
                    fail_msg("train %d, number %d: %.15g, plainly %.15g", train, i, reversible[i], plain[i]);
        }
    }
    end(&s);
}

static attn_tensor *build_checked(attn_tape *tape, attn_tensor *const *in, const void *user)
{
    (void)user;
    branch f = {in[1], in[2]}, g = {in[3], in[4]};
    static branch kept[2]; /* static, because the backward pass still needs the branches */
    kept[0] = f;
    kept[1] = g;
    attn_reversible_block blocks[2] = {{{run_branch, &kept[0]}, {run_branch, &kept[1]}},
                                       {{run_branch, &kept[1]}, {run_branch, &kept[0]}}};
    return attn_reversible(tape, in[0], blocks, 2);
}

static void gradients_are_those_of_differences(void **state)
{
    gradcheck(2, build_checked, NULL, 5,
              (const gradcheck_input[]){{2, {3, 4}}, {2, {4, 4}}, {1, {4}}, {2, {4, 4}}, {1, {4}}});
}

/* --------------------------------------------------------------------------------- what is not possible */

static attn_tensor *outside;

static attn_tensor *run_reaching_out(const void *self, attn_tape *tape, attn_tensor *x)
{
    (void)self;
    return attn_mul(tape, x, outside);
}

static attn_tensor *run_shortening(const void *self, attn_tape *tape, attn_tensor *x)
{
    (void)self;
    return attn_slice(tape, x, 0, 0, 1);
}

static void wrong_branches_are_refused(void **state)
{
    stack s;
    begin(&s);
    attn_tape_reset(s.tape, &(attn_tape_options){.record = true});
    outside = attn_affine(s.tape, s.x, 2, 0);
    attn_reversible_block reaching = {{run_reaching_out, NULL}, {run_reaching_out, NULL}};
    assert_null(attn_reversible(s.tape, s.x, &reaching, 1));
    assert_says(s.context, "uses a tensor from outside that needs a gradient");
    attn_reversible_block shortening = {{run_shortening, NULL}, {run_shortening, NULL}};
    assert_null(attn_reversible(s.tape, s.x, &shortening, 1));
    assert_says(s.context, "a branch returns [1,6] for an input of [5,6]");
    assert_null(attn_reversible(s.tape, s.x, NULL, 2));
    attn_context_clear_error(s.context);
    /* Without blocks, the result is the mean of two copies of x, which is x. */
    assert_true(test_distance(attn_reversible(s.tape, s.x, NULL, 0), s.x) == 0);
    end(&s);
}

/* ------------------------------------------------------------------------------------------ whole model */

typedef struct figures {
    size_t peak, model;    /* bytes at the peak, and bytes of the model alone */
    double loss, gradient; /* gradient: sum of squares of the input's gradient */
} figures;

static attn_model *image_model(attn_context *context, int depth, bool reversible, attn_dtype dtype)
{
    attn_config *config;
    attn_model *model;
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    attn_config_set_int(config, "dim", 16);
    attn_config_set_int(config, "heads", 2);
    attn_config_set_int(config, "depth", depth);
    attn_config_set_bool(config, "reversible", reversible);
    attn_config_set_real(config, "dropout", 0.1);
    if (attn_model_create(&model, context, "axial-image-transformer", config,
                          &(attn_model_options){.seed = 3, .dtype = dtype}) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    attn_config_destroy(config);
    return model;
}

static figures train_step(int depth, bool reversible, attn_dtype dtype, int64_t side)
{
    figures f = {0};
    attn_context *context = test_context();
    attn_tape *tape;
    attn_model *model = image_model(context, depth, reversible, dtype);
    attn_tensor *x;
    attn_context_memory(context, &f.model, NULL, NULL);
    assert_int_equal(attn_tensor_create(&x, context, dtype, 4, (int64_t[]){2, 16, side, side}), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        test_set(x, i, sin((double)i * 0.7));
    attn_tensor_set_requires_grad(x, true);
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 1});
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    attn_named_add(&inputs, "x", x);
    assert_ok(context, attn_model_forward(model, tape, &inputs, &outputs));
    attn_tensor *y = attn_named_find(&outputs, "out");
    attn_tensor *loss = attn_sum(tape, attn_reshape(tape, attn_mul(tape, y, y), 1, (int64_t[]){-1}), 0);
    f.loss = test_at(loss, 0);
    assert_ok(context, attn_backward(tape, loss));
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        f.gradient += test_at(attn_tensor_grad(x), i) * test_at(attn_tensor_grad(x), i);
    attn_context_memory(context, NULL, &f.peak, NULL);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    attn_tape_destroy(tape);
    attn_tensor_destroy(x);
    attn_model_destroy(model);
    end_context(context);
    return f;
}

/* Returns the memory of a step without parameters and their gradients, which take equal memory. */
static double activations(figures f)
{
    return (double)f.peak - 2 * (double)f.model;
}

/* The memory of a reversible stack must not grow with depth. It varies a little, because blocks of other sizes fit
 * differently into the pool's chunks. This variation is a small part of what a plain stack needs for more depth. */
static void memory_does_not_grow_with_depth(void **state)
{
    static const int depths[] = {6, 12, 24, 48};
    double plain = activations(train_step(6, false, ATTN_F32, 16));
    double a_depth = (activations(train_step(12, false, ATTN_F32, 16)) - plain) / 6, first = 0;
    assert_true(a_depth > 0.1 * plain);
    for (int i = 0; i < 4; i++) {
        double own = activations(train_step(depths[i], true, ATTN_F32, 16));
        first = i == 0 ? own : first;
        printf("depth %2d: %.2f MiB beside parameters and gradients, plain %.2f MiB\n", depths[i], own / 0x1p20,
               (plain + a_depth * (depths[i] - 6)) / 0x1p20);
        assert_true(own - first <= 0.05 * a_depth * (depths[i] - depths[0]));
    }
}

/* Returns the memory of a plain stack's forward pass, without its parameters. */
static double forward_pass(int depth, const int64_t shape[4])
{
    size_t model_bytes, peak;
    attn_context *context = test_context();
    attn_tape *tape;
    attn_model *model = image_model(context, depth, false, ATTN_F32);
    attn_context_memory(context, &model_bytes, NULL, NULL);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, NULL);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    attn_named_add(&inputs, "x", test_random(tape, ATTN_F32, 4, shape, 1));
    assert_ok(context, attn_model_forward(model, tape, &inputs, &outputs));
    attn_context_memory(context, NULL, &peak, NULL);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    attn_tape_destroy(tape);
    attn_model_destroy(model);
    end_context(context);
    return (double)peak - (double)model_bytes;
}

/* Depth 1 means two blocks, attention and convolutions. */
static void a_plain_stack_holds_a_result_a_block(void **state)
{
    const int64_t shape[4] = {2, 16, 48, 48};
    const double result = 2 * 16 * 48 * 48 * sizeof(float);
    double grown = forward_pass(12, shape) - forward_pass(4, shape);
    assert_true(grown <= 1.5 * 2 * (12 - 4) * result);
}

/* Inputs that are recomputed from outputs pass their rounding errors from block to block. A run in double shows
 * how large they are in float. */
static void rounding_stays_small_in_a_deep_stack(void **state)
{
    figures single = train_step(24, true, ATTN_F32, 4), exact = train_step(24, true, ATTN_F64, 4);
    assert_true(fabs(single.loss - exact.loss) <= 1e-4 * exact.loss);
    assert_true(fabs(single.gradient - exact.gradient) <= 1e-3 * exact.gradient);
}

RUN_TESTS(TEST(gradients_are_those_of_the_plain_evaluation), TEST(gradients_are_those_of_differences),
          TEST(wrong_branches_are_refused), TEST(memory_does_not_grow_with_depth),
          TEST(a_plain_stack_holds_a_result_a_block), TEST(rounding_stays_small_in_a_deep_stack))
