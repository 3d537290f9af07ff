/* SPDX-License-Identifier: MIT
 * What the commands about alignments share. */
#include "family.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const cli_family_selects[] = {"diverse", "first", "random", "weighted", NULL};
const char *const cli_family_formats[] = {"auto", "a3m", "fasta", "a2m", "stockholm", "clustal", NULL};

static int index_of(const char *const *choices, const char *value)
{
    int i = 0;
    while (choices[i + 1] && strcmp(choices[i], value) != 0)
        i++;
    return i;
}

int cli_family_model(const cli_call *cli, attn_msa **msa)
{
    const char *regression = cli_text(cli, "regression"), *names = cli_text(cli, "names");
    attn_msa_load_options options = {.regression = regression && *regression ? regression : NULL,
                                     .names = *names ? names : NULL,
                                     .compat = cli_flag(cli, "esm_compat")};
    attn_status status = attn_msa_load(msa, cli->context, cli_text(cli, "model"), &options);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* ------------------------------------------------------------------------------------------ the alignment */

int cli_family_read_all(cli_family *family, const cli_call *cli, const char *path)
{
    attn_bytes bytes = {0};
    attn_alignment_options options = {.format =
                                          (attn_alignment_format)index_of(cli_family_formats, cli_text(cli, "format")),
                                      .query_columns = cli_flag(cli, "query_columns")};
    *family = (cli_family){.cli = cli, .path = path};
    attn_status status = attn_file_read(&bytes, cli->context, path, 0);
    if (status == ATTN_OK)
        status = attn_alignment_parse(&family->all, cli->context, bytes.data, bytes.size, path, &options);
    attn_bytes_free(cli->context, &bytes);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* Every pair of sequences is compared; where that would keep a user waiting, `attn weights` is there. */
static attn_status count_effective(cli_family *family)
{
    const double most = 2e10; /* residues compared: about a second on one core */
    int64_t rows = attn_alignment_rows(family->all);
    if (0.5 * (double)rows * (double)rows * (double)attn_alignment_columns(family->all) > most)
        return ATTN_OK;
    double *weights = malloc((size_t)rows * sizeof *weights);
    attn_status status = weights ? attn_alignment_weights(family->all, 0, weights) : ATTN_OK;
    for (int64_t i = 0; weights && status == ATTN_OK && i < rows; i++)
        family->effective += weights[i];
    free(weights);
    return status;
}

static attn_status choose(cli_family *family)
{
    const cli_call *cli = family->cli;
    attn_selection selection = {.depth = cli_int(cli, "depth"),
                                .how = (attn_select)index_of(cli_family_selects, cli_text(cli, "select")),
                                .seed = (uint64_t)cli_int(cli, "seed")};
    attn_status status = count_effective(family);
    return status == ATTN_OK ? attn_alignment_select(&family->chosen, family->all, &selection) : status;
}

/* Ten letters or more, and all of them bases: no protein is so poor in kinds of residue. */
static bool looks_like_bases(const char *query)
{
    size_t letters = strlen(query), gaps = 0, bases = strspn(query, "ACGTUN-");
    for (const char *c = query; *c; c++)
        gaps += *c == '-';
    return bases == letters && letters - gaps >= 10;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two rows of one name are allowed (parts of one protein may match twice), but a table cannot tell them apart. */
static void warn_of_names(const cli_family *family)
{
    int64_t rows = attn_alignment_rows(family->all), same = 0, nameless = 0;
    const char **names = malloc((size_t)rows * sizeof *names), *first = NULL;
    for (int64_t i = 0; names && i < rows; i++) {
        names[i] = attn_alignment_name(family->all, i);
        nameless += !*names[i];
    }
    if (names)
        qsort(names, (size_t)rows, sizeof *names, by_name);
    for (int64_t i = 1; names && i < rows; i++) {
        if (*names[i] && strcmp(names[i - 1], names[i]) == 0) {
            same++;
            first = first ? first : names[i];
        }
    }
    if (nameless > 1)
        cli_note(family->cli, "warning: %lld of the sequences have no name", (long long)nameless);
    if (same > 0)
        cli_note(family->cli, "warning: %lld of the sequences have a name that another has too, such as '%.60s'",
                 (long long)same, first);
    free(names);
}

static void tell(const cli_family *family)
{
    static const char *const formats[] = {"", "a3m", "FASTA", "a2m", "Stockholm", "Clustal"};
    char all[32], chosen[32], effective[64] = "";
    if (family->effective > 0)
        snprintf(effective, sizeof effective, ", Neff %.0f", family->effective);
    else
        snprintf(effective, sizeof effective, ", Neff not counted (attn weights counts it)");
    int64_t rows = attn_alignment_rows(family->all), columns = attn_alignment_columns(family->all);
    cli_note(family->cli, "%s: %s, %s sequence%s of %lld column%s%s; %s used", family->path,
             formats[attn_alignment_origin(family->all)], cli_count(rows, all), rows == 1 ? "" : "s",
             (long long)columns, columns == 1 ? "" : "s", effective, cli_count(family->rows, chosen));
    warn_of_names(family);
    if (looks_like_bases(attn_alignment_row(family->chosen, 0)))
        cli_note(family->cli,
                 "warning: the first sequence looks like DNA or RNA; the model knows proteins: translate it");
    if (family->rows == 1)
        cli_note(family->cli,
                 "warning: one sequence alone is no alignment: what the model says of it is little better than chance");
}

int cli_family_read(cli_family *family, const cli_call *cli, const char *path)
{
    int code = cli_family_read_all(family, cli, path);
    if (code != CLI_OK)
        return code;
    if (choose(family) != ATTN_OK)
        return cli_failed(cli, NULL);
    family->rows = attn_alignment_rows(family->chosen);
    family->cols = attn_alignment_columns(family->chosen) + 1;
    family->tokens = malloc((size_t)(family->rows * family->cols) * sizeof *family->tokens);
    if (!family->tokens)
        return cli_fail(CLI_FAILED, "%s: out of memory", path);
    attn_alignment_tokens(family->chosen, family->tokens);
    tell(family);
    return CLI_OK;
}

void cli_family_free(cli_family *family)
{
    attn_alignment_destroy(family->chosen);
    attn_alignment_destroy(family->all);
    free(family->tokens);
    *family = (cli_family){0};
}

/* --------------------------------------------------------------------------------------------------- runs */

/* "2G", "1.5g", "800M", "123456"; 0 if it is none. */
static double bytes_of(const char *text)
{
    char *end;
    double value = strtod(text, &end), unit = 1;
    if (end == text || !(value > 0))
        return 0;
    if (*end && strchr("kKmMgGtT", *end)) {
        const char *units = "kmgt", *which = strchr(units, *end | 0x20);
        for (const char *u = units; u <= which; u++)
            unit *= 1024;
        end++;
    }
    if (*end == 'B' || *end == 'b')
        end++;
    return *end || value * unit > 9e18 ? 0 : value * unit;
}

int cli_family_bounds(const cli_call *cli, attn_msa_options *options)
{
    const char *memory = cli_text(cli, "memory");
    if (!memory || !*memory)
        return CLI_OK;
    options->memory = (size_t)bytes_of(memory);
    return options->memory ? CLI_OK
                           : cli_fail(CLI_BAD, "--memory: \"%.60s\" is no size; 2G, 800M or bytes are", memory);
}

int cli_family_run(const cli_family *family, attn_msa *msa, const attn_msa_options *options, attn_msa_result *result)
{
    attn_msa_cost plan;
    char planned[32];
    if (attn_msa_estimate(msa, 1, family->rows, family->cols, options, &plan) != ATTN_OK)
        return cli_failed(family->cli, family->path);
    cli_note(family->cli, "%lld x %lld tokens, about %s of memory", (long long)family->rows, (long long)family->cols,
             cli_bytes((double)plan.bytes, planned));
    if (attn_msa_run(msa, family->tokens, 1, family->rows, family->cols, options, result) != ATTN_OK)
        return cli_failed(family->cli, family->path);
    return CLI_OK;
}

/* -------------------------------------------------------------------------------------------------- names */

const char *cli_family_stem(const char *path, char *out)
{
    static const char *const endings[] = {".gz",  ".a3m", ".a2m", ".fasta", ".fas", ".fa",
                                          ".afa", ".sto", ".stk", ".aln",   NULL};
    const char *name = strrchr(path, '/');
    snprintf(out, 256, "%s", name ? name + 1 : path);
    for (int i = 0; endings[i]; i++) {
        size_t n = strlen(out), m = strlen(endings[i]);
        if (n > m && strcmp(out + n - m, endings[i]) == 0)
            out[n - m] = 0;
    }
    return out;
}

int cli_family_path(const cli_family *family, const char *directory, const char *ending, char *out)
{
    char stem[256];
    int n = snprintf(out, 4096, "%s/%s.%s", directory, cli_family_stem(family->path, stem), ending);
    return n < 4096 ? CLI_OK : cli_fail(CLI_BAD, "%s: the name is too long", directory);
}

static int by_stem(const void *left, const void *right)
{
    char one[256], two[256];
    return strcmp(cli_family_stem(*(const char *const *)left, one), cli_family_stem(*(const char *const *)right, two));
}

int cli_family_apart(const cli_call *cli)
{
    char stem[256];
    int code = CLI_OK;
    const char **paths = malloc((size_t)cli->nwords * sizeof *paths);
    if (!paths)
        return cli_fail(CLI_FAILED, "out of memory");
    memcpy(paths, cli->words, (size_t)cli->nwords * sizeof *paths);
    qsort(paths, (size_t)cli->nwords, sizeof *paths, by_stem);
    for (int i = 1; i < cli->nwords && code == CLI_OK; i++) {
        if (by_stem(&paths[i - 1], &paths[i]) == 0 && strcmp(paths[i - 1], paths[i]) != 0)
            code = cli_fail(CLI_BAD, "%s and %s: the results of both would be called %s", paths[i - 1], paths[i],
                            cli_family_stem(paths[i], stem));
    }
    free(paths);
    return code;
}
