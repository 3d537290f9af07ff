/* SPDX-License-Identifier: MIT
 *
 * Reads the options for checkpoints with foreign names.
 */
#include "foreign.h"
#include "model_config.h"
#include "source.h"

#include "attn/trainer.h"
#include "io/names/names.h"

#include <stdio.h>
#include <string.h>

const char *cli_names(const cli_call *cli)
{
    const char *names = cli_text(cli, "names");
    return names && *names ? names : NULL;
}

attn_status cli_model_kind_of(const cli_call *cli, cli_model_kind *kind, const char *path)
{
    static const struct {
        const char *name;
        cli_model_kind kind;
    } kinds[] = {
        {"classify", CLI_CLASSIFIES}, {"detect", CLI_DETECTS}, {"images", CLI_DRAWS}, {"msa", CLI_READS_ALIGNMENTS}};
    const attn_trainer *trainer = NULL;
    attn_status status = attn_trainer_of(&trainer, cli->context, path, cli_names(cli));
    *kind = CLI_TRANSLATES;
    for (size_t i = 0; trainer && i < sizeof kinds / sizeof *kinds; i++)
        *kind = strcmp(kinds[i].name, trainer->kind) == 0 ? kinds[i].kind : *kind;
    /* what is missing is said by the function that loads it, with the reason */
    if (status == ATTN_ERROR_NOT_FOUND && !cli_names(cli)) {
        attn_context_clear_error(cli->context);
        status = ATTN_OK;
    }
    return status;
}

attn_status cli_foreign_read(const cli_call *cli, cli_foreign *foreign)
{
    const char *names = cli_text(cli, "names"), *arch = cli_text(cli, "arch");
    attn_config *given = NULL;
    attn_status status = ATTN_OK;
    *foreign = (cli_foreign){.arch = *arch ? arch : NULL};
    if (*names)
        status = attn_name_map_read(&foreign->names, cli->context, names);
    if (status == ATTN_OK)
        status = attn_config_create(&foreign->config, cli->context);
    if (status == ATTN_OK)
        status = cli_model_config_read(cli, &given);
    const attn_config *from[] = {foreign->names ? attn_name_map_settings(foreign->names) : given, given};
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        for (int64_t k = 0; k < attn_config_size(from[i]) && status == ATTN_OK; k++) {
            const char *key = attn_config_key(from[i], k);
            status = attn_config_set(foreign->config, key, attn_config_get(from[i], key));
        }
    attn_config_destroy(given);
    if (!foreign->arch && foreign->names)
        foreign->arch = attn_name_map_architecture(foreign->names);
    return status;
}

attn_status cli_foreign_measure(const cli_call *cli, cli_foreign *foreign, const char *path)
{
    attn_checkpoint *weights = NULL;
    attn_weights_options how = {.names = foreign->names, .allow_extra = true};
    attn_config *given = NULL;
    if (!foreign->names)
        return ATTN_OK;
    attn_status status = attn_checkpoint_open(&weights, cli->context, path, &how, NULL);
    if (status == ATTN_OK)
        status = cli_model_config_read(cli, &given);
    if (status == ATTN_OK)
        status = attn_name_map_infer_config(foreign->names, weights, given);
    for (int64_t i = 0; status == ATTN_OK && i < attn_config_size(given); i++)
        status = attn_config_set(foreign->config, attn_config_key(given, i),
                                 attn_config_get(given, attn_config_key(given, i)));
    attn_config_destroy(given);
    attn_checkpoint_close(weights);
    return status;
}

void cli_foreign_free(cli_foreign *foreign)
{
    attn_name_map_destroy(foreign->names);
    attn_config_destroy(foreign->config);
    *foreign = (cli_foreign){0};
}

const char *cli_name_kind(const char *name, char *out, size_t size)
{
    size_t n = 0;
    while (*name && n + 1 < size) {
        size_t digits = strspn(name, "0123456789");
        out[n++] = digits ? '#' : *name;
        name += digits ? digits : 1;
    }
    out[n] = '\0';
    return out;
}

/* Returns twice the length of the names' longest common subsequence divided by the sum of their lengths. */
double cli_name_likeness(const char *a, const char *b)
{
    enum { MOST = 255 };
    int row[MOST + 1] = {0}, n = (int)strnlen(a, MOST), m = (int)strnlen(b, MOST);
    for (int i = 0; i < n; i++) {
        int corner = 0;
        for (int j = 1; j <= m; j++) {
            int above = row[j];
            row[j] = a[i] == b[j - 1] ? corner + 1 : row[j] > row[j - 1] ? row[j] : row[j - 1];
            corner = above;
        }
    }
    return n + m ? 2.0 * row[m] / (n + m) : 1;
}

const char *cli_shape_text(int rank, const int64_t *shape, char *out)
{
    size_t n = 1;
    out[0] = '[';
    for (int i = 0; i < rank && n < 100; i++)
        n += (size_t)snprintf(out + n, 128 - n, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(out + n, 128 - n, "]");
    return out;
}
