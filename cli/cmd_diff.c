/* SPDX-License-Identifier: MIT
 *
 * attn diff: prints which weights of two checkpoints differ, and by how much.
 */
#include "commands.h"
#include "io/tensors/weights.h"

#include <math.h>
#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("names", 'n', "FILE", "", "a names file that brings B's tensors under A's names, or a built-in one"),
};

static const char *const usage[] = {"A B [--names FILE]", NULL};

static const char description[] = "A and B are files of weights of any kind that attn reads, or directories with them. "
                                  "Prints each tensor that differs: the largest difference, and the norm of the "
                                  "difference over the norm of A's. If anything differs, the exit status is 1.";

static const char *const examples[] = {"attn diff base/model.safetensors tuned", "attn diff a.pt b.safetensors --json",
                                       "attn diff vit-base timm.safetensors --names vit-timm", NULL};

typedef struct comparison {
    const cli_call *cli;
    attn_checkpoint *side[2];
    int64_t same, differ, only;
    attn_json json;
} comparison;

static int64_t find(const attn_checkpoint *weights, const char *name)
{
    attn_checkpoint_entry e;
    for (int64_t i = 0; attn_checkpoint_at(weights, i, &e); i++)
        if (strcmp(e.name, name) == 0)
            return i;
    return -1;
}

static void print_only(comparison *c, int side, const attn_checkpoint_entry *e)
{
    c->only++;
    if (c->cli->json) {
        attn_json_object(&c->json, NULL);
        attn_json_text(&c->json, "name", e->name);
        attn_json_text(&c->json, "only_in", c->cli->words[side]);
        attn_json_end(&c->json);
    } else {
        cli_print("  %-52s only in %s\n", e->name, c->cli->words[side]);
    }
}

static void print_difference(comparison *c, const char *name, const char *what, double most, double relative)
{
    c->differ++;
    if (c->cli->json) {
        attn_json_object(&c->json, NULL);
        attn_json_text(&c->json, "name", name);
        attn_json_text(&c->json, "differs", what);
        attn_json_real(&c->json, "largest", most);
        attn_json_real(&c->json, "relative", relative);
        attn_json_end(&c->json);
    } else if (isnan(most)) {
        cli_print("  %-52s %s\n", name, what);
    } else {
        cli_print("  %-52s largest %.3e, relative %.3e\n", name, most, relative);
    }
}

/* Compares two tensors, as integers if both have integers, and otherwise as 64-bit reals. */
static void compare_numbers(comparison *c, const char *name, const attn_tensor *a, const attn_tensor *b)
{
    double most = 0, difference = 0, norm = 0;
    int64_t nans = 0;
    bool reals = attn_tensor_dtype(a) == ATTN_F64;
    const double *x = attn_tensor_data(a), *y = attn_tensor_data(b);
    size_t bytes = (size_t)attn_tensor_size(a) * attn_dtype_size(attn_tensor_dtype(a));
    if (attn_tensor_dtype(a) != attn_tensor_dtype(b)) {
        print_difference(c, name, "different types", (double)NAN, (double)NAN);
        return;
    }
    if (memcmp(x, y, bytes) == 0) {
        c->same++;
        return;
    }
    for (int64_t i = 0; reals && i < attn_tensor_size(a); i++) {
        double d = fabs(x[i] - y[i]);
        nans += isnan(x[i]) != isnan(y[i]);
        if (isnan(d) || x[i] == y[i])
            continue;
        most = d > most ? d : most;
        difference += d * d;
        norm += x[i] * x[i];
    }
    for (int64_t i = 0; reals && i < attn_tensor_size(a); i++)
        norm += x[i] == y[i] ? x[i] * x[i] : 0;
    if (!reals || nans)
        print_difference(c, name, nans ? "NaN on one side" : "different integers", (double)NAN, (double)NAN);
    else if (most == 0) /* The tensors have different bits but equal numbers, such as 0 and -0, or two NaNs. */
        c->same++;
    else
        print_difference(c, name, "numbers", most, norm > 0 ? sqrt(difference / norm) : INFINITY);
}

static attn_status compare(comparison *c, const attn_checkpoint_entry *a, int64_t i, int64_t k)
{
    attn_tensor *x = NULL, *y = NULL;
    attn_checkpoint_entry b;
    (void)attn_checkpoint_at(c->side[1], k, &b);
    if (a->rank != b.rank || (a->rank && memcmp(a->shape, b.shape, (size_t)a->rank * sizeof *a->shape) != 0)) {
        print_difference(c, a->name, "different shapes", (double)NAN, (double)NAN);
        return ATTN_OK;
    }
    attn_status status = attn_checkpoint_tensor(&x, c->side[0], i);
    if (status == ATTN_OK)
        status = attn_checkpoint_tensor(&y, c->side[1], k);
    if (status == ATTN_OK)
        compare_numbers(c, a->name, x, y);
    attn_tensor_destroy(x);
    attn_tensor_destroy(y);
    return status;
}

static attn_status compare_all(comparison *c)
{
    attn_checkpoint_entry e;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(c->side[0], i, &e); i++) {
        int64_t k = find(c->side[1], e.name);
        if (k < 0)
            print_only(c, 0, &e);
        else
            status = compare(c, &e, i, k);
    }
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(c->side[1], i, &e); i++)
        if (find(c->side[0], e.name) < 0)
            print_only(c, 1, &e);
    return status;
}

static int tell(comparison *c)
{
    int code = c->differ + c->only ? CLI_FAILED : CLI_OK;
    if (!c->cli->json) {
        printf("%lld tensors are the same, %lld differ, %lld are in one checkpoint only\n", (long long)c->same,
               (long long)c->differ, (long long)c->only);
        return code;
    }
    attn_json_end(&c->json);
    attn_json_int(&c->json, "same", c->same);
    attn_json_end(&c->json);
    int printed = cli_print_json(c->cli, &c->json);
    return printed == CLI_OK ? code : printed;
}

static int run(cli_call *cli)
{
    comparison c = {.cli = cli};
    const char *file = cli_text(cli, "names");
    attn_name_map *names = NULL;
    attn_status status = *file ? attn_name_map_read(&names, cli->context, file) : ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        attn_weights_options how = {.reals = ATTN_F64, .names = i ? names : NULL, .allow_extra = true};
        status = attn_checkpoint_open(&c.side[i], cli->context, cli->words[i], &how, NULL);
        if (status == ATTN_OK)
            cli_notes(cli, attn_checkpoint_notes(c.side[i]));
    }
    attn_name_map_destroy(names);
    if (cli->json) {
        attn_json_begin(&c.json, cli->context, true);
        attn_json_object(&c.json, NULL);
        attn_json_array(&c.json, "tensors");
    }
    if (status == ATTN_OK)
        status = compare_all(&c);
    int code = status == ATTN_OK ? tell(&c) : cli_failed(cli, NULL);
    if (status != ATTN_OK && cli->json)
        attn_json_free(&c.json);
    attn_checkpoint_close(c.side[0]);
    attn_checkpoint_close(c.side[1]);
    return code;
}

const cli_command cli_diff = {
    "diff",
    "print which weights of two checkpoints differ",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    2,
    2,
    run,
};
