/* SPDX-License-Identifier: MIT
 *
 * Implements the code that is common to the commands about alignments.
 */
#include "family.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Returns true if the query has at least ten letters, all of nucleotides. No protein has so few kinds of residue. */
static bool looks_like_bases(const char *query)
{
    size_t letters = strlen(query), gaps = 0, bases = strspn(query, "ACGTUN-");
    for (const char *c = query; *c; c++)
        gaps += *c == '-';
    return bases == letters && letters - gaps >= 10;
}

/* Counts the headers of sequences after the first one of a FASTA or A3M file. Other formats have none. */
static int64_t count_further(const attn_bytes *file)
{
    int64_t headers = 0;
    for (size_t i = 0; i < file->size; i++)
        headers += file->data[i] == '>' && (i == 0 || file->data[i - 1] == '\n' || file->data[i - 1] == '\r');
    return headers > 0 ? headers - 1 : 0;
}

/* `further` gets the number of sequences that are not read; NULL: not wanted. */
static int read_rows(cli_family *family, const cli_call *cli, const char *path, int64_t most, int64_t *further)
{
    attn_bytes bytes = {0};
    attn_alignment_options options = {.format =
                                          (attn_alignment_format)index_of(cli_family_formats, cli_text(cli, "format")),
                                      .query_columns = cli_flag(cli, "query_columns"),
                                      .max_rows = most};
    *family = (cli_family){.cli = cli, .path = path};
    attn_status status = attn_file_read(&bytes, cli->context, path, 0);
    if (status == ATTN_OK)
        status = attn_alignment_parse(&family->all, cli->context, bytes.data, bytes.size, path, &options);
    if (status == ATTN_OK && further)
        *further = count_further(&bytes);
    attn_bytes_free(cli->context, &bytes);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

int cli_family_read_all(cli_family *family, const cli_call *cli, const char *path)
{
    return read_rows(family, cli, path, 0, NULL);
}

int cli_family_read_query(cli_family *family, const cli_call *cli, const char *path)
{
    int64_t further = 0;
    int code = read_rows(family, cli, path, 1, &further);
    if (code == CLI_OK)
        family->rows = 1;
    if (code == CLI_OK && further > 0)
        cli_note(cli,
                 "note: %s: the first sequence is used, and the %lld after it are not: the model reads one protein",
                 path, (long long)further);
    if (code == CLI_OK && looks_like_bases(attn_alignment_query(family->all)))
        cli_note(cli, "warning: %s: the sequence looks like DNA or RNA; the model is for proteins: translate it", path);
    return code;
}

/* Counts the effective sequences, unless comparing all pairs of sequences takes too long. The user can then run
 * `attn weights`. */
static attn_status count_effective(cli_family *family)
{
    const double most = 2e10; /* residue comparisons that one core does in about a second */
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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Warns if two rows have the same name, because a table of results cannot distinguish them. Two parts of one protein
 * may have the same name. */
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
        cli_note(family->cli, "warning: %lld of the sequences have the same name as another, such as '%.60s'",
                 (long long)same, first);
    free(names);
}

/* Warns if the alignment's format makes insertions of some residues of the query, and prints how many. */
static void warn_of_residues(const cli_family *family)
{
    long long columns = 0, all = (long long)strlen(attn_alignment_query(family->all));
    for (int64_t c = 0; c + 1 < family->cols; c++)
        columns += attn_alignment_number(family->all, c) > 0;
    if (columns < all)
        cli_note(family->cli,
                 "warning: %lld of the %lld residues of the first sequence are insertions (%s) and have no results; "
                 "residue numbers count them",
                 all - columns, all,
                 attn_alignment_origin(family->all) == ATTN_ALIGNMENT_A3M ? "lower case in an a3m" : "#=GC RF");
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
    warn_of_residues(family);
    if (looks_like_bases(attn_alignment_row(family->chosen, 0)))
        cli_note(family->cli,
                 "warning: the first sequence looks like DNA or RNA; the model is for proteins: translate it");
    if (family->rows == 1)
        cli_note(
            family->cli,
            "warning: the alignment has only one sequence: the model's results for it are little better than chance");
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

/* ------------------------------------------------------------------------------------------ the structure */

static attn_status fit_structure(const cli_family *family, const attn_structure *structure, attn_cbeta beta,
                                 int64_t *residues, int64_t *to, cli_structure *out)
{
    const char *query = attn_alignment_query(family->all);
    int64_t columns = attn_alignment_columns(family->all), n = (int64_t)strlen(query);
    attn_structure_match match;
    attn_status status = attn_structure_map(structure, query, n, residues, &match);
    if (status != ATTN_OK)
        return status;
    for (int64_t c = 0; c < columns; c++) {
        int64_t number = attn_alignment_number(family->all, c);
        to[c] = number ? residues[number - 1] : -1;
    }
    attn_structure_distances(structure, to, columns, beta, out->distances);
    for (int64_t c = 0; c < columns; c++)
        out->resolved += !isnan(out->distances[c * columns + c]);
    snprintf(out->chain, sizeof out->chain, "%s", match.chain);
    out->identity = match.identity;
    out->coverage = match.coverage;
    cli_note(family->cli,
             "%s%s: %lld of the query's %lld residues aligned (coverage %.0f %%), %.0f %% of them identical; %lld have "
             "places",
             match.chain[0] ? "chain " : "the chain without a name", match.chain, (long long)match.aligned,
             (long long)n, 100 * match.coverage, 100 * match.identity, (long long)out->resolved);
    return ATTN_OK;
}

/* Reports that a structure cannot be used. Returns an exit code. */
static int without_structure(const cli_family *family, const char *where, bool required, cli_structure *structure)
{
    const attn_context *context = family->cli->context;
    attn_status status = attn_context_status(context);
    if (required || status == ATTN_ERROR_MEMORY || status == ATTN_ERROR_IO)
        return cli_failed(family->cli, where);
    cli_note(family->cli, "warning: %s%s%s; no distances are given (--structure names another file, or none)",
             where ? where : "", where ? ": " : "", attn_context_error(context));
    cli_forgive(family->cli);
    free(structure->distances);
    *structure = (cli_structure){NULL};
    return CLI_OK;
}

int cli_family_measure(const cli_family *family, const char *path, bool required, const char *chain, attn_cbeta beta,
                       cli_structure *structure)
{
    const cli_call *cli = family->cli;
    size_t columns = (size_t)attn_alignment_columns(family->all);
    attn_bytes bytes = {0};
    attn_structure *read = NULL;
    int64_t *residues = malloc(strlen(attn_alignment_query(family->all)) * sizeof *residues);
    int64_t *to = malloc(columns * sizeof *to);
    *structure = (cli_structure){.distances = malloc(columns * columns * sizeof *structure->distances)};
    bool room = residues && to && structure->distances;
    int code = room ? CLI_OK : cli_fail(CLI_FAILED, "%s: out of memory", path);
    if (room && (attn_file_read(&bytes, cli->context, path, 0) != ATTN_OK ||
                 attn_structure_parse(&read, cli->context, bytes.data, bytes.size, path, chain) != ATTN_OK))
        code = without_structure(family, NULL, required, structure);
    else if (room && fit_structure(family, read, beta, residues, to, structure) != ATTN_OK)
        code = without_structure(family, path, required, structure);
    attn_structure_destroy(read);
    attn_bytes_free(cli->context, &bytes);
    free(to);
    free(residues);
    return code;
}

void cli_structure_json(attn_json *json, const cli_structure *structure)
{
    attn_json_text(json, "chain", structure->chain);
    attn_json_int(json, "resolved", structure->resolved);
    attn_json_real(json, "identity", structure->identity);
    attn_json_real(json, "coverage", structure->coverage);
}

/* --------------------------------------------------------------------------------------------------- runs */

/* Parses a size such as "2G", "1.5g", "800M" or "123456". Returns 0 if the text is not a size. */
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
    return options->memory
               ? CLI_OK
               : cli_fail(CLI_BAD, "--memory: \"%.60s\" is not a size; expected a number of bytes, such as 2G or 800M",
                          memory);
}

double cli_family_memory(const cli_family *family, const attn_msa_cost *plan)
{
    size_t peak;
    attn_context_memory(family->cli->context, NULL, &peak, NULL);
    double alignment = (double)attn_alignment_rows(family->all) * (double)(attn_alignment_columns(family->all) + 1);
    return fmax((double)peak, (double)plan->bytes + alignment);
}

int cli_family_run(const cli_family *family, attn_msa *msa, const attn_msa_options *options, attn_msa_result *result)
{
    attn_msa_cost plan;
    char planned[32];
    if (attn_msa_estimate(msa, 1, family->rows, family->cols, options, &plan) != ATTN_OK)
        return cli_failed(family->cli, family->path);
    cli_note(family->cli, "%lld x %lld tokens, about %s of memory", (long long)family->rows, (long long)family->cols,
             cli_bytes(cli_family_memory(family, &plan), planned));
    if (attn_msa_run(msa, family->tokens, 1, family->rows, family->cols, options, result) != ATTN_OK)
        return cli_failed(family->cli, family->path);
    return CLI_OK;
}

/* -------------------------------------------------------------------------------------------------- names */

const char *cli_family_stem(const char *path, char *out)
{
    snprintf(out, 256, "%s", attn__path_last(path));
    size_t n = strlen(out), ending = attn_alignment_ending(out);
    if (ending == 0 && n > 3 && strcasecmp(out + n - 3, ".gz") == 0)
        ending = 3;
    if (n > ending)
        out[n - ending] = 0;
    return out;
}

int cli_family_path(const cli_family *family, const char *directory, const char *ending, char *out)
{
    char stem[256];
    int n = snprintf(out, ATTN__PATH, "%s/%s.%s", directory, cli_family_stem(family->path, stem), ending);
    return n < ATTN__PATH
               ? CLI_OK
               : cli_fail(CLI_BAD,
                          "%s: the path of a file in this directory would have %d bytes; at most %d are supported",
                          directory, n, ATTN__PATH - 1);
}

int cli_family_claim(const cli_call *cli, const char *const *endings)
{
    char path[ATTN__PATH];
    int code = CLI_OK;
    for (int i = 0; i < cli->nwords && code == CLI_OK; i++) {
        const cli_family family = {.cli = cli, .path = cli->words[i]};
        for (int k = 0; endings[k] && code == CLI_OK; k++) {
            code = cli_family_path(&family, cli_text(cli, "out"), endings[k], path);
            if (code == CLI_OK)
                code = cli_claim(cli, path, cli->words[i]);
        }
    }
    return code;
}
