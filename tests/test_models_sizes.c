/* SPDX-License-Identifier: MIT
 * Every architecture on inputs of every size: a result, or an error that says something; and the gradients of it.
 * `test_models_sizes all` takes every length from 0 to 130, and does each twice, with the vectors of this machine and
 * without any (other kernels, other tiles, other remainders): both take the same sizes and give the same numbers.
 *
 * What to feed is read from the registry: the letters of a port's shape ("(b,t,dim)") are the config's where a key has
 * that name, and free otherwise.  Lengths that no model of that config takes are meant to be among them. */
#include "support/cmocka.h"

#include "attn/models.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 8, MOST_LETTERS = 8 };
enum { LONGEST = 130 };
static const int64_t some[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, LONGEST};
static bool all_sizes;

/* How one run fills the letters. */
typedef struct filling {
    const attn_config *config;
    int64_t batch, first, others; /* the first free letter of a call, and the further ones */
    bool channels;                /* letters that begin with d are as wide as the config says */
    int letters;
    char names[MOST_LETTERS][32];
} filling;

typedef struct run {
    attn_context *context;
    attn_model *model;
    attn_tape *tape;
    filling fill;
    bool optional; /* optional inputs and outputs too */
    /* The last run's first output and the gradients of its inputs, one after the other. */
    double *numbers;
    int64_t n, room;
} run;

/* ---------------------------------------------------------------------------------------------- configs */

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* Small models: what has no default, or a large one, gets the same width; layers are few. */
static int64_t small_value(const attn_key *key)
{
    int64_t value = key->otherwise ? strtoll(key->otherwise, NULL, 10) : 0;
    bool dims = has(key->name, "dim_heads") || has(key->name, "d_head");
    if (!dims && (has(key->name, "heads") || has(key->name, "groups") || strcmp(key->name, "M") == 0))
        return 2;
    if (key->choices)
        return value;
    if (has(key->name, "kernel"))
        return 3;
    if (has(key->name, "patch"))
        return WIDTH / 2;
    if (strcmp(key->name, "img_size") == 0 && value >= 224) /* nets that halve an image five times */
        return 32;
    if (has(key->name, "layers") || has(key->name, "depth") || has(key->name, "blks"))
        return 1;
    return value == 0 || (value > 16 && strncmp(key->name, "max", 3) != 0) ? WIDTH : value;
}

static attn_config *small_config(attn_context *context, const attn_architecture *a)
{
    static const int64_t lengths[] = {WIDTH, WIDTH};
    attn_config *config;
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    for (int i = 0; i < a->nkeys; i++) {
        const attn_key *key = &a->keys[i];
        bool open = key->otherwise && !key->otherwise[0]; /* another key's value stands in */
        if (key->type == ATTN_VALUE_INTS && !key->otherwise)
            assert_int_equal(attn_config_set(config, key->name, &(attn_value){.type = ATTN_VALUE_INTS, .n = 2,
                                                                              .integers = lengths}), ATTN_OK);
        if (key->type == ATTN_VALUE_INT && (!open || strcmp(key->name, "vocab_size") == 0))
            assert_int_equal(attn_config_set_int(config, key->name, small_value(key)), ATTN_OK);
    }
    return config;
}

/* ----------------------------------------------------------------------------------------------- shapes */

static int64_t letter_value(filling *f, const char *name)
{
    const attn_value *key = attn_config_get(f->config, name);
    if (isdigit((unsigned char)*name))
        return strtoll(name, NULL, 10);
    if (strcmp(name, "b") == 0 || strcmp(name, "batch") == 0)
        return f->batch;
    if (key && key->type == ATTN_VALUE_INT)
        return key->integer;
    if (strcmp(name, "embed_dim") == 0 || (f->channels && name[0] == 'd'))
        return WIDTH;
    int i = 0;
    while (i < f->letters && strcmp(f->names[i], name) != 0)
        i++;
    if (i == f->letters && i < MOST_LETTERS)
        snprintf(f->names[f->letters++], sizeof f->names[0], "%s", name);
    return i == 0 ? f->first : f->others;
}

