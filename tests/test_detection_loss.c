/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares the assignment of objects to queries with SciPy, and the loss of a set of boxes with DETR.
 */
#include "support/fixture.h"
#include "support/gradcheck.h"
#include "support/tensors.h"

#include "tensor/parts.h"
#include "train/assignment.h"
#include "train/detection_loss.h"

#include <math.h>

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

#define CLOSE(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

/* ------------------------------------------------------------------------------------------ assignment */

enum { MOST = 100 };

/* Returns the sum of an assignment's costs. Checks that no two rows have the same column. */
static double total(const double *cost, int64_t rows, int64_t columns, const int64_t *column)
{
    bool taken[MOST] = {false};
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        assert_true(column[i] >= 0 && column[i] < columns && !taken[column[i]]);
        taken[column[i]] = true;
        sum += cost[i * columns + column[i]];
    }
    return sum;
}

static double least(const double *cost, int64_t rows, int64_t columns, int64_t row, unsigned taken)
{
    double best = row == rows ? 0 : INFINITY;
    for (int64_t j = 0; row < rows && j < columns; j++)
        if (!(taken >> j & 1))
            best = fmin(best, cost[row * columns + j] + least(cost, rows, columns, row + 1, taken | 1u << j));
    return best;
}

/* In every second trial, the costs have few distinct values, so that many assignments have the same cost. */
static void no_assignment_costs_less(void **state)
{
    uint64_t seed = 3;
    for (int trial = 0; trial < 400; trial++) {
        double cost[36] = {0};
        int64_t column[6], again[6], rows = (int64_t)(uniform(&seed) * 6);
        int64_t columns = rows + (int64_t)(uniform(&seed) * (double)(7 - rows));
        for (int64_t i = 0; i < rows * columns; i++)
            cost[i] = trial % 2 ? uniform(&seed) - 0.5 : floor(uniform(&seed) * 3);
        assert_ok(*state, attn__assign(*state, cost, rows, columns, column));
        CLOSE(total(cost, rows, columns, column), least(cost, rows, columns, 0, 0), 1e-14);
        assert_ok(*state, attn__assign(*state, cost, rows, columns, again));
        assert_memory_equal(column, again, (size_t)rows * sizeof *column);
    }
    const double equal[6] = {0};
    int64_t column[2];
    assert_ok(*state, attn__assign(*state, equal, 2, 3, column));
    assert_true(column[0] == 0 && column[1] == 1);
}

/* The expected sums come from scipy.optimize.linear_sum_assignment of SciPy 1.17. */
static void assignments_cost_what_scipys_do(void **state)
{
    static const struct {
        int64_t rows, columns;
        double sum;
    } cases[] = {{1, 1, -0.30716331650914697},   {3, 3, -2.204824058889992},    {7, 20, -12.623362322552927},
                 {20, 100, -39.346930750475465}, {63, 64, -120.10783735922625}, {100, 100, -193.71317135885664}};
    static double cost[MOST * MOST];
    uint64_t seed = 1;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t column[MOST];
        for (int64_t i = 0; i < cases[c].rows * cases[c].columns; i++)
            cost[i] = uniform(&seed) * 4 - 2;
        assert_ok(*state, attn__assign(*state, cost, cases[c].rows, cases[c].columns, column));
        CLOSE(total(cost, cases[c].rows, cases[c].columns, column), cases[c].sum, 1e-12);
    }
}

static void costs_are_numbers(void **state)
{
    double cost[] = {1, 2, 3, 4, NAN, 6};
    int64_t column[3];
    assert_refused(*state, attn__assign(*state, cost, 2, 3, column), ATTN_ERROR_ARGUMENT, "row 1 and column 1 is nan");
    cost[4] = -INFINITY;
    assert_refused(*state, attn__assign(*state, cost, 2, 3, column), ATTN_ERROR_ARGUMENT, "is -inf");
    assert_refused(*state, attn__assign(*state, cost, 3, 2, column), ATTN_ERROR_ARGUMENT, "3 rows and 2 columns");
    cost[4] = -1e150;
    cost[0] = 1e150;
    assert_ok(*state, attn__assign(*state, cost, 2, 3, column));
    assert_true(column[1] == 1);
}

/* ------------------------------------------------------------------------------------------------ loss */

enum { BLOCKS = 2, IMAGES = 3, QUERIES = 6, CLASSES = 4, OBJECTS = 7 };

typedef struct sample {
    double logits[BLOCKS * IMAGES * QUERIES * (CLASSES + 1)], boxes[BLOCKS * IMAGES * QUERIES * 4], wanted[OBJECTS * 4];
    int32_t classes[OBJECTS];
    int64_t begin[IMAGES + 1];
    attn__targets targets;
} sample;

