/* SPDX-License-Identifier: MIT
 *
 * Compares the gradients of every operation, with respect to each input, with central differences in double precision.
 */
#include "support/cmocka.h"
#include "support/gradcheck.h"

#include "attn/tensor.h"
#include "tensor/parts.h"

typedef attn_tensor *const *tensors;
#define IN(...)      ((const gradcheck_input[]){__VA_ARGS__})
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ------------------------------------------------------------------------------------------ arithmetic */

static attn_tensor *build_binary(attn_tape *t, tensors in, const void *user)
{
    attn_tensor *(*const ops[])(attn_tape *, attn_tensor *, attn_tensor *) = {attn_add, attn_sub, attn_mul};
    return ops[*(const int *)user](t, in[0], in[1]);
}

static void sums_and_products_broadcast(void **state)
{
    static const gradcheck_input pairs[][2] = {
        {{2, {3, 5}}, {2, {3, 5}}},
        {{2, {3, 5}}, {1, {5}}},
        {{1, {1}}, {3, {2, 3, 4}}},
        {{3, {2, 1, 4}}, {3, {1, 3, 1}}},
        {{4, {2, 3, 1, 2}}, {2, {4, 1}}},
        {{0, {0}}, {2, {2, 3}}},
        {{4, {2, 3, 2, 3}}, {4, {1, 3, 1, 3}}},
        {{1, {1}}, {1, {1}}},
    };
    for (int op = 0; op < 3; op++)
        for (int i = 0; i < COUNT(pairs); i++)
            gradcheck(1 + i % 3, build_binary, &op, 2, pairs[i]);
}

static attn_tensor *build_square(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_add(t, attn_mul(t, in[0], in[0]), attn_sub(t, in[0], attn_affine(t, in[0], -2.5, 0.5)));
}

static void one_tensor_used_often_adds_up(void **state)
{
    gradcheck(2, build_square, NULL, 1, IN({2, {3, 7}}));
}

static attn_tensor *build_reduce(attn_tape *t, tensors in, const void *user)
{
    int axis = *(const int *)user;
    attn_tensor *y = attn_sum(t, in[0], axis);
    return attn_add(t, attn_mul(t, y, y), attn_mean(t, in[0], axis));
}

static void sums_over_an_axis(void **state)
{
    for (int axis = -3; axis < 3; axis++)
        gradcheck(2, build_reduce, &axis, 1, IN({3, {3, 4, 5}}));
}

static attn_tensor *build_activate(attn_tape *t, tensors in, const void *user)
{
    return attn_activate(t, in[0], *(const attn_activation *)user);
}

static attn_tensor *build_linear(attn_tape *t, tensors in, const void *user)
{
    return attn_linear(t, in[0], in[1], in[2], *(const attn_activation *)user);
}

static attn_tensor *build_linear_plain(attn_tape *t, tensors in, const void *user)
{
    return attn_linear(t, in[0], in[1], NULL, *(const attn_activation *)user);
}

static void activations_alone_and_after_linear(void **state)
{
    for (attn_activation a = ATTN_ACTIVATION_IDENTITY; a <= ATTN_ACTIVATION_SILU; a++) {
        gradcheck(2, build_activate, &a, 1, IN({2, {3, 17}}));
        gradcheck(2, build_linear, &a, 3, IN({3, {2, 3, 5}}, {2, {7, 5}}, {1, {7}}));
        gradcheck(1, build_linear_plain, &a, 2, IN({1, {4}}, {2, {3, 4}}));
    }
}

static attn_tensor *build_matmul(attn_tape *t, tensors in, const void *user)
{
    int flags = *(const int *)user;
    return attn_matmul(t, in[0], in[1], flags & 1, flags & 2);
}

static void matrix_products_in_every_transposition(void **state)
{
    for (int flags = 0; flags < 4; flags++) {
        int64_t m = 3, k = 4, n = 5, am = flags & 1 ? k : m, ak = flags & 1 ? m : k;
        int64_t bk = flags & 2 ? n : k, bn = flags & 2 ? k : n;
        gradcheck(2, build_matmul, &flags, 2, IN({2, {am, ak}}, {2, {bk, bn}}));
        gradcheck(1, build_matmul, &flags, 2, IN({4, {2, 2, am, ak}}, {4, {2, 2, bk, bn}}));
        gradcheck(2, build_matmul, &flags, 2, IN({3, {3, am, ak}}, {2, {bk, bn}}));
    }
}