/* The first form of "(b) or (b,q)".  Shapes in words are those of axial layers, channels first or last. */
static int port_shape(filling *f, const char *text, int64_t shape[ATTN_MAX_RANK])
{
    int rank = 0;
    if (*text != '(') {
        const bool last = has(text, "num_dimensions");
        const int64_t axes[] = {f->batch, last ? f->first : WIDTH, last ? f->others : f->first,
                                last ? WIDTH : f->others};
        memcpy(shape, axes, sizeof axes);
        return 4;
    }
    for (const char *at = text + 1; at[-1] != ')' && rank < ATTN_MAX_RANK; at += strcspn(at, ",)") + 1) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ",)"), at);
        if (!has(name, "...")) {
            shape[rank++] = letter_value(f, name);
            continue;
        }
        for (int64_t i = 0, n = attn_config_int(f->config, "dimension", 3); i < n; i++)
            shape[rank++] = i == 0 ? f->first : i == 1 ? f->others : f->batch; /* a third long one takes minutes */
    }
    return rank;
}

/* ----------------------------------------------------------------------------------------------- one run */

static void add_input(run *r, const attn_port *port, attn_named_list *inputs)
{
    int64_t shape[ATTN_MAX_RANK];
    int rank = port_shape(&r->fill, port->shape, shape);
    attn_tensor *x;
    assert_int_equal(attn_tensor_create(&x, r->context, port->integer ? ATTN_I32 : ATTN_F32, rank, shape), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(x); i++) {
        if (port->integer)
            ((int32_t *)attn_tensor_data(x))[i] = (int32_t)(i % 3);
        else
            ((float *)attn_tensor_data(x))[i] = (float)(i * 7 % 11 - 5) / 4;
    }
    attn_tensor_set_needs_grad(x, !port->integer);
    assert_int_equal(attn_named_add(inputs, port->name, x), ATTN_OK);
}

/* The gradient of the first output, where anything leads to it. */
static void go_back(run *r, attn_tensor *y)
{
    attn_tensor *ones;
    if (!attn_tensor_needs_grad(y))
        return;
    assert_int_equal(attn_tensor_create(&ones, r->context, ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y)),
                     ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(ones); i++)
        ((float *)attn_tensor_data(ones))[i] = 1;
    if (attn_backward_from(r->tape, y, ones) != ATTN_OK)
        fail_msg("%s: forward passed, backward: %s", attn_model_architecture(r->model)->name,
                 attn_context_error(r->context));
    attn_tensor_destroy(ones);
}

static void keep(run *r, const attn_tensor *x)
{
    int64_t size = x && attn_tensor_dtype(x) == ATTN_F32 ? attn_tensor_size(x) : 0;
    if (r->n + size > r->room) {
        r->room = 2 * (r->n + size);
        r->numbers = realloc(r->numbers, (size_t)r->room * sizeof *r->numbers);
        assert_non_null(r->numbers);
    }
    for (int64_t i = 0; i < size; i++)
        r->numbers[r->n++] = (double)((const float *)attn_tensor_data(x))[i];
}

/* True if the model took the inputs. */
static bool try_once(run *r)
{
    const attn_architecture *a = attn_model_architecture(r->model);
    attn_named_list inputs = {.context = r->context, .owns = true}, outputs = {.context = r->context};
    for (int i = 0; i < a->ninputs; i++) {
        if (!a->inputs[i].optional || r->optional)
            add_input(r, &a->inputs[i], &inputs);
    }
    for (int i = 0; i < a->noutputs && r->optional; i++)
        assert_int_equal(attn_named_add(&outputs, a->outputs[i].name, NULL), ATTN_OK);
    attn_tape_reset(r->tape, &(attn_tape_options){.record = true});
    attn_status status = attn_model_forward(r->model, r->tape, &inputs, &outputs);
    bool taken = status == ATTN_OK;
    if (taken) {
        attn_tensor *y = attn_named_find(&outputs, a->outputs[0].name);
        if (!y)
            fail_msg("%s at %lld, %lld: no error and no output", a->name, (long long)r->fill.first,
                     (long long)r->fill.others);
        go_back(r, y);
        r->n = 0;
        keep(r, y);
        for (int64_t i = 0; i < inputs.n; i++)
            keep(r, attn_tensor_grad(inputs.items[i].tensor));
    } else if (strlen(attn_context_error(r->context)) < 8 || status == ATTN_INTERNAL) {
        fail_msg("%s at %lld, %lld: status %d says \"%s\"", a->name, (long long)r->fill.first,
                 (long long)r->fill.others, status, attn_context_error(r->context));
    }
    attn_context_clear(r->context);
    attn_tape_reset(r->tape, NULL);
    attn_named_clear(&outputs);
    attn_named_clear(&inputs);
    return taken;
}

