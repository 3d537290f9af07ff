/* SPDX-License-Identifier: MIT
 * attn train contacts: fits the contact regression of an MSA Transformer to known structures. */
#include "commands.h"
#include "family.h"

#include "apps/msa/contacts.h"
#include "apps/msa/msa.h"

#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_FAMILY_OPTIONS,
    CLI_WRITES(TEXT, "out", 'o', "DIR", NULL, "the directory that gets the model with its regression"),
    CLI_FLAG("imputed_beta", 0, "place every C-beta by ideal geometry; default: C-beta, C-alpha of glycine"),
    CLI_REAL("strength", "0.15", 1e-6, 1e6,
             "weight of the data against the penalty: larger leaves more maps in (C of the authors)"),
};

static const char *const usage[] = {"ALIGNMENT=STRUCTURE[:CHAIN]... --model PATH -o DIR", NULL};

static const char description[] =
    "Contacts are read from the row attention maps of a model by a logistic regression with an L1 penalty, fitted to "
    "a few known structures (Rao et al. 2021 took twenty). Each argument names an alignment and the PDB or mmCIF "
    "file of its first sequence; without a CHAIN the one that fits best is taken. DIR gets the model as it was, with "
    "the regression.";

static const char *const examples[] = {
    "attn train contacts 1a3aA.a3m=1a3aA.pdb 1atzA.a3m=1atz.cif:A --model small-msa -o small-msa-contacts",
    NULL,
};

typedef struct fitting {
    const cli_call *cli;
    int n;
    cli_family *families;
    attn_contact_example *examples;
    cli_structure *structures;
} fitting;

/* A warning is printed if a fit finds less than WEAK times as many contacts as random guessing, on its own training
 * data. */
static const double WEAK = 3;

static int measure(const fitting *f, int i, const char *path, const char *chain)
{
    attn_cbeta beta = cli_flag(f->cli, "imputed_beta") ? ATTN_CBETA_IMPUTED : ATTN_CBETA_ATOM;
    int code = cli_family_measure(&f->families[i], path, true, chain, beta, &f->structures[i]);
    f->examples[i] = (attn_contact_example){f->families[i].chosen, f->structures[i].distances};
    return code;
}

/* Parses "alignment=structure:chain", where the name of the alignment must not contain '='. */
static int read_example(const fitting *f, int i, const char *word)
{
    char text[4096];
    snprintf(text, sizeof text, "%s", word);
    char *structure = strchr(text, '=');
    if (!structure || strlen(word) >= sizeof text)
        return cli_fail(CLI_BAD, "\"%.60s\" is not ALIGNMENT=STRUCTURE[:CHAIN]", word);
    *structure++ = 0;
    char *chain = strrchr(structure, ':');
    if (chain)
        *chain++ = 0;
    size_t length = strlen(text); /* The path is copied, because it must outlive the family. */
    char *path = malloc(length + 1);
    if (!path)
        return cli_fail(CLI_FAILED, "out of memory");
    memcpy(path, text, length + 1);
    int code = cli_family_read(&f->families[i], f->cli, path);
    if (code == CLI_OK)
        code = measure(f, i, structure, chain);
    f->families[i].path = path;
    return code;
}

/* Refuses a regression that gives all pairs the same probability. It results if there are no maps, or no contacts in
 * the training data. */
static int refuse(const cli_call *cli, const attn_contacts_fit_result *fitted)
{
    if (fitted->contacts == 0)
        return cli_fail(CLI_BAD,
                        "none of the %lld pairs of residues is in contact (within 8 angstrom), so there is nothing to "
                        "learn; give larger structures or more of them",
                        (long long)fitted->pairs);
    if (fitted->used == 0)
        return cli_fail(CLI_BAD,
                        "the fit uses none of the %lld attention maps, so every pair would have the same probability; "
                        "nothing was written. Weaken the penalty with --strength %g, or give more structures; a model "
                        "that has learnt little has no contacts in its maps",
                        (long long)fitted->features, 10 * cli_real(cli, "strength"));
    return CLI_OK;
}

