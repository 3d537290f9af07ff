/* SPDX-License-Identifier: MIT
 *
 * operations.c - measures single operations of tensors, forward and backward, for bench/peers/operations.py.
 *
 *     cc -O2 -pthread -Iinclude bench/operations.c build/libattn.a $(pkg-config --libs jansson cairo libpng) \
 *         -ljpeg -lz -lm -o operations
 *     ./operations SECONDS NAME:N,N... ...
 *
 * Prints the shortest time of the forward pass and of the backward pass, in milliseconds. Gradients are discarded
 * before each run.  ATTN_THREADS and ATTN_ISA apply. */
#define _POSIX_C_SOURCE 200809L
#include "attn/tensor.h"
#include "tensor/parts.h"
#include "tensor/tape_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 8 };

/* The sizes and tensors of an operation. x[0] is the input, and the parameters follow. */
typedef struct operands {
    int64_t n[MOST];
    attn_tensor *x[MOST];
    int count;
    attn_activation activation;
} operands;

typedef struct operation {
    const char *name;
    void (*make)(attn_context *context, operands *o);
    attn_tensor *(*run)(attn_tape *tape, const operands *o);
    attn_activation activation;
} operation;

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void check(const attn_context *context)
{
    if (attn_context_status(context) == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_context_error(context));
    exit(1);
}

static attn_tensor *add(attn_context *context, operands *o, int rank, const int64_t *shape)
{
    attn_tensor *x = NULL;
    uint32_t state = 12345;
    attn_tensor_create(&x, context, ATTN_F32, rank, shape);
    check(context);
    float *data = attn_tensor_data(x);
    for (int64_t i = 0; i < attn_tensor_size(x); i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (float)(state >> 8) / 8388608.0f - 1;
    }
    attn_tensor_set_requires_grad(x, true);
    return o->x[o->count++] = x;
}