/* Two ways of computing agree: rounding grows with the sizes, a wrong remainder is as large as the numbers. */
static void compare(const run *a, const run *b)
{
    const char *name = attn_model_architecture(a->model)->name;
    double largest = 0, worst = 0;
    if (a->n != b->n)
        fail_msg("%s at %lld, %lld: %lld numbers and %lld", name, (long long)a->fill.first, (long long)a->fill.others,
                 (long long)a->n, (long long)b->n);
    for (int64_t i = 0; i < a->n; i++) {
        if (isnan(a->numbers[i]) != isnan(b->numbers[i]))
            fail_msg("%s at %lld, %lld: NaN one way only", name, (long long)a->fill.first, (long long)a->fill.others);
        largest = fmax(largest, fabs(b->numbers[i]));
        worst = fmax(worst, fabs(a->numbers[i] - b->numbers[i]));
    }
    if (worst > 1e-4 * fmax(largest, 1))
        fail_msg("%s at %lld, %lld: %g apart where the largest is %g", name, (long long)a->fill.first,
                 (long long)a->fill.others, worst, largest);
}

/* How often the inputs of length `n` were taken, in all ways of filling the letters; `twin` may be NULL. */
static int try_size(run *r, run *twin, int64_t n)
{
    int taken = 0;
    int64_t m = n <= 9 || n == 33 ? n : 3; /* 33 each way: nets that halve an image five times */
    for (int variant = 0; variant < 16; variant++) {
        const int64_t batch = variant & 8 ? n % 2 : 2;
        r->fill = (filling){.config = attn_model_config(r->model), .batch = batch, .channels = variant & 1,
                            .first = variant & 2 ? m : n, .others = variant & 2 ? n : m};
        r->optional = variant & 4;
        bool took = try_once(r);
        taken += took;
        if (twin) {
            twin->fill = r->fill;
            twin->optional = r->optional;
            assert_int_equal(try_once(twin), took);
            if (took)
                compare(r, twin);
        }
    }
    return taken;
}

static int try_sizes(run *r, run *twin)
{
    int taken = 0;
    if (twin) {
        for (int64_t n = 0; n <= LONGEST; n++)
            taken += try_size(r, twin, n);
        return taken;
    }
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        taken += try_size(r, NULL, some[i]);
    return taken;
}

static void begin(run *r, const attn_architecture *a, const char *isa)
{
    *r = (run){0};
    assert_int_equal(attn_context_create(&r->context, &(attn_context_options){.threads = 1, .isa = isa}), ATTN_OK);
    attn_config *config = small_config(r->context, a);
    if (attn_model_create(&r->model, r->context, a->name, config, NULL) != ATTN_OK)
        fail_msg("%s", attn_context_error(r->context));
    attn_config_destroy(config);
    assert_int_equal(attn_tape_create(&r->tape, r->context), ATTN_OK);
}

static void end(run *r)
{
    size_t held;
    attn_tape_destroy(r->tape);
    attn_model_destroy(r->model);
    attn_context_memory(r->context, &held, NULL, NULL);
    assert_int_equal(held, 0);
    attn_context_destroy(r->context);
    free(r->numbers);
}

static void every_architecture_takes_or_refuses_every_size(void **state)
{
    (void)state;
    for (int i = 0; i < attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        run r, twin;
        begin(&r, a, NULL);
        begin(&twin, a, "scalar");
        int taken = try_sizes(&r, all_sizes ? &twin : NULL);
        if (taken < 8) /* else the shapes above mean nothing to it */
            fail_msg("%s took the inputs %d times only", a->name, taken);
        if (all_sizes)
            print_message("%s: %d of %d inputs taken\n", a->name, taken, 16 * (LONGEST + 1));
        end(&twin);
        end(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_architecture_takes_or_refuses_every_size)};
    all_sizes = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