static void warn(const cli_call *cli, const attn_contacts_fit_result *fitted)
{
    double found = (double)fitted->found / (double)fitted->contacts;
    double guessed = (double)fitted->contacts / (double)fitted->pairs;
    if (found < WEAK * guessed)
        cli_note(
            cli,
            "warning: of the %lld likeliest pairs %.1f %% touch, on the structures that the fit has seen; guessing "
            "finds %.1f %%: the maps say next to nothing of contacts; train the model longer or take another",
            (long long)fitted->contacts, 100 * found, 100 * guessed);
    if (fitted->used * 20 < fitted->features)
        cli_note(cli,
                 "warning: only %lld of %lld attention maps are used; a weaker penalty (--strength %g) may find more",
                 (long long)fitted->used, (long long)fitted->features, 10 * cli_real(cli, "strength"));
}

static int fit(const fitting *f, attn_msa *msa)
{
    const cli_call *cli = f->cli;
    const char *directory = cli_text(cli, "out");
    attn_msa_options bounds = {0};
    attn_contacts_fit_result fitted;
    int code = cli_family_bounds(cli, &bounds);
    if (code != CLI_OK)
        return code;
    attn_contacts_fit_options how = {.c = cli_real(cli, "strength"), .memory = bounds.memory};
    if (attn_contacts_fit(msa, f->examples, f->n, &how, &fitted) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = refuse(cli, &fitted);
    if (code != CLI_OK)
        return code;
    if (attn_msa_save(msa, directory) != ATTN_OK)
        return cli_failed(cli, NULL);
    warn(cli, &fitted);
    if (!cli->json) {
        printf("%lld pairs, %lld contacts; %lld of %lld attention maps are used\n", (long long)fitted.pairs,
               (long long)fitted.contacts, (long long)fitted.used, (long long)fitted.features);
        printf("of the %lld likeliest of these pairs %.1f %% touch; guessing: %.1f %%\n", (long long)fitted.contacts,
               100 * (double)fitted.found / (double)fitted.contacts,
               100 * (double)fitted.contacts / (double)fitted.pairs);
        printf("The model is in %s\n", directory);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "pairs", fitted.pairs);
    attn_json_int(&json, "contacts", fitted.contacts);
    attn_json_int(&json, "features", fitted.features);
    attn_json_int(&json, "used", fitted.used);
    attn_json_int(&json, "found", fitted.found);
    attn_json_array(&json, "structures");
    for (int i = 0; i < f->n; i++) {
        attn_json_object(&json, NULL);
        attn_json_text(&json, "alignment", f->families[i].path);
        cli_structure_json(&json, &f->structures[i]);
        attn_json_end(&json);
    }
    attn_json_end(&json);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static void release(fitting *f)
{
    for (int i = 0; f->families && f->structures && i < f->n; i++) {
        free((char *)(uintptr_t)f->families[i].path);
        cli_family_free(&f->families[i]);
        free(f->structures[i].distances);
    }
    free(f->families);
    free(f->examples);
    free(f->structures);
}

static int run(cli_call *cli)
{
    fitting f = {.cli = cli, .n = cli->nwords};
    attn_msa *msa = NULL;
    f.families = calloc((size_t)f.n, sizeof *f.families);
    f.examples = calloc((size_t)f.n, sizeof *f.examples);
    f.structures = calloc((size_t)f.n, sizeof *f.structures);
    if (!f.families || !f.examples || !f.structures) {
        release(&f);
        return cli_fail(CLI_FAILED, "out of memory");
    }
    int code = cli_claim_in(cli, cli_text(cli, "out"), (const char *const[]){"config.json", "model.safetensors", NULL});
    for (int i = 0; i < f.n && code == CLI_OK; i++)
        code = read_example(&f, i, cli->words[i]);
    if (code == CLI_OK)
        code = cli_family_model(cli, &msa);
    if (code == CLI_OK)
        code = fit(&f, msa);
    release(&f);
    attn_msa_destroy(msa);
    return code;
}

const cli_command cli_train_contacts = {
    "train contacts",
    "fit contact prediction to known structures",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    -1,
    run,
};
