/* SPDX-License-Identifier: MIT
 *
 * Measures a training step of a Transformer on random sentences.
 */
#include "step.h"

#include "bench.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

const bench_shape bench_shapes[] = {
    {"d2l", 128, 10, 256, 64, 4, 2, 194, 212, 0.2},
    {"large", 64, 32, 512, 2048, 8, 6, 5000, 8000, 0.1},
    {NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};

enum { PAD = 0, WARM_UP = 4, LEAST = 5, MOST = 10000 };
static const double RATE = 1e-3, CLIP = 1;

/* Returns the number of multiplications and additions of a step. It is 3 times the number in the matrix products of
 * the forward pass, which include the two products of attention. Source and target have the same number of tokens. */
double bench_step_flops(const bench_shape *s)
{
    double rows = (double)(s->batch * s->tokens), d = (double)s->hiddens, t = (double)s->tokens;
    double ffn = 2 * d * (double)s->ffn, projections = 4 * d * d;
    double encoder = projections + ffn + 2 * t * d;
    double decoder = 2 * projections + ffn + 2 * d * (t + 1) / 2 + 2 * t * d;
    double forward = (double)s->blocks * (encoder + decoder) + d * (double)s->target_vocab;
    return 3 * 2 * rows * forward;
}

/* Returns the process's maximum resident memory. If Linux allows it, forget_process_peak resets this maximum. */
static size_t process_peak(void)
{
    struct rusage usage;
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "VmHWM:", 6) == 0)
            sscanf(line + 6, "%zu", &kib);
    if (status)
        fclose(status);
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = (size_t)usage.ru_maxrss;
    return kib * 1024;
}

static void forget_process_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

static int64_t draw(bench_trainer *r, int64_t least, int64_t end)
{
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return least + (int64_t)((r->random >> 33) % (uint64_t)(end - least));
}

/* At least half of each row is tokens, and the rest is padding. */
static void fill_ids(bench_trainer *r, attn_tensor *ids, int32_t *lengths, int64_t vocab)
{
    int32_t *at = attn_tensor_data(ids);
    for (int64_t row = 0; row < r->shape->batch; row++) {
        int64_t length = draw(r, r->shape->tokens / 2, r->shape->tokens + 1);
        if (lengths)
            lengths[row] = (int32_t)length;
        for (int64_t t = 0; t < r->shape->tokens; t++)
            *at++ = t < length ? (int32_t)draw(r, 1, vocab) : PAD;
    }
}

static attn_status make_batch(bench_trainer *r)
{
    const int64_t shape[] = {r->shape->batch, r->shape->tokens};
    attn_tensor **const made[] = {&r->source, &r->target, &r->labels};
    attn_status status = attn_tensor_create(&r->lengths, r->context, ATTN_I32, 1, shape);
    for (int i = 0; status == ATTN_OK && i < 3; i++)
        status = attn_tensor_create(made[i], r->context, ATTN_I32, 2, shape);
    if (status != ATTN_OK)
        return status;
    r->random = 1;
    fill_ids(r, r->source, attn_tensor_data(r->lengths), r->shape->source_vocab);
    fill_ids(r, r->target, NULL, r->shape->target_vocab);
    fill_ids(r, r->labels, NULL, r->shape->target_vocab);
    return ATTN_OK;
}

static attn_status make_model(bench_trainer *r)
{
    const bench_shape *s = r->shape;
    attn_config *config;
    attn_status status = attn_config_create(&config, r->context);
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"num_hiddens", s->hiddens}, {"ffn_num_hiddens", s->ffn},         {"num_heads", s->heads},
                 {"num_blks", s->blocks},     {"src_vocab_size", s->source_vocab}, {"tgt_vocab_size", s->target_vocab}};
    for (size_t i = 0; status == ATTN_OK && i < sizeof sizes / sizeof *sizes; i++)
        status = attn_config_set_int(config, sizes[i].key, sizes[i].value);
    if (status == ATTN_OK)
        status = attn_config_set_real(config, "dropout", s->dropout);
    if (status == ATTN_OK)
        status = attn_model_create(&r->model, r->context, "transformer", config, &(attn_model_options){.seed = 1});
    attn_config_destroy(config);
    return status;
}

