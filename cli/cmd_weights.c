/* SPDX-License-Identifier: MIT
 *
 * attn weights: prints the weight of each sequence of an alignment, and the effective number of sequences.
 */
#include "commands.h"
#include "failures.h"
#include "family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "DIR", ".", "the directory that gets the tables"),
    CLI_REAL("identity", "0.8", 1e-6, 1, "share of columns in which two sequences must agree to count as similar"),
    CLI_FAMILY_FORMAT_OPTIONS,
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"FILE... [-o DIR] [--identity X]", NULL};

static const char description[] =
    "Families are sampled unevenly: some sequences have many close relatives in the file. For each alignment DIR gets "
    "NAME.weights.tsv, a line a sequence:\n"
    "\n"
    "  number           of the sequence in the file, the query being 1\n"
    "  name             as the file has it, up to the first space\n"
    "  identity_weight  1 / (sequences that agree with it in at least 80 % of the columns, itself included), as in "
    "direct coupling analysis (Morcos et al. 2011)\n"
    "  position_weight  by how rare its residues are in their columns (Henikoff and Henikoff 1994); the mean is 1\n"
    "\n"
    "Neff, the sum of the identity weights, is printed: the number of sequences in effect. No model is needed. Every "
    "pair of sequences is compared, so that ten times the sequences take a hundred times as long.";

static const char *const examples[] = {
    "attn weights family.a3m",
    "attn weights family.sto.gz --identity 0.62 -o results",
    NULL,
};

typedef struct weighing {
    cli_family family;
    double *identity, *position; /* weights [rows] */
    double effective;
    char path[ATTN__PATH];
} weighing;

static size_t name_length(const weighing *w, int64_t row)
{
    return strcspn(attn_alignment_name(w->family.all, row), " \t");
}

static attn_status write_table(const weighing *w)
{
    enum { NUMBERS = 80 };
    static const char head[] = "number\tname\tidentity_weight\tposition_weight\n";
    int64_t rows = attn_alignment_rows(w->family.all);
    size_t size = sizeof head, used;
    attn_tensor *text; /* The text is a tensor, so that the context limits and counts its memory. */
    for (int64_t i = 0; i < rows; i++)
        size += name_length(w, i) + NUMBERS;
    attn_status status = attn_tensor_create(&text, w->family.cli->context, ATTN_U8, 1, (int64_t[]){(int64_t)size});
    if (status != ATTN_OK)
        return status;
    char *to = attn_tensor_data(text);
    used = (size_t)snprintf(to, size, "%s", head);
    for (int64_t i = 0; i < rows; i++)
        used += (size_t)snprintf(to + used, size - used, "%lld\t%.*s\t%.6g\t%.6g\n", (long long)i + 1,
                                 (int)name_length(w, i), attn_alignment_name(w->family.all, i), w->identity[i],
                                 w->position[i]);
    status = attn_file_write(w->family.cli->context, w->path, to, used);
    attn_tensor_destroy(text);
    return status;
}

static attn_status weigh(weighing *w)
{
    const cli_call *cli = w->family.cli;
    int64_t rows = attn_alignment_rows(w->family.all);
    attn_status status = attn_alignment_weights(w->family.all, cli_real(cli, "identity"), w->identity);
    if (status == ATTN_OK)
        status = attn_alignment_position_weights(w->family.all, w->position);
    for (int64_t i = 0; status == ATTN_OK && i < rows; i++)
        w->effective += w->identity[i];
    if (status == ATTN_OK)
        status = attn_directory_create(cli->context, cli_text(cli, "out"));
    return status == ATTN_OK ? write_table(w) : status;
}

static int print_json(const weighing *w)
{
    const cli_call *cli = w->family.cli;
    attn_json json;
    attn_json_begin(&json, cli->context, false);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "alignment", w->family.path);
    attn_json_int(&json, "sequences", attn_alignment_rows(w->family.all));
    attn_json_int(&json, "columns", attn_alignment_columns(w->family.all));
    attn_json_real(&json, "identity", cli_real(cli, "identity"));
    attn_json_real(&json, "effective_sequences", w->effective);
    attn_json_text(&json, "table", w->path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int tell(const weighing *w)
{
    char rows[32];
    if (w->family.cli->json)
        return print_json(w);
    cli_print("%s: %s sequences of %lld columns, Neff %.1f at %.3g %% identity; weights in %s\n", w->family.path,
              cli_count(attn_alignment_rows(w->family.all), rows), (long long)attn_alignment_columns(w->family.all),
              w->effective, 100 * cli_real(w->family.cli, "identity"), w->path);
    return CLI_OK;
}

static int weigh_file(void *user, int i)
{
    const cli_call *cli = user;
    const char *path = cli->words[i];
    weighing w = {.effective = 0};
    int code = cli_family_read_all(&w.family, cli, path);
    if (code == CLI_OK)
        code = cli_family_path(&w.family, cli_text(cli, "out"), "weights.tsv", w.path);
    if (code == CLI_OK) {
        size_t bytes = (size_t)attn_alignment_rows(w.family.all) * sizeof *w.identity;
        w.identity = malloc(bytes);
        w.position = malloc(bytes);
        code = !w.identity || !w.position ? cli_fail(CLI_FAILED, "%s: out of memory", path)
               : weigh(&w) != ATTN_OK     ? cli_failed(cli, NULL)
                                          : tell(&w);
    }
    free(w.identity);
    free(w.position);
    cli_family_free(&w.family);
    return code;
}

static int run(cli_call *cli)
{
    int code = cli_family_claim(cli, (const char *const[]){"weights.tsv", NULL});
    return code == CLI_OK ? cli_spread(cli, cli->nwords, cli->words, weigh_file, cli) : code;
}

const cli_command cli_weights = {
    "weights",
    "print the weight of each sequence of an alignment",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    -1,
    run,
};
