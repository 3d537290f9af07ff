/* SPDX-License-Identifier: MIT
 * foreign.h - checkpoints of foreign names: what --arch, --config and --names say together. */
#ifndef CLI_FOREIGN_H
#define CLI_FOREIGN_H

#include "command.h"

#include "attn/models.h"

#define CLI_NAMES CLI_TEXT("names", 'n', "FILE", "", "a names file for weights of foreign names, or a built-in one")

/* Whether -n sets how many. */
#define CLI_NAMES_LONG CLI_TEXT("names", 0, "FILE", "", "a names file for weights of foreign names, or a built-in one")

typedef struct cli_foreign {
    attn_name_map *names; /* NULL: none given */
    const char *arch;     /* --arch, or what the names file says; NULL: neither */
    attn_config *config;  /* of the names file, and --config over it */
} cli_foreign;

/* --names; NULL: not given. */
const char *cli_names(const cli_call *cli);
/* The task of the model in `path`, by its config.json or by --names. */
typedef enum cli_model_kind {
    CLI_TRANSLATES,
    CLI_CLASSIFIES,
    CLI_DETECTS,
    CLI_DRAWS,
    CLI_READS_ALIGNMENTS
} cli_model_kind;
attn_status cli_model_kind_of(const cli_call *cli, cli_model_kind *kind, const char *path);

/* The form of a model's directory, by its config.json. */
typedef enum cli_form {
    CLI_FORM_UNKNOWN, /* there is no such file, or it is damaged */
    CLI_FORM_OTHER,
    CLI_FORM_OWN,
    CLI_FORM_MARIANMT /* Hugging Face's, of a translator */
} cli_form;
cli_form cli_form_of(const cli_call *cli, const char *directory);

/* To be freed in any case. */
attn_status cli_foreign_read(const cli_call *cli, cli_foreign *foreign);
/* Adds settings that the names file reads from the shapes of the weights. */
attn_status cli_foreign_measure(const cli_call *cli, cli_foreign *foreign, const char *weights);
void cli_foreign_free(cli_foreign *foreign);

/* Lists what fits of the checkpoint, what is missing and what is left over; an exit code. */
int cli_dry_run(const cli_call *cli, const cli_foreign *foreign, const char *path);

/* "layers.12.weight" -> "layers.#.weight", in `out` of `size` bytes; returns `out`. */
const char *cli_name_kind(const char *name, char *out, size_t size);
/* How alike two names are, 0 to 1. */
double cli_name_likeness(const char *a, const char *b);
/* "[2,3]" in `out` of 128 bytes; returns `out`. */
const char *cli_shape_text(int rank, const int64_t *shape, char *out);

#endif