static void draw(sample *s)
{
    static const int64_t begin[] = {0, 2, 2, 7};
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof s->logits / sizeof *s->logits; i++)
        s->logits[i] = uniform(&seed) * 6 - 3;
    for (size_t i = 0; i < sizeof s->boxes / sizeof *s->boxes; i++)
        s->boxes[i] = 0.05 + 0.9 * uniform(&seed);
    for (int i = 0; i < OBJECTS; i++) {
        s->classes[i] = (int32_t)(uniform(&seed) * CLASSES);
        for (int k = 0; k < 4; k++)
            s->wanted[4 * i + k] = k < 2 ? 0.1 + 0.8 * uniform(&seed) : 0.05 + 0.5 * uniform(&seed);
    }
    for (int i = 0; i <= IMAGES; i++)
        s->begin[i] = begin[i];
    s->targets = (attn__targets){IMAGES, s->begin, s->classes, s->wanted};
}

/* Makes a tensor of the sample's numbers: those of one block, or of all blocks if `block` is negative. */
static attn_tensor *leaf(attn_tape *tape, attn_dtype dtype, const double *numbers, int64_t last, int block)
{
    int64_t shape[] = {block < 0 ? BLOCKS : 1, IMAGES, QUERIES, last}, size = IMAGES * QUERIES * last;
    attn_tensor *x = attn_tape_tensor(tape, dtype, 4, shape, NULL);
    for (int64_t i = 0; i < shape[0] * size; i++)
        test_set(x, i, numbers[(block > 0 ? size : 0) + i]);
    attn_tensor_set_requires_grad(x, true);
    return x;
}

static double length_of(const attn_tensor *x)
{
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        sum += test_at(x, i) * test_at(x, i);
    return sqrt(sum);
}

static double against_sines(const attn_tensor *x)
{
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        sum += test_at(x, i) * sin((double)(i + 1));
    return sum;
}

/* The expected terms and gradients come from SetCriterion of facebookresearch/detr in float64, with its own
 * assignment. */
static void terms_and_gradients_are_detrs(void **state)
{
    static const double terms[BLOCKS][3] = {{1.3860286859940711, 0.8323452332118448, 0.988628143971666},
                                            {2.977737564274423, 0.7188714890795576, 1.10985659178159}};
    tape_fixture *f = *state;
    sample s;
    draw(&s);
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype += ATTN_F64 - ATTN_F32) {
        const double near = dtype == ATTN_F64 ? 1e-12 : 1e-6;
        for (int block = 0; block < BLOCKS; block++) {
            attn_tensor *logits = leaf(f->tape, dtype, s.logits, CLASSES + 1, block);
            attn__detection_terms t;
            attn_tensor *boxes = leaf(f->tape, dtype, s.boxes, 4, block);
            assert_non_null(attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, &t));
            CLOSE(test_at(t.classes, 0), terms[block][0], near * 3);
            CLOSE(test_at(t.l1, 0), 5 * terms[block][1], near * 5);
            CLOSE(test_at(t.giou, 0), 2 * terms[block][2], near * 3);
        }
        attn_tensor *logits = leaf(f->tape, dtype, s.logits, CLASSES + 1, -1);
        attn_tensor *boxes = leaf(f->tape, dtype, s.boxes, 4, -1);
        attn_tensor *loss = attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, NULL);
        assert_ok(f->context, attn_backward(f->tape, loss));
        CLOSE(test_at(loss, 0), 16.31681933323202, near * 16);
        CLOSE(length_of(attn_tensor_grad(logits)), 0.47619467727378073, near);
        CLOSE(length_of(attn_tensor_grad(boxes)), 7.022926089420451, near * 7);
        CLOSE(against_sines(attn_tensor_grad(logits)), 0.45133108269878314, near);
        CLOSE(against_sines(attn_tensor_grad(boxes)), 0.729506463448135, near * 7);
    }
}

static attn_tensor *build_loss(attn_tape *tape, attn_tensor *const *in, const void *user)
{
    static const int64_t query[BLOCKS * OBJECTS] = {5, 0, 2, 1, 0, 3, 5, 0, 1, 5, 1, 2, 4, 0};
    const sample *s = user;
    attn__detection_loss_options options = {.l1 = 3, .no_object = 0.25, .query = query};
    attn_tensor *boxes = attn_activate(tape, in[1], ATTN_ACTIVATION_SIGMOID);
    return attn__detection_loss(tape, in[0], boxes, &s->targets, &options, NULL);
}

static void gradients_are_those_of_differences(void **state)
{
    sample s;
    draw(&s);
    gradcheck(
        2, build_loss, &s, 2,
        (const gradcheck_input[]){{4, {BLOCKS, IMAGES, QUERIES, CLASSES + 1}}, {4, {BLOCKS, IMAGES, QUERIES, 4}}});
}

