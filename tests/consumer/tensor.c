/* SPDX-License-Identifier: MIT
 *
 * tensor.h: a linear layer, the loss of its logits, and the gradients of the loss. */
#include <attn/tensor.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { N = 2, IN = 3, OUT = 4 };

int main(void)
{
    float x[N][IN] = {{1, 2, 3}, {-1, 0.5f, 2}}, w[OUT][IN], b[OUT] = {0.1f, -0.2f, 0.3f, 0};
    const int32_t labels[N] = {2, 0};
    for (int i = 0; i < OUT * IN; i++)
        (&w[0][0])[i] = (float)sin(i);

    /* The same by hand: probabilities, the mean of -log p[label], and its gradient by the bias. */
    double p[N][OUT], expected_loss = 0, expected_grad[OUT] = {0};
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int o = 0; o < OUT; o++) {
            double logit = b[o];
            for (int c = 0; c < IN; c++)
                logit += (double)x[i][c] * w[o][c];
            sum += p[i][o] = exp(logit);
        }
        for (int o = 0; o < OUT; o++)
            expected_grad[o] += ((p[i][o] /= sum) - (o == labels[i])) / N;
        expected_loss -= log(p[i][labels[i]]) / N;
    }

    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    attn_tensor *weight, *bias;
    CHECK(attn_tensor_create(&weight, context, ATTN_F32, 2, (int64_t[]){OUT, IN}) == ATTN_OK);
    memcpy(attn_tensor_data(weight), w, sizeof w);
    CHECK(attn_tensor_wrap(&bias, context, ATTN_F32, 1, (int64_t[]){OUT}, b) == ATTN_OK);
    attn_tensor_set_requires_grad(weight, true);
    attn_tensor_set_requires_grad(bias, true);
    attn_tape *tape;
    CHECK(attn_tape_create(&tape, context) == ATTN_OK);

    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *input = attn_tape_tensor(tape, ATTN_F32, 2, (int64_t[]){N, IN}, x);
    attn_tensor *target = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){N}, labels);
    attn_tensor *logits = attn_linear(tape, input, weight, bias, ATTN_ACTIVATION_IDENTITY);
    attn_tensor *softmax = attn_softmax(tape, logits, NULL, 0);
    attn_tensor *loss = attn_cross_entropy(tape, logits, target, NULL);
    CHECK(softmax && loss && attn_tensor_size(loss) == 1);
    CHECK(attn_tensor_rank(softmax) == 2 && attn_tensor_length(softmax, -1) == OUT);
    for (int i = 0; i < N * OUT; i++)
        CHECK(fabs(((float *)attn_tensor_data(softmax))[i] - p[i / OUT][i % OUT]) < 1e-6);
    double got_loss = *(float *)attn_tensor_data(loss);
    CHECK(fabs(got_loss - expected_loss) < 1e-6);
    CHECK(attn_backward(tape, loss) == ATTN_OK);
    const float *grad = attn_tensor_data(attn_tensor_grad(bias));
    for (int o = 0; o < OUT; o++)
        CHECK(fabs(grad[o] - expected_grad[o]) < 1e-6);
    CHECK(attn_tensor_size(attn_tensor_grad(weight)) == OUT * IN);

    /* A wrong shape gives NULL, and so does everything computed from it. The error stays until the reset. */
    attn_tape_reset(tape, NULL);
    attn_tensor *wrong = attn_linear(tape, bias, weight, NULL, ATTN_ACTIVATION_IDENTITY);
    CHECK(!wrong && !attn_affine(tape, wrong, 2, 0));
    CHECK(attn_context_status(context) == ATTN_ERROR_SHAPE);
    printf("tensor: loss %.4f; %s\n", got_loss, attn_context_error(context));
    attn_tape_reset(tape, NULL);
    CHECK(attn_context_status(context) == ATTN_OK);

    attn_tape_destroy(tape);
    attn_tensor_destroy(weight);
    attn_tensor_destroy(bias);
    attn_context_destroy(context);
    return 0;
}
