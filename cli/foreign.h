/* SPDX-License-Identifier: MIT
 *
 * foreign.h - the options --arch, --config and --names, which describe checkpoints with foreign names.
 */
#ifndef CLI_FOREIGN_H
#define CLI_FOREIGN_H

#include "command.h"

#include "attn/models.h"

#define CLI_NAMES                                                                                                      \
    CLI_TEXT("names", 'n', "FILE", "", "a names file that renames the weights of another program, or a built-in one")

/* The option --names, for commands in which -n sets a count. */
#define CLI_NAMES_LONG                                                                                                 \
    CLI_TEXT("names", 0, "FILE", "", "a names file that renames the weights of another program, or a built-in one")

typedef struct cli_foreign {
    attn_name_map *names;
    const char *arch;    /* architecture of --arch, or else of the names file; NULL: not given */
    attn_config *config; /* settings of --config, completed by settings of the names file */
} cli_foreign;

const char *cli_names(const cli_call *cli);
/* Task of the model at a path, according to its config.json or to --names. */
typedef enum cli_model_kind {
    CLI_TRANSLATES,
    CLI_CLASSIFIES,
    CLI_DETECTS,
    CLI_DRAWS,
    CLI_READS_ALIGNMENTS
} cli_model_kind;
attn_status cli_model_kind_of(const cli_call *cli, cli_model_kind *kind, const char *path);

/* Call cli_foreign_free even after a failure. */
attn_status cli_foreign_read(const cli_call *cli, cli_foreign *foreign);
/* Adds the settings that the names file derives from the shapes of the weights. */
attn_status cli_foreign_measure(const cli_call *cli, cli_foreign *foreign, const char *weights);
void cli_foreign_free(cli_foreign *foreign);

/* Lists the tensors of the checkpoint that fit, the parameters that are missing, and the tensors that are left over.
 * Returns an exit code. */
int cli_dry_run(const cli_call *cli, const cli_foreign *foreign, const char *path);

/* Writes a name in which each number is replaced by "#" to `out` of `size` bytes. "layers.12.weight" becomes
 * "layers.#.weight". Returns `out`. */
const char *cli_name_kind(const char *name, char *out, size_t size);
double cli_name_likeness(const char *a, const char *b);
/* Writes a shape such as "[2,3]" to `out` of 128 bytes. Returns `out`. */
const char *cli_shape_text(int rank, const int64_t *shape, char *out);

#endif
