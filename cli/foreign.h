/* SPDX-License-Identifier: MIT
 *
 * foreign.h - the options --arch, --config and --names, which describe checkpoints with foreign names.
 */
#ifndef CLI_FOREIGN_H
#define CLI_FOREIGN_H

#include "command.h"

#include "attn/models.h"

#define CLI_NAMES CLI_TEXT("names", 'n', "FILE", "", "a names file for weights of foreign names, or a built-in one")

/* The option --names for commands in which the short option -n sets a count. */
#define CLI_NAMES_LONG CLI_TEXT("names", 0, "FILE", "", "a names file for weights of foreign names, or a built-in one")

typedef struct cli_foreign {
    attn_name_map *names; /* NULL if no names file was given */
    const char *arch;     /* architecture of --arch or, without --arch, of the names file; NULL: neither names one */
    attn_config *config;  /* settings of --config and, where --config has none, of the names file */
} cli_foreign;

/* Returns --names, or NULL if it is not given. */
const char *cli_names(const cli_call *cli);
/* The task of the model in a path. config.json or --names determines the task. */
typedef enum cli_model_kind {
    CLI_TRANSLATES,
    CLI_CLASSIFIES,
    CLI_DETECTS,
    CLI_DRAWS,
    CLI_READS_ALIGNMENTS
} cli_model_kind;
attn_status cli_model_kind_of(const cli_call *cli, cli_model_kind *kind, const char *path);

/* The form of a model's directory. config.json determines the form. */
typedef enum cli_form {
    CLI_FORM_UNKNOWN, /* config.json is missing or damaged */
    CLI_FORM_OTHER,
    CLI_FORM_OWN,
    CLI_FORM_MARIANMT /* translator in Hugging Face's form */
} cli_form;
cli_form cli_form_of(const cli_call *cli, const char *directory);

/* Reads the options. Call cli_foreign_free even after a failure. */
attn_status cli_foreign_read(const cli_call *cli, cli_foreign *foreign);
/* Adds settings that follow from the shapes of the weights. The names file says how each setting follows. */
attn_status cli_foreign_measure(const cli_call *cli, cli_foreign *foreign, const char *weights);
void cli_foreign_free(cli_foreign *foreign);

/* Lists which tensors of the checkpoint fit, which are missing and which are left over. Returns an exit code. */
int cli_dry_run(const cli_call *cli, const cli_foreign *foreign, const char *path);

/* Replaces each number in a name by "#" and writes the result to `out` of `size` bytes. So "layers.12.weight"
 * becomes "layers.#.weight". Returns `out`. */
const char *cli_name_kind(const char *name, char *out, size_t size);
/* Returns the similarity of two names, from 0 to 1. */
double cli_name_likeness(const char *a, const char *b);
/* Writes a shape such as "[2,3]" to `out` of 128 bytes. Returns `out`. */
const char *cli_shape_text(int rank, const int64_t *shape, char *out);

#endif