/* ---------------------------------------------------------------------------------------------- shapes */

static attn_tensor *build_shapes(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    attn_tensor *x = attn_permute(t, in[0], (int[]){2, 0, 1});          /* [4,2,3] */
    attn_tensor *y = attn_reshape(t, in[1], 3, (int64_t[]){4, -1, 3});  /* [4,1,3] */
    attn_tensor *z = attn_concat(t, (attn_tensor *[]){x, y, x}, 3, 1);  /* [4,5,3] */
    attn_tensor *s = attn_slice(t, z, 1, 1, 4);                         /* [4,3,3] */
    attn_tensor *u = attn_slice(t, attn_slice(t, z, 0, 1, 4), 2, 0, 2); /* [3,5,2] */
    attn_tensor *v = attn_reshape(t, attn_concat(t, (attn_tensor *[]){s, s}, 2, -1), 2, (int64_t[]){8, 9});
    return attn_concat(
        t, (attn_tensor *[]){attn_reshape(t, u, 1, (int64_t[]){-1}), attn_reshape(t, v, 1, (int64_t[]){72})}, 2, 0);
}

static void shapes_change_and_parts_join(void **state)
{
    gradcheck(2, build_shapes, NULL, 2, IN({3, {2, 3, 4}}, {2, {4, 3}}));
}

static attn_tensor *build_cast(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_cast(t, attn_affine(t, in[0], 1, 0), ATTN_F64);
}

static void casts_pass_gradients(void **state)
{
    gradcheck(1, build_cast, NULL, 1, IN({1, {5}}));
}

static attn_tensor *build_lookup(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    const int32_t ids[] = {3, 0, 3, 1, 3, 0};
    attn_tensor *index = attn_tape_tensor(t, ATTN_I32, 2, (int64_t[]){2, 3}, ids);
    attn_tensor *a = attn_embedding(t, in[0], index, 1.7, in[1], 1);
    attn_tensor *b = attn_embedding(t, in[0], index, 1, NULL, 0);
    return attn_concat(t, (attn_tensor *[]){a, b, attn_index_select(t, attn_mul(t, in[0], in[0]), index)}, 3, 0);
}

static attn_tensor *build_gather_blocks(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    const int32_t ids[] = {1, 1, 0};
    return attn_index_select(t, in[0], attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){3}, ids));
}

static void rows_looked_up_twice_add_up(void **state)
{
    gradcheck(3, build_lookup, NULL, 2, IN({2, {4, 5}}, {2, {4, 5}}));
    gradcheck(2, build_gather_blocks, NULL, 1, IN({3, {2, 3, 2}}));
}

/* ------------------------------------------------------------------------------- normalization and loss */

static attn_tensor *build_softmax(attn_tape *t, tensors in, const void *user)
{
    const double *fill = user;
    const int32_t lens[] = {2, 0, 5, 1, 4, 3};
    attn_tensor *rows = attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){6}, lens);
    attn_tensor *first = attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){2}, lens);
    attn_tensor *a = attn_softmax(t, in[0], NULL, 0), *b = attn_softmax(t, in[0], rows, *fill);
    return attn_add(t, attn_add(t, a, b), attn_softmax(t, in[0], first, *fill));
}

static void softmax_with_lengths(void **state)
{
    for (double fill = -1; fill <= 0; fill += 1)
        gradcheck(2, build_softmax, &fill, 1, IN({3, {2, 3, 5}}));
}

static attn_tensor *build_norm(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_layer_norm(t, in[0], in[1], in[2], 1e-5);
}

static attn_tensor *build_add_norm(attn_tape *t, tensors in, const void *user)
{
    return attn_add_layer_norm(t, in[0], in[1], *(const double *)user, in[2], in[3], 1e-5);
}

/* With a gain of zero, the normalized rows cannot be recomputed from the output. */
static attn_tensor *build_zero_gain(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    double flags[] = {1, 0, 1, 0, 1};
    attn_tensor *gain = attn_mul(t, in[1], attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){5}, flags));
    return attn_layer_norm(t, in[0], gain, in[2], 1e-5);
}

