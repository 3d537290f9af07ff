/* SPDX-License-Identifier: MIT
 * attn convert --dry-run: prints which tensors of a checkpoint fit a model, and a draft of a names file. */
#include "checkpoint_info.h"
#include "foreign.h"
#include "io/names/names.h"

#include "io/tensors/array.h"

#include <stdlib.h>
#include <string.h>

typedef struct dry_run {
    const cli_call *cli;
    const cli_foreign *foreign;
    attn_checkpoint *weights;
    attn_model *model;
    const attn_named_list *parameters;
    int64_t tensors;
    int64_t *taken_by; /* index of the parameter that each tensor fills; -1: none */
    bool *filled;      /* true for each parameter that a tensor fills */
    long offset;       /* number of a layer in the checkpoint, minus its number in the model */
    int64_t fits, misshapen, missing, left;
} dry_run;

/* Returns the name of the operation that converts tensor e to the shape of parameter t. Returns "" if e already has
 * this shape, and NULL if there is no such operation. */
static const char *operation_for(const attn_checkpoint_entry *e, const attn_tensor *t)
{
    int rank = attn_tensor_rank(t);
    if (attn__array_fits(e->rank, e->shape, t))
        return "";
    if (e->rank == 2 && rank == 2 && e->shape[0] == attn_tensor_length(t, 1) && e->shape[1] == attn_tensor_length(t, 0))
        return "transpose";
    if (e->count == attn_tensor_size(t) && e->rank == rank + 1 && e->shape[0] == 1)
        return "squeeze";
    bool rows = e->rank == rank && rank > 0 && e->count == 3 * attn_tensor_size(t) &&
                e->shape[0] == 3 * attn_tensor_length(t, 0);
    return rows ? "part ?/3" : NULL;
}

/* ---------------------------------------------------------------------------------------------- matching */

static int64_t find_parameter(const dry_run *d, const char *name)
{
    for (int64_t i = 0; i < d->parameters->n; i++)
        if (strcmp(d->parameters->items[i].name, name) == 0)
            return i;
    return -1;
}

static bool first_number(const char *name, long *number)
{
    const char *digit = name + strcspn(name, "0123456789");
    *number = *digit ? strtol(digit, NULL, 10) : -1;
    return *digit;
}

/* Returns the tensor that most likely belongs to a missing parameter: an unused tensor whose shape can be converted. */
static int64_t closest_tensor(const dry_run *d, int64_t parameter, const char **operation)
{
    const attn_named *p = &d->parameters->items[parameter];
    double best = 0;
    int64_t found = -1;
    for (int64_t i = 0; i < d->tensors; i++) {
        attn_checkpoint_entry e = {0};
        long own = -1, other = -1;
        if (d->taken_by[i] >= 0 || !attn_checkpoint_at(d->weights, i, &e))
            continue;
        const char *how = operation_for(&e, p->tensor);
        if (!how || (first_number(p->name, &own) && first_number(e.name, &other) && labs(own - other) > 1))
            continue;
        double alike =
            cli_name_likeness(e.name, p->name) + (other >= 0 && own + d->offset == other ? 0.1 : 0) - (*how ? 0.05 : 0);
        if (alike > best) {
            best = alike;
            found = i;
            *operation = how;
        }
    }
    return found;
}

/* Returns the smallest unmatched layer number of the checkpoint minus that of the model, if the difference is -1 or
 * 1, and otherwise 0. One of them may count layers from 1, and the other from 0. */
static long counted_from(const dry_run *d)
{
    enum { NONE = 1 << 20 };
    long own = NONE, other = NONE, number;
    attn_checkpoint_entry e = {0};
    for (int64_t i = 0; i < d->parameters->n; i++)
        if (!d->filled[i] && first_number(d->parameters->items[i].name, &number) && number < own)
            own = number;
    for (int64_t i = 0; attn_checkpoint_at(d->weights, i, &e); i++)
        if (d->taken_by[i] < 0 && first_number(e.name, &number) && number < other)
            other = number;
    return own < NONE && other < NONE && labs(other - own) <= 1 ? other - own : 0;
}

/* ---------------------------------------------------------------------------------------------- printing */

static void print_row(const char *source, const char *shape, const char *target, const char *target_shape,
                      const char *verdict)
{
    cli_print("  %-44s %-16s %-40s %-16s %s\n", source, shape, target, target_shape, verdict);
}

static void print_tensors(dry_run *d)
{
    char a[128], b[128];
    attn_checkpoint_entry e = {0};
    print_row("tensor", "shape", "parameter", "shape", "");
    for (int64_t i = 0; attn_checkpoint_at(d->weights, i, &e); i++) {
        const char *source = e.origin ? e.origin : e.name;
        int64_t parameter = d->taken_by[i];
        cli_shape_text(e.rank, e.shape, a);
        if (parameter < 0) {
            print_row(source, a, d->model && e.origin ? e.name : "", "", d->model ? "left over" : "");
            d->left++;
            continue;
        }
        const attn_named *p = &d->parameters->items[parameter];
        bool same = attn__array_fits(e.rank, e.shape, p->tensor);
        cli_shape_text(attn_tensor_rank(p->tensor), attn_tensor_shape(p->tensor), b);
        print_row(source, a, p->name, b, same ? "fits" : "another shape");
        d->fits += same;
        d->misshapen += !same;
    }
}