/* The losses of the images of a batch sum to the loss of the batch, if they use the divisors of the whole batch. */
static void parts_of_a_batch_add_up(void **state)
{
    tape_fixture *f = *state;
    sample s;
    draw(&s);
    attn_tensor *logits = leaf(f->tape, ATTN_F64, s.logits, CLASSES + 1, 0);
    attn_tensor *boxes = leaf(f->tape, ATTN_F64, s.boxes, 4, 0);
    double whole = test_at(attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, NULL), 0), sum = 0;
    attn__detection_loss_options options = {0};
    attn__detection_divisors(&options, IMAGES * QUERIES, OBJECTS);
    for (int64_t i = 0; i < IMAGES; i++) {
        int64_t first = s.begin[i], begin[] = {0, s.begin[i + 1] - first};
        attn__targets one = {1, begin, s.classes + first, s.wanted + 4 * first};
        sum += test_at(attn__detection_loss(f->tape, attn_slice(f->tape, logits, 1, i, i + 1),
                                            attn_slice(f->tape, boxes, 1, i, i + 1), &one, &options, NULL),
                       0);
    }
    CLOSE(sum, whole, 1e-12);
}

static void images_without_objects_teach_that_there_are_none(void **state)
{
    tape_fixture *f = *state;
    sample s;
    draw(&s);
    const int64_t begin[IMAGES + 1] = {0};
    attn__targets none = {IMAGES, begin, NULL, NULL};
    attn__detection_terms t;
    attn_tensor *logits = leaf(f->tape, ATTN_F32, s.logits, CLASSES + 1, -1);
    attn_tensor *boxes = leaf(f->tape, ATTN_F32, s.boxes, 4, -1);
    attn_tensor *loss = attn__detection_loss(f->tape, logits, boxes, &none, NULL, &t);
    assert_ok(f->context, attn_backward(f->tape, loss));
    assert_true(test_at(t.l1, 0) == 0 && test_at(t.giou, 0) == 0 && test_at(t.classes, 0) > 0);
    assert_true(length_of(attn_tensor_grad(logits)) > 0);
    assert_true(attn_tensor_grad(boxes) && length_of(attn_tensor_grad(boxes)) == 0);
}

static void bad_targets_are_refused(void **state)
{
    tape_fixture *f = *state;
    sample s;
    draw(&s);
    attn_tensor *logits = leaf(f->tape, ATTN_F32, s.logits, CLASSES + 1, -1);
    attn_tensor *boxes = leaf(f->tape, ATTN_F32, s.boxes, 4, -1);
    const int64_t many[] = {0, 0, 0, 7};
    attn__targets bad = s.targets;
    bad.begin = many;
    assert_null(attn__detection_loss(f->tape, logits, boxes, &bad, NULL, NULL));
    assert_says(f->context, "image 2 of the batch has 7 objects, more than the model's 6 queries");
    s.classes[3] = CLASSES;
    assert_null(attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, NULL));
    assert_says(f->context, "is 4; it must be 0 to 3");
    s.classes[3] = 0;
    s.wanted[6] = 0;
    assert_null(attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, NULL));
    assert_says(f->context, "width and height must be above 0");
    s.wanted[6] = 0.5;
    test_set(boxes, 4 * QUERIES * 2, NAN);
    assert_null(attn__detection_loss(f->tape, logits, boxes, &s.targets, NULL, NULL));
    assert_says(f->context, "query 0 of image 2 of the batch are not finite");
    attn_tensor *flat = attn_reshape(f->tape, boxes, 2, (int64_t[]){-1, 4});
    assert_null(attn__detection_loss(f->tape, logits, flat, &s.targets, NULL, NULL));
    assert_says(f->context, "[...,B,Q,4] of B = 3 images");
    assert_null(attn_box_loss(f->tape, flat, logits, 1, 1));
    assert_says(f->context, "expected [N,4] for both");
    attn_tensor *target = test_random(f->tape, ATTN_F64, 2, (int64_t[]){2, 4}, 1);
    for (int i = 0; i < 8; i++)
        test_set(target, i, i == 6 ? -0.5 : 0.25);
    assert_null(attn_box_loss(f->tape, attn_affine(f->tape, target, 1, 0.5), target, 1, 1));
    assert_says(f->context, "target box 1 is -0.5 x 0.25");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH_CONTEXT(no_assignment_costs_less),
        TEST_WITH_CONTEXT(assignments_cost_what_scipys_do),
        TEST_WITH_CONTEXT(costs_are_numbers),
        TEST_WITH_RECORD(terms_and_gradients_are_detrs),
        TEST_WITH_CONTEXT(gradients_are_those_of_differences),
        TEST_WITH_TAPE(parts_of_a_batch_add_up),
        TEST_WITH_RECORD(images_without_objects_teach_that_there_are_none),
        TEST_WITH_TAPE(bad_targets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