static void layer_norm_alone_and_after_a_sum(void **state)
{
    gradcheck(2, build_norm, NULL, 3, IN({3, {2, 3, 5}}, {1, {5}}, {1, {5}}));
    gradcheck(1, build_zero_gain, NULL, 3, IN({2, {3, 5}}, {1, {5}}, {1, {5}}));
    for (double p = 0; p < 0.7; p += 0.3)
        gradcheck(2, build_add_norm, &p, 4, IN({3, {3, 2, 7}}, {3, {3, 2, 7}}, {1, {7}}, {1, {7}}));
}

static attn_tensor *build_rms(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_rms_norm(t, in[0], in[1], in[2], 1e-5);
}

static void norm_by_the_root_mean_square(void **state)
{
    gradcheck(2, build_rms, NULL, 3, IN({3, {2, 3, 5}}, {1, {5}}, {1, {5}}));
}

/* Rotates heads of six channels, four of which turn, by tokens' own positions or by those of `user`. */
static attn_tensor *build_rotate(attn_tape *t, tensors in, const void *user)
{
    const int how = *(const int *)user;
    const double table[] = {1, 1, 0, 0, 0.8, 0.96, 0.6, 0.28, 0.28, 0.6, -0.96, 0.8};
    const int32_t positions[] = {2, 0, 1, 1, 0, 2};
    attn_rotary rotary = {.table = attn_tape_tensor(t, ATTN_F64, 2, (int64_t[]){3, 4}, table),
                          .heads = 2,
                          .pairs = how & 1,
                          .positions = how & 2 ? attn_tape_tensor(t, ATTN_I32, 2, (int64_t[]){2, 3}, positions) : NULL};
    attn_tensor *y = attn_rotate(t, in[0], &rotary);
    return how & 4 ? attn_mul(t, y, in[0]) : y;
}

static void rotary_positions(void **state)
{
    for (int how = 0; how < 8; how++)
        gradcheck(2, build_rotate, &how, 1, IN({3, {2, 3, 12}}));
}

static attn_tensor *build_dropout(attn_tape *t, tensors in, const void *user)
{
    attn_tensor *once = attn_dropout(t, in[0], *(const double *)user);
    return attn_mul(t, once, attn_dropout(t, in[0], *(const double *)user));
}

static void dropout_drops_the_same_twice(void **state)
{
    for (double p = 0; p < 0.7; p += 0.3)
        gradcheck(2, build_dropout, &p, 1, IN({2, {5, 19}}));
}

static attn_tensor *build_entropy(attn_tape *t, tensors in, const void *user)
{
    const int32_t labels[] = {4, 1, 0, 1};
    attn_tensor *label = attn_tape_tensor(t, ATTN_I32, 2, (int64_t[]){2, 2}, labels);
    attn_tensor *logits = attn_affine(t, in[0], 3, 0);
    attn_tensor *other = attn_activate(t, logits, ATTN_ACTIVATION_TANH);
    attn_tensor *loss = attn_cross_entropy(t, logits, label, user);
    attn_tensor *direct = attn_cross_entropy(t, in[0], label, NULL);
    return attn_add(t, attn_add(t, loss, direct), attn_mul(t, other, logits));
}

static void cross_entropy_with_ignored_labels_and_smoothing(void **state)
{
    const attn_cross_entropy_options options[] = {
        {0},
        {.use_ignore_index = true, .ignore_index = 1},
        {.label_smoothing = 0.2},
        {.use_ignore_index = true, .ignore_index = -100, .divisor = 7},
        {.use_ignore_index = true, .ignore_index = 1, .label_smoothing = 0.1, .divisor = 3},
    };
    for (int i = 0; i < COUNT(options); i++)
        gradcheck(2, build_entropy, &options[i], 1, IN({3, {2, 2, 5}}));
}

/* The weights are [2,heads,3,4]. Rows of the target mark one, two or no positions. */
static attn_tensor *build_guided(attn_tape *t, tensors in, const void *user)
{
    double wanted[24] = {[1] = 1, [4] = 0.5, [7] = 0.5, [14] = 0.25, [15] = 0.75, [23] = 1};
    attn_tensor *map = attn_tape_tensor(t, ATTN_F64, 3, (int64_t[]){2, 3, 4}, wanted);
    attn_tensor *weights = attn_softmax(t, in[0], NULL, 0);
    attn_tensor *loss = attn_weights_cross_entropy(t, weights, map, *(const double *)user);
    return attn_add(t, loss, attn_mul(t, weights, weights));
}

