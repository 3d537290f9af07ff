/* SPDX-License-Identifier: MIT
 * attn convert: a published checkpoint as a directory of attn's own. */
#include "commands.h"

#include "attn/msa.h"

static const cli_option options[] = {
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets config.json and model.safetensors"),
    CLI_TEXT("regression", 0, "FILE", "", "the contact regression; default: the file beside the checkpoint"),
};

static const char *const usage[] = {"CHECKPOINT.pt -o DIR", NULL};

static const char description[] =
    "Reads a checkpoint of the MSA Transformer as downloaded (ESM-MSA-1b, ESM-MSA-1) and writes it as safetensors, the "
    "contact regression included. The directory loads faster, needs no second file, and holds no pickle.";

static const char *const examples[] = {"attn convert esm_msa1b_t12_100M_UR50S.pt -o msa1b", NULL};

static int run(cli_call *cli)
{
    attn_msa *msa;
    const char *regression = cli_text(cli, "regression"), *directory = cli_text(cli, "out");
    attn_msa_load_options how = {.regression = regression && *regression ? regression : NULL};
    if (attn_msa_load(&msa, cli->context, cli->words[0], &how) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (!attn_msa_has_regression(msa))
        cli_note(cli, "note: there is no contact regression beside %s: the model will not predict contacts",
                 cli->words[0]);
    int code = attn_msa_save(msa, directory) == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    attn_msa_destroy(msa);
    if (code == CLI_OK)
        printf("%s\n", directory);
    return code;
}

const cli_command cli_convert = {
    "convert", "bring a published checkpoint into attn's own form", usage, description, CLI_OPTIONS(options), NULL,
    examples,  1, 1, run,
};