static void print_missing(dry_run *d)
{
    char a[128];
    for (int64_t i = 0; i < d->parameters->n; i++) {
        const attn_named *p = &d->parameters->items[i];
        const char *operation = "";
        if (d->filled[i])
            continue;
        int64_t near = closest_tensor(d, i, &operation);
        attn_checkpoint_entry e = {.name = ""};
        if (near >= 0)
            (void)attn_checkpoint_at(d->weights, near, &e);
        char verdict[400];
        snprintf(verdict, sizeof verdict, "missing%s%s%s%s", near >= 0 ? "; closest: " : "", e.name,
                 *operation ? " " : "", operation);
        print_row("", "", p->name, cli_shape_text(attn_tensor_rank(p->tensor), attn_tensor_shape(p->tensor), a),
                  verdict);
        d->missing++;
    }
}

/* ------------------------------------------------------------------------------------------ proposing */

/* Writes a name as a pattern or as a target, with special characters escaped. If `counted` is true, `group` replaces
 * the first number of the name. */
static void write_side(char *out, size_t size, const char *name, bool counted, const char *group, bool pattern)
{
    size_t n = 0;
    while (*name && n + 12 < size) {
        size_t digits = strspn(name, "0123456789");
        if (digits && counted) {
            n += (size_t)snprintf(out + n, size - n, "%s", group);
            counted = false;
        } else {
            if (pattern && strchr(".[]()|*+?^${}\\", *name))
                out[n++] = '\\';
            out[n++] = *name;
            digits = 1;
        }
        name += digits;
    }
    out[n] = '\0';
}

/* Writes a rule that maps the tensor to the parameter, for all layers. */
static void write_rule(char *out, size_t size, const char *source, const char *target, const char *operation)
{
    char left[300], right[300], group[16] = "\\1";
    long from, to;
    bool counted = first_number(source, &from) && first_number(target, &to) && labs(from - to) <= 1;
    if (counted && from != to)
        snprintf(group, sizeof group, "{\\1%+ld}", to - from);
    write_side(left, sizeof left, source, counted, "(\\d+)", true);
    write_side(right, sizeof right, target, counted, group, false);
    snprintf(out, size, "%-44s %s%s%s", left, right, *operation ? "  " : "", operation);
}

static void propose(const dry_run *d)
{
    enum { MOST = 400, RULE = 700 };
    char(*rules)[RULE] = malloc(MOST * sizeof *rules);
    int n = 0;
    for (int64_t i = 0; rules && i < d->parameters->n && n < MOST; i++) {
        const char *operation = "";
        attn_checkpoint_entry e = {0};
        int64_t near = d->filled[i] ? -1 : closest_tensor(d, i, &operation);
        if (near < 0 || !attn_checkpoint_at(d->weights, near, &e))
            continue;
        write_rule(rules[n], RULE, e.origin ? e.origin : e.name, d->parameters->items[i].name, operation);
        bool again = false;
        for (int k = 0; k < n && !again; k++)
            again = strcmp(rules[k], rules[n]) == 0;
        n += !again;
    }
    if (n > 0)
        cli_print("\nA names file to begin with: every line is a guess by name and shape.\n\nattn names 1\narch %s\n",
                  d->foreign->arch);
    for (int i = 0; i < n; i++)
        cli_print("%s\n", rules[i]);
    free(rules);
}

static int suggest_builtin(const dry_run *d)
{
    const char *name;
    int64_t known;
    if (cli_print_other_network(d->weights))
        return CLI_OK;
    if (attn_name_map_detect(&name, d->weights, &known, NULL) != ATTN_OK)
        return cli_failed(d->cli, NULL);
    if (name && known * 2 > d->tensors)
        printf("\n%lld of %lld tensors have the names of %s: --names %s\n", (long long)known, (long long)d->tensors,
               name, name);
    else
        puts("\nNo built-in names file has most of these; with --arch and --config, attn compares them with a model.");
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------- whole */

static int compare(dry_run *d)
{
    d->taken_by = calloc((size_t)d->tensors + 1, sizeof *d->taken_by);
    d->filled = calloc((size_t)(d->model ? d->parameters->n : 0) + 1, sizeof *d->filled);
    if (!d->taken_by || !d->filled)
        return cli_fail(CLI_FAILED, "out of memory");
    attn_checkpoint_entry e = {0};
    for (int64_t i = 0; attn_checkpoint_at(d->weights, i, &e); i++) {
        d->taken_by[i] = d->model ? find_parameter(d, e.name) : -1;
        if (d->taken_by[i] >= 0)
            d->filled[d->taken_by[i]] = true;
    }
    d->offset = d->model ? counted_from(d) : 0;
    print_tensors(d);
    if (!d->model)
        return suggest_builtin(d);
    print_missing(d);
    printf("\n%lld fit, %lld have another shape, %lld parameters are missing, %lld tensors are left over\n",
           (long long)d->fits, (long long)d->misshapen, (long long)d->missing, (long long)d->left);
    if (d->missing > 0)
        propose(d);
    return CLI_OK;
}

int cli_dry_run(const cli_call *cli, const cli_foreign *foreign, const char *path)
{
    dry_run d = {.cli = cli, .foreign = foreign};
    attn_weights_options how = {.names = foreign->names, .allow_extra = true};
    attn_checkpoint_entry e = {0};
    attn_status status = attn_checkpoint_open(&d.weights, cli->context, path, &how, NULL);
    if (status == ATTN_OK)
        cli_notes(cli, attn_checkpoint_notes(d.weights));
    if (status == ATTN_OK && foreign->arch)
        status = attn_model_create(&d.model, cli->context, foreign->arch, foreign->config,
                                   &(attn_model_options){.blank = true});
    if (status == ATTN_OK && d.model)
        d.parameters = attn_model_parameters(d.model);
    while (status == ATTN_OK && attn_checkpoint_at(d.weights, d.tensors, &e))
        d.tensors++;
    int code = status == ATTN_OK ? compare(&d) : cli_failed(cli, NULL);
    free(d.taken_by);
    free(d.filled);
    attn_model_destroy(d.model);
    attn_checkpoint_close(d.weights);
    return code;
}