static void cross_entropy_of_weights(void **state)
{
    const double divisors[] = {1, 7};
    for (int i = 0; i < 2; i++) {
        gradcheck(1 + i, build_guided, &divisors[i], 1, IN({4, {2, 1, 3, 4}}));
        gradcheck(1 + i, build_guided, &divisors[i], 1, IN({4, {2, 3, 3, 4}}));
    }
}

/* ------------------------------------------------------------------------------------------- recurrence */

static attn_tensor *build_gru(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_gru(t, in[0], in[1], in[2], in[3], in[4], in[5]);
}

static attn_tensor *build_gru_zero(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_gru(t, in[0], NULL, in[1], in[2], in[3], in[4]);
}

static void recurrent_units_of_one_step_and_more(void **state)
{
    for (int64_t steps = 1; steps <= 3; steps += 2) {
        gradcheck(2, build_gru, NULL, 6,
                  IN({3, {steps, 3, 4}}, {2, {3, 5}}, {2, {15, 4}}, {2, {15, 5}}, {1, {15}}, {1, {15}}));
        gradcheck(1, build_gru_zero, NULL, 5, IN({3, {steps, 2, 3}}, {2, {6, 3}}, {2, {6, 2}}, {1, {6}}, {1, {6}}));
    }
}

/* -------------------------------------------------------------------------------------------- attention */

enum { BATCH = 2, HEADS = 2, TIME = 3, DIM = 4, WIDTH = HEADS * DIM };

static attn_attention heads_attention(attn_operand q, attn_operand k, attn_operand v, int64_t row, attn_causal causal)
{
    attn_attention a = {.q = q, .k = k, .v = v, .rank = 3, .shape = {BATCH, TIME, WIDTH}};
    attn_problem_heads(&a.problem, &(attn_heads){.batch = BATCH,
                                                 .heads = HEADS,
                                                 .queries = TIME,
                                                 .keys = TIME,
                                                 .dim = DIM,
                                                 .q_row = row,
                                                 .k_row = row,
                                                 .v_row = row,
                                                 .causal = causal});
    return a;
}

/* `user` selects the operands. 0: three tensors; 1: a packed matrix; 2: one tensor for k and v; 3: one tensor for
 * all; 4: three tensors, where another operation also uses the query, so that its gradient already exists. */
static attn_tensor *build_attend(attn_tape *t, tensors in, const void *user)
{
    int how = *(const int *)user;
    attn_attention a;
    if (how == 1)
        a = heads_attention((attn_operand){in[0], 0}, (attn_operand){in[0], WIDTH}, (attn_operand){in[0], 2 * WIDTH},
                            3 * WIDTH, ATTN_CAUSAL_TOP_LEFT);
    else
        a = heads_attention((attn_operand){in[0], 0}, (attn_operand){in[how == 3 ? 0 : 1], 0},
                            (attn_operand){in[how == 3   ? 0
                                              : how == 2 ? 1
                                                         : 2],
                                           0},
                            0, ATTN_CAUSAL_NONE);
    a.dropout = how == 0 ? 0.3 : 0;
    attn_tensor *y = attn_attend(t, &a);
    return how == 4 ? attn_add(t, y, in[0]) : y;
}

static void attention_whose_operands_share_tensors(void **state)
{
    const gradcheck_input x = {3, {BATCH, TIME, WIDTH}}, packed = {3, {BATCH, TIME, 3 * WIDTH}};
    for (int how = 0; how <= 4; how++) {
        int n = how == 0 || how == 4 ? 3 : how == 2 ? 2 : 1;
        gradcheck(2, build_attend, &how, n, IN(how == 1 ? packed : x, x, x));
    }
}

static attn_tensor *build_attend_bias(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    attn_attention a = heads_attention((attn_operand){in[0], 0}, (attn_operand){in[1], 0}, (attn_operand){in[2], 0}, 0,
                                       ATTN_CAUSAL_NONE);
    const int32_t lens[] = {2, 3};
    a.lens = attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){BATCH}, lens);
    a.bias = in[3];
    for (int i = 0; i < a.problem.ndims; i++) {
        attn_dim *d = &a.problem.dims[i];
        d->bias = d->role == ATTN_ROLE_QUERY ? TIME : d->role == ATTN_ROLE_KEY ? 1 : 0;
        d->lens = i == 0;
    }
    for (int i = 0; i < a.problem.ndims; i++)
        a.problem.lens_dim = a.problem.dims[i].role == ATTN_ROLE_KEY ? i : a.problem.lens_dim;
    return attn_attend(t, &a);
}