attn_status bench_trainer_open(bench_trainer *r, attn_context *context, const bench_shape *shape)
{
    r->shape = shape;
    r->context = context;
    attn_status status = make_batch(r);
    if (status == ATTN_OK)
        status = make_model(r);
    if (status == ATTN_OK)
        status = attn_tape_create(&r->tape, r->context);
    if (status == ATTN_OK)
        status = attn_optimizer_create(&r->optimizer, r->context, attn_model_parameters(r->model),
                                       &(attn_optimizer_options){.kind = ATTN_OPTIMIZER_ADAM, .clip_norm = CLIP});
    return status;
}

void bench_trainer_close(bench_trainer *r)
{
    attn_tape_destroy(r->tape);
    attn_optimizer_destroy(r->optimizer);
    attn_model_destroy(r->model);
    attn_tensor *const made[] = {r->source, r->lengths, r->target, r->labels};
    for (int i = 0; i < 4; i++)
        attn_tensor_destroy(made[i]);
}

attn_status bench_trainer_step(bench_trainer *r, double *loss)
{
    attn_tape_reset(r->tape, &(attn_tape_options){.record = true, .train = true, .seed = ++r->steps});
    attn_tensor *logits = attn_seq2seq_forward(r->model, r->tape, r->source, r->lengths, r->target, NULL);
    attn_tensor *mean = attn_cross_entropy(
        r->tape, logits, r->labels, &(attn_cross_entropy_options){.use_ignore_index = true, .ignore_index = PAD});
    if (!mean)
        return attn_context_status(r->context);
    *loss = (double)*(const float *)attn_tensor_data(mean);
    attn_status status = attn_backward(r->tape, mean);
    return status == ATTN_OK ? attn_optimizer_step(r->optimizer, RATE, NULL) : status;
}

static attn_status time_steps(bench_trainer *r, bench_step *step, double seconds)
{
    static double times[MOST];
    uint64_t before, after;
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < WARM_UP; i++)
        status = bench_trainer_step(r, i == 0 ? &step->first_loss : &step->last_loss);
    attn_context_memory(r->context, NULL, NULL, &before);
    int n = 0;
    double begin = cli_seconds();
    for (double at = begin, next; status == ATTN_OK && n < MOST && (n < LEAST || at - begin < seconds); at = next) {
        status = bench_trainer_step(r, &step->last_loss);
        next = cli_seconds();
        times[n++] = 1e3 * (next - at);
    }
    attn_context_memory(r->context, NULL, &step->context_peak, &after);
    step->steps = n;
    step->ms = bench_median(times, n);
    step->fastest_ms = times[0];
    step->allocations = n ? (double)(after - before) / n : 0;
    return status;
}

static void conclude(const bench_trainer *r, bench_step *step)
{
    const bench_shape *s = step->shape;
    const attn_named_list *list = attn_model_parameters(r->model);
    for (int64_t i = 0; i < list->n; i++)
        if (attn_tensor_requires_grad(list->items[i].tensor))
            step->parameters += attn_tensor_size(list->items[i].tensor);
    step->process_peak = process_peak();
    step->tokens_per_second = 1e3 * (double)(s->batch * s->tokens) / step->ms;
    step->gflops = 1e-6 * bench_step_flops(s) / step->ms;
}

int bench_step_measure(bench_step *step, double seconds)
{
    bench_trainer r = {0};
    attn_context *context;
    attn_context_options options = {.threads = step->threads, .precision = step->precision};
    int code = CLI_OK;
    forget_process_peak();
    attn_status status = attn_context_create(&context, &options);
    if (status == ATTN_OK)
        status = bench_trainer_open(&r, context, step->shape);
    if (status == ATTN_OK) {
        step->peak_gflops = 0;
        bench_raise_peak(&step->peak_gflops, context, step->threads, seconds);
        status = time_steps(&r, step, seconds);
        bench_raise_peak(&step->peak_gflops, context, step->threads, seconds);
    }
    if (status != ATTN_OK)
        code = cli_fail(cli_exit_code(status), "%s: %s", step->shape->name,
                        context ? attn_context_error(context) : attn_status_text(status));
    else if (!isfinite(step->last_loss))
        code = cli_fail(CLI_FAILED, "%s: the loss is not finite", step->shape->name);
    else
        conclude(&r, step);
    bench_trainer_close(&r);
    attn_context_destroy(context);
    return code;
}