static attn_tensor *add_integers(attn_context *context, operands *o, int64_t n, int64_t below)
{
    attn_tensor *x = NULL;
    attn_tensor_create(&x, context, ATTN_I32, 1, &n);
    check(context);
    int32_t *data = attn_tensor_data(x);
    for (int64_t i = 0; i < n; i++)
        data[i] = (int32_t)(i * 7919 % below);
    return o->x[o->count++] = x;
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void make_rows(attn_context *context, operands *o)
{
    add(context, o, SHAPE(o->n[0], o->n[1]));
}

static void make_two(attn_context *context, operands *o)
{
    make_rows(context, o);
    make_rows(context, o);
}

static void make_norm(attn_context *context, operands *o)
{
    make_rows(context, o);
    add(context, o, SHAPE(o->n[1]));
    add(context, o, SHAPE(o->n[1]));
}

static void make_add_norm(attn_context *context, operands *o)
{
    make_norm(context, o);
    make_rows(context, o);
}

static void make_image(attn_context *context, operands *o)
{
    add(context, o, SHAPE(o->n[0], o->n[1], o->n[2], o->n[3]));
}

static void make_image_norm(attn_context *context, operands *o)
{
    make_image(context, o);
    for (int i = 0; i < 4; i++)
        attn_tensor_set_requires_grad(add(context, o, SHAPE(o->n[1])), i < 2);
}

static void make_labels(attn_context *context, operands *o)
{
    make_rows(context, o);
    add_integers(context, o, o->n[0], o->n[1]);
}

/* Makes an embedding with these sizes: rows of the table, channels, words. */
static void make_embedding(attn_context *context, operands *o)
{
    make_rows(context, o);
    add_integers(context, o, o->n[2], o->n[0]);
}

/* Makes a linear layer with these sizes: rows, inputs, outputs. */
static void make_linear(attn_context *context, operands *o)
{
    make_rows(context, o);
    add(context, o, SHAPE(o->n[2], o->n[1]));
    add(context, o, SHAPE(o->n[2]));
}

/* Makes a product of matrices with these sizes: batch, m, n, k. */
static void make_matmul(attn_context *context, operands *o)
{
    add(context, o, SHAPE(o->n[0], o->n[1], o->n[3]));
    add(context, o, SHAPE(o->n[0], o->n[3], o->n[2]));
}

/* Makes a GRU with these sizes: steps, batch, inputs, hidden. */
static void make_gru(attn_context *context, operands *o)
{
    int64_t hidden = o->n[3], gates = 3 * hidden;
    add(context, o, SHAPE(o->n[0], o->n[1], o->n[2]));
    add(context, o, SHAPE(o->n[1], hidden));
    add(context, o, SHAPE(gates, o->n[2]));
    add(context, o, SHAPE(gates, hidden));
    add(context, o, SHAPE(gates));
    add(context, o, SHAPE(gates));
}

/* Makes a convolution with these sizes: batch, channels, height, width, outputs, kernel, stride, groups. */
static void make_convolution(attn_context *context, operands *o)
{
    make_image(context, o);
    add(context, o, SHAPE(o->n[4], o->n[1] / o->n[7], o->n[5], o->n[5]));
    add(context, o, SHAPE(o->n[4]));
}

static attn_tensor *run_add(attn_tape *tape, const operands *o)
{
    return attn_add(tape, o->x[0], o->x[1]);
}

static attn_tensor *run_multiply(attn_tape *tape, const operands *o)
{
    return attn_mul(tape, o->x[0], o->x[1]);
}

static attn_tensor *run_sum_rows(attn_tape *tape, const operands *o)
{
    return attn_sum(tape, o->x[0], 0);
}

static attn_tensor *run_mean(attn_tape *tape, const operands *o)
{
    return attn_mean(tape, o->x[0], 1);
}

static attn_tensor *run_activation(attn_tape *tape, const operands *o)
{
    return attn_activate(tape, o->x[0], o->activation);
}

static attn_tensor *run_softmax(attn_tape *tape, const operands *o)
{
    return attn_softmax(tape, o->x[0], NULL, 0);
}

static attn_tensor *run_dropout(attn_tape *tape, const operands *o)
{
    return attn_dropout(tape, o->x[0], 0.1);
}

static attn_tensor *run_layer_norm(attn_tape *tape, const operands *o)
{
    return attn_layer_norm(tape, o->x[0], o->x[1], o->x[2], 1e-5);
}

static attn_tensor *run_add_norm(attn_tape *tape, const operands *o)
{
    return attn_add_layer_norm(tape, o->x[0], o->x[3], 0.1, o->x[1], o->x[2], 1e-5);
}

static attn_tensor *run_channel_norm(attn_tape *tape, const operands *o)
{
    return attn_channel_norm(tape, o->x[0], 1, o->x[1], o->x[2], 1e-5, ATTN_NORM_VARIANCE);
}

static attn_tensor *run_batch_norm(attn_tape *tape, const operands *o)
{
    return attn_batch_norm(tape, o->x[0], o->x[1], o->x[2], o->x[3], o->x[4], 0.1, 1e-5);
}

static attn_tensor *run_cross_entropy(attn_tape *tape, const operands *o)
{
    return attn_cross_entropy(tape, o->x[0], o->x[1], NULL);
}

static attn_tensor *run_embedding(attn_tape *tape, const operands *o)
{
    return attn_embedding(tape, o->x[0], o->x[1], 1, NULL, 0);
}

static attn_tensor *run_linear(attn_tape *tape, const operands *o)
{
    return attn_linear(tape, o->x[0], o->x[1], o->x[2], o->activation);
}

static attn_tensor *run_matmul(attn_tape *tape, const operands *o)
{
    return attn_matmul(tape, o->x[0], o->x[1], false, false);
}

static attn_tensor *run_gru(attn_tape *tape, const operands *o)
{
    return attn_gru(tape, o->x[0], o->x[1], o->x[2], o->x[3], o->x[4], o->x[5]);
}

static attn_tensor *run_convolution(attn_tape *tape, const operands *o)
{
    int64_t stride = o->n[6], padding = (o->n[5] - 1) / 2;
    const attn_conv conv = {.spatial = 2, .stride = {stride, stride}, .padding = {padding, padding}, .groups = o->n[7]};
    return attn_convolve(tape, o->x[0], o->x[1], o->x[2], &conv);
}

static attn_tensor *run_max_pool(attn_tape *tape, const operands *o)
{
    return attn_max_pool(tape, o->x[0], 2, (int64_t[]){3, 3}, (int64_t[]){2, 2}, (int64_t[]){1, 1});
}

static attn_tensor *run_avg_pool(attn_tape *tape, const operands *o)
{
    return attn_avg_pool(tape, o->x[0], 2, (int64_t[]){2, 2}, NULL);
}

static attn_tensor *run_double_size(attn_tape *tape, const operands *o)
{
    attn_tensor *x = attn_interpolate(tape, o->x[0], 2, 2 * o->n[2], ATTN_INTERPOLATE_LINEAR);
    return attn_interpolate(tape, x, 3, 2 * o->n[3], ATTN_INTERPOLATE_LINEAR);
}

static attn_tensor *run_permute(attn_tape *tape, const operands *o)
{
    return attn_permute(tape, o->x[0], (int[]){0, 2, 3, 1});
}

static attn_tensor *run_concat(attn_tape *tape, const operands *o)
{
    return attn_concat(tape, o->x, 2, 1);
}

static const operation operations[] = {{"add", make_two, run_add},
                                       {"multiply", make_two, run_multiply},
                                       {"add_vector", make_norm, run_add},
                                       {"sum_rows", make_rows, run_sum_rows},
                                       {"mean", make_rows, run_mean},
                                       {"relu", make_rows, run_activation, ATTN_ACTIVATION_RELU},
                                       {"gelu", make_rows, run_activation, ATTN_ACTIVATION_GELU_ERF},
                                       {"gelu_tanh", make_rows, run_activation, ATTN_ACTIVATION_GELU_TANH},
                                       {"tanh", make_rows, run_activation, ATTN_ACTIVATION_TANH},
                                       {"sigmoid", make_rows, run_activation, ATTN_ACTIVATION_SIGMOID},
                                       {"silu", make_rows, run_activation, ATTN_ACTIVATION_SILU},
                                       {"softmax", make_rows, run_softmax},
                                       {"dropout", make_rows, run_dropout},
                                       {"layer_norm", make_norm, run_layer_norm},
                                       {"add_norm", make_add_norm, run_add_norm},
                                       {"channel_norm", make_image_norm, run_channel_norm},
                                       {"batch_norm", make_image_norm, run_batch_norm},
                                       {"cross_entropy", make_labels, run_cross_entropy},
                                       {"embedding", make_embedding, run_embedding},
                                       {"linear", make_linear, run_linear},
                                       {"linear_gelu", make_linear, run_linear, ATTN_ACTIVATION_GELU_ERF},
                                       {"matmul", make_matmul, run_matmul},
                                       {"gru", make_gru, run_gru},
                                       {"convolution", make_convolution, run_convolution},
                                       {"max_pool", make_image, run_max_pool},
                                       {"avg_pool", make_image, run_avg_pool},
                                       {"double_size", make_image, run_double_size},
                                       {"permute", make_image, run_permute},
                                       {"concat", make_two, run_concat}};

/* Returns the time to copy a gradient. It is subtracted, because attn_backward_from makes such a copy, but
 * operations inside of a model do not. */
static double copy_ms(float *to, const attn_tensor *from)
{
    double begin = milliseconds();
    memcpy(to, attn_tensor_data(from), (size_t)attn_tensor_size(from) * sizeof *to);
    return milliseconds() - begin;
}

/* Runs one forward and backward pass. Updates the shortest times in `ms`: forward pass, backward pass, and the copy
 * of the gradient that the backward pass includes. */
static void measure(attn_tape *tape, const operation *op, const operands *o, double ms[3])
{
    for (int i = 0; i < o->count; i++)
        attn_tensor_drop_grad(o->x[i]);
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 1});
    double begin = milliseconds();
    attn_tensor *y = op->run(tape, o);
    double forward = milliseconds() - begin;
    check(attn_tape_context(tape));
    attn_tensor *grad = attn_tape_tensor(tape, ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y), NULL);
    check(attn_tape_context(tape));
    double copy = copy_ms(attn_tensor_data(grad), y);
    begin = milliseconds();
    attn_backward_from(tape, y, grad);
    double backward = milliseconds() - begin;
    check(attn_tape_context(tape));
    ms[0] = forward < ms[0] ? forward : ms[0];
    ms[1] = backward < ms[1] ? backward : ms[1];
    ms[2] = copy < ms[2] ? copy : ms[2];
}