static attn_tensor *build_attend_packed(attn_tape *t, tensors in, const void *user)
{
    const int32_t offsets[] = {0, 3, 4, 9};
    const attn_heads heads = {.batch = 3,
                              .heads = 2,
                              .queries = 5,
                              .keys = 5,
                              .dim = 4,
                              .packed = true,
                              .packed_queries = 9,
                              .packed_keys = 9};
    attn_attention a = {.q = {in[0], 0},
                        .k = {in[1], 0},
                        .v = {in[2], 0},
                        .offsets = attn_tape_tensor(t, ATTN_I32, 1, (int64_t[]){4}, offsets),
                        .rank = 3,
                        .shape = {1, 9, 8}};
    (void)user;
    assert_int_equal(attn_problem_heads(&a.problem, &heads), ATTN_OK);
    return attn_attend(t, &a);
}

static void attention_of_packed_sequences(void **state)
{
    const gradcheck_input x = {3, {1, 9, 8}};
    gradcheck(2, build_attend_packed, NULL, 3, IN(x, x, x));
}

static void attention_with_a_shared_bias(void **state)
{
    const gradcheck_input x = {3, {BATCH, TIME, WIDTH}};
    gradcheck(2, build_attend_bias, NULL, 4, IN(x, x, x, {2, {TIME, TIME}}));
}

/* A sigmoid, with one b for each head if there are four inputs. */
static attn_tensor *build_attend_sigmoid(attn_tape *t, tensors in, const void *user)
{
    bool of_heads = *(const bool *)user;
    attn_attention a = heads_attention((attn_operand){in[0], 0}, (attn_operand){in[1], 0}, (attn_operand){in[2], 0}, 0,
                                       ATTN_CAUSAL_TOP_LEFT);
    a.problem.normalization = ATTN_NORMALIZATION_SIGMOID;
    a.problem.own_sigmoid_bias = of_heads;
    a.bias = of_heads ? in[3] : NULL;
    a.problem.dims[1].bias = of_heads;
    return attn_attend(t, &a);
}

static void attention_by_sigmoids(void **state)
{
    const gradcheck_input x = {3, {BATCH, TIME, WIDTH}};
    for (int of_heads = 0; of_heads < 2; of_heads++)
        gradcheck(2, build_attend_sigmoid, &(bool){of_heads}, 3 + of_heads, IN(x, x, x, {1, {HEADS}}));
}

static attn_tensor *build_attend_additive(attn_tape *t, tensors in, const void *user)
{
    bool use_w2 = *(const bool *)user;
    attn_attention a = heads_attention((attn_operand){in[0], 0}, (attn_operand){in[1], 0}, (attn_operand){in[2], 0}, 0,
                                       ATTN_CAUSAL_NONE);
    a.problem.score = use_w2 ? ATTN_SCORE_CONCAT : ATTN_SCORE_ADDITIVE;
    a.w = in[3];
    a.w2 = use_w2 ? in[4] : NULL;
    for (int i = 0; i < a.problem.ndims; i++)
        a.problem.dims[i].w = a.problem.dims[i].role == ATTN_ROLE_CONTRACT;
    return attn_attend(t, &a);
}

static void additive_attention_and_its_vectors(void **state)
{
    const gradcheck_input x = {3, {BATCH, TIME, WIDTH}};
    for (int use_w2 = 0; use_w2 < 2; use_w2++) {
        bool flag = use_w2;
        gradcheck(2, build_attend_additive, &flag, 4 + use_w2, IN(x, x, x, {1, {DIM}}, {1, {DIM}}));
    }
}

/* ------------------------------------------------------------------------------------------ convolution */

static attn_tensor *build_convolve(attn_tape *t, tensors in, const void *user)
{
    return attn_convolve(t, in[0], in[1], in[2], user);
}

