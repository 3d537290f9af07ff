/* SPDX-License-Identifier: MIT
 *
 * family.h - code that is common to the commands about alignments. It handles the model, the alignment and the memory
 * limit.
 */
#ifndef CLI_FAMILY_H
#define CLI_FAMILY_H

#include "command.h"

#include "data/proteins.h"
#include "attn/msa.h"

extern const char *const cli_family_selects[], *const cli_family_formats[];

#define CLI_FAMILY_FORMAT_OPTIONS                                                                                      \
    CLI_CHOICE("format", cli_family_formats, "auto", "format of the alignment"),                                       \
        CLI_FLAG("query_columns", 0, "keep only the columns in which the query has a residue")

/* Options for choosing sequences of an alignment. */
/* clang-format off */
#define CLI_FAMILY_CHOICE_OPTIONS(depth)                                                                               \
    CLI_INT("depth", 'd', depth, 1, 1024, "use at most this many sequences of an alignment"), \
        CLI_CHOICE("select", cli_family_selects, "diverse",                                                            \
                   "which sequences: diverse (as in ESM's notebook), first, random, weighted (random by attn " \
                   "weights)"), \
        CLI_INT("seed", 0, "1", 0, 9e15, "seed of a random choice"), \
        CLI_FAMILY_FORMAT_OPTIONS
/* clang-format on */

#define CLI_FAMILY_NAMES_OPTION                                                                                        \
    CLI_TEXT("names", 0, "FILE", "",                                                                                   \
             "a names file that renames the weights of another program's model, or a built-in one: msa-esm")
/* Options of the commands that have a --model. */
/* clang-format off */
#define CLI_FAMILY_OPTIONS                                                                                             \
    CLI_TEXT("model", 'm', "PATH", NULL, "a published checkpoint (.pt) or a directory that attn made"),                \
        CLI_TEXT("regression", 0, "FILE", "", "the contact regression; default: the file in the checkpoint's folder"), \
        CLI_FAMILY_NAMES_OPTION,                                                                                       \
        CLI_FAMILY_CHOICE_OPTIONS("128"),                                                                              \
        CLI_TEXT("memory", 0, "SIZE", "", "most memory to plan for, as 2G or 800M; it changes the time, and " \
                                          "results by rounding only"), \
        CLI_FLAG("esm_compat", 0, "give ESM's results where its padding changes them (batches only)")
/* clang-format on */

typedef struct cli_family {
    const cli_call *cli;
    const char *path;
    attn_alignment *all, *chosen;
    int32_t *tokens; /* tokens [rows, cols] of `chosen`, where <cls> is column 0 */
    int64_t rows, cols;
    /* effective number of sequences of `all` at 80 % identity; 0: not counted, because it takes too long */
    double effective;
} cli_family;

/* Returns an exit code. Errors have been printed. */
int cli_family_model(const cli_call *cli, attn_msa **msa);
int cli_family_read_all(cli_family *family, const cli_call *cli, const char *path);
/* Reads the first sequence of a file, for a model that reads no alignment. */
int cli_family_read_query(cli_family *family, const cli_call *cli, const char *path);
/* Reads an alignment and chooses some of its sequences. Prints notes for the user. */
int cli_family_read(cli_family *family, const cli_call *cli, const char *path);
void cli_family_free(cli_family *family);

/* A structure of the query, whose residues are mapped to the alignment's columns. */
typedef struct cli_structure {
    /* distances [columns, columns], where NAN means an unknown position; NULL: there is no structure */
    float *distances;
    int64_t resolved;
    char chain[64];
    double identity, coverage;
} cli_structure;

/* Reads the structure. Prints the name of the chain and how well it matches the query. If `chain` is NULL, uses the
 * chain that matches best. If the structure is not required and cannot be used, prints a warning, and
 * structure->distances is NULL. Returns an exit code. */
int cli_family_measure(const cli_family *family, const char *path, bool required, const char *chain, attn_cbeta beta,
                       cli_structure *structure);
/* Writes chain, residues with positions, identity and coverage as members of an object. */
void cli_structure_json(attn_json *json, const cli_structure *structure);

int cli_family_bounds(const cli_call *cli, attn_msa_options *options);
/* Returns the memory of a run in bytes: the model's plan plus the alignment, or the memory that reading the file
 * needed if that is more. */
double cli_family_memory(const cli_family *family, const attn_msa_cost *plan);
/* Prints how much memory the run needs. Then runs the model. */
int cli_family_run(const cli_family *family, attn_msa *msa, const attn_msa_options *options, attn_msa_result *result);

/* Writes the stem of a path to `out` of 256 bytes: "dir/family.a3m.gz" gives "family". Returns `out`. */
const char *cli_family_stem(const char *path, char *out);
/* Writes DIRECTORY/STEM.ENDING to `out` of 4096 bytes. Returns an exit code. */
int cli_family_path(const cli_family *family, const char *directory, const char *ending, char *out);
/* Claims the results of all alignments, whose endings are given and end with NULL. Refuses two alignments with the same
 * stem, because their results would be the same files. Returns an exit code. */
int cli_family_claim(const cli_call *cli, const char *const *endings);

#endif