static void run(attn_context *context, double seconds, const char *text)
{
    const operation *op = operations, *all = op + sizeof operations / sizeof *operations;
    operands o = {.n = {1, 1, 1, 1, 1, 1, 1, 1}};
    attn_tape *tape;
    double ms[3] = {1e30, 1e30, 1e30}, end = milliseconds() + 1e3 * seconds;
    size_t length = strcspn(text, ":");
    while (op < all && (strlen(op->name) != length || strncmp(op->name, text, length) != 0))
        op++;
    const char *at = text + length;
    for (int i = 0; i < MOST && (*at == ':' || *at == ','); i++) {
        char *next;
        o.n[i] = strtoll(at + 1, &next, 10);
        at = next;
    }
    if (op == all || *at) {
        fprintf(stderr, "operations: %s: not of the form NAME:N,N...\n", text);
        exit(2);
    }
    o.activation = op->activation;
    op->make(context, &o);
    attn_tape_create(&tape, context);
    check(context);
    for (int turn = 0; turn < 5 || milliseconds() < end; turn++)
        measure(tape, op, &o, ms);
    printf("%s %.5f %.5f\n", text, ms[0], ms[1] - ms[2]);
    fflush(stdout);
    attn_tape_destroy(tape);
    for (int i = 0; i < o.count; i++)
        attn_tensor_destroy(o.x[i]);
}

int main(int argc, char **argv)
{
    attn_context *context;
    if (argc < 3) {
        fprintf(stderr, "usage: operations SECONDS NAME:N,N... ...\n");
        return 2;
    }
    if (attn_context_create(&context, NULL) != ATTN_OK)
        return 1;
    for (int i = 2; i < argc; i++)
        run(context, atof(argv[1]), argv[i]);
    attn_context_destroy(context);
    return 0;
}