static void convolutions_of_one_to_three_axes(void **state)
{
    gradcheck(2, build_convolve, &(attn_conv){.spatial = 1, .padding = {1}}, 3,
              IN({3, {2, 3, 7}}, {3, {4, 3, 3}}, {1, {4}}));
    gradcheck(2, build_convolve, &(attn_conv){.spatial = 2, .stride = {2, 1}, .padding = {1, 2}, .groups = 2}, 3,
              IN({4, {2, 4, 5, 4}}, {4, {6, 2, 3, 2}}, {1, {6}}));
    const attn_activation kinds[] = {ATTN_ACTIVATION_LEAKY_RELU, ATTN_ACTIVATION_TANH, ATTN_ACTIVATION_GELU_ERF};
    for (int i = 0; i < 3; i++)
        gradcheck(1, build_convolve, &(attn_conv){.spatial = 2, .activation = kinds[i]}, 3,
                  IN({4, {2, 3, 5, 4}}, {4, {4, 3, 3, 2}}, {1, {4}}));
    gradcheck(1, build_convolve, &(attn_conv){.spatial = 2, .padding = {2, 3}, .dilation = {2, 3}}, 3,
              IN({4, {2, 3, 5, 4}}, {4, {4, 3, 3, 3}}, {1, {4}}));
    gradcheck(1, build_convolve, &(attn_conv){.spatial = 2, .stride = {2, 1}, .padding = {5, 1}, .dilation = {2, 2}}, 3,
              IN({4, {2, 2, 5, 4}}, {4, {3, 2, 3, 2}}, {1, {3}}));
    gradcheck(1, build_convolve, &(attn_conv){.spatial = 3}, 3,
              IN({5, {1, 2, 3, 4, 3}}, {5, {2, 2, 2, 1, 3}}, {1, {2}}));
}

static attn_tensor *build_pool(attn_tape *t, tensors in, const void *user)
{
    const int64_t *k = user;
    attn_tensor *largest = attn_max_pool(t, in[0], 2, k, k + 2, NULL);
    return attn_mul(t, largest, attn_avg_pool(t, in[0], 2, k, k + 2));
}

static attn_tensor *build_padded_pool(attn_tape *t, tensors in, const void *user)
{
    (void)user;
    return attn_max_pool(t, in[0], 2, (int64_t[]){3, 2}, (int64_t[]){2, 1}, (int64_t[]){1, 1});
}

static void pooling_over_windows(void **state)
{
    gradcheck(2, build_padded_pool, NULL, 1, IN({4, {2, 3, 5, 4}}));
    gradcheck(2, build_pool, (int64_t[]){2, 3, 0, 0}, 1, IN({4, {2, 3, 5, 7}}));
    gradcheck(2, build_pool, (int64_t[]){3, 2, 1, 2}, 1, IN({4, {1, 2, 4, 6}}));
}

/* Makes new running statistics for each evaluation, because training changes them. */
static attn_tensor *build_batch_norm(attn_tape *t, tensors in, const void *user)
{
    double ones[3] = {1, 1, 1};
    attn_tensor *mean = attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){3}, NULL);
    attn_tensor *var = attn_tape_tensor(t, ATTN_F64, 1, (int64_t[]){3}, ones);
    return attn_batch_norm(t, in[0], in[1], in[2], mean, var, *(const double *)user, 1e-5);
}

static void batch_statistics_move_with_the_batch(void **state)
{
    gradcheck(2, build_batch_norm, &(double){0.1}, 3, IN({4, {2, 3, 2, 3}}, {1, {3}}, {1, {3}}));
    gradcheck(1, build_batch_norm, &(double){0.1}, 3, IN({2, {5, 3}}, {1, {3}}, {1, {3}}));
}

RUN_TESTS(TEST(sums_and_products_broadcast), TEST(one_tensor_used_often_adds_up), TEST(sums_over_an_axis),
          TEST(activations_alone_and_after_linear), TEST(matrix_products_in_every_transposition),
          TEST(shapes_change_and_parts_join), TEST(casts_pass_gradients), TEST(rows_looked_up_twice_add_up),
          TEST(softmax_with_lengths), TEST(layer_norm_alone_and_after_a_sum), TEST(norm_by_the_root_mean_square),
          TEST(rotary_positions), TEST(attention_of_packed_sequences), TEST(dropout_drops_the_same_twice),
          TEST(cross_entropy_with_ignored_labels_and_smoothing), TEST(cross_entropy_of_weights),
          TEST(recurrent_units_of_one_step_and_more), TEST(attention_whose_operands_share_tensors),
          TEST(attention_with_a_shared_bias), TEST(attention_by_sigmoids), TEST(additive_attention_and_its_vectors),
          TEST(convolutions_of_one_to_three_axes), TEST(pooling_over_windows),
          TEST(batch_statistics_move_with_the_batch))
