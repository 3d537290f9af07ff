/* SPDX-License-Identifier: MIT
 * attn train msa: learns a language model of protein alignments. */
#include "commands.h"
#include "training.h"

#include "attn/msa_training.h"

static const cli_option options[] = {
    CLI_TEXT("data", 0, "DIR", "", "a folder of alignments: a3m, FASTA, a2m, Stockholm or Clustal, plain or gzip"),
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets the model"),
    CLI_FLAG("resume", 0, "go on where a training that was stopped or killed left off"),
};

static const char *const usage[] = {"--data DIR --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char description[] =
    "Trains an MSA Transformer (Rao et al. 2021) by masked language modelling: of an alignment the query and some other "
    "rows are seen, some residues are masked, and the model predicts them. Some of the alignments are kept for "
    "validation; the parameters that do best on them are the ones kept.\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the model, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in "
    "the same bits as a training that was not stopped, whatever the number of threads.";

static const char *const examples[] = {
    "attn train msa --data alignments --out small-msa",
    "attn train msa --data alignments --out wide-msa --layers 6 --embed-dim 256 --max-tokens 8192 --epochs 50",
    "attn train msa --out small-msa --resume",
    NULL,
};

typedef struct msa_training {
    cli_training common; /* first: cli_training_progress reads it */
    attn_msa_training_run_info plan;
} msa_training;

static void begin(void *user, const attn_msa_training_run_info *plan)
{
    msa_training *training = user;
    char train[32], valid[32], sequences[32];
    training->plan = *plan;
    training->plan.settings = NULL;
    cli_note(training->common.cli, "%s alignment%s to train on, %s for validation; %s sequences",
             cli_count(plan->train_alignments, train), plan->train_alignments == 1 ? "" : "s",
             cli_count(plan->valid_alignments, valid), cli_count(plan->sequences, sequences));
    cli_training_announce(&training->common, CLI_TRAINING_PLAN(plan));
}

static int print_json(const cli_call *cli, const msa_training *training, const char *directory)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train_alignments", training->plan.train_alignments);
    attn_json_int(&json, "valid_alignments", training->plan.valid_alignments);
    attn_json_int(&json, "sequences", training->plan.sequences);
    cli_training_json(&json, &training->common);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int train(cli_call *cli, const attn_config *settings)
{
    const char *data = cli_text(cli, "data");
    attn_msa_training_job job = {.data = data && *data ? data : NULL,
                                 .directory = cli_text(cli, "out"),
                                 .settings = settings,
                                 .resume = cli_flag(cli, "resume"),
                                 .progress = cli_training_progress,
                                 .begin = begin};
    msa_training training = {.plan = {0}};
    job.user = &training;
    if (!job.data && !job.resume)
        return cli_fail(CLI_BAD, "train msa needs --data DIR, a folder of alignments");
    int code = job.resume ? cli_training_unchanged(cli, settings, job.directory) : CLI_OK;
    if (code != CLI_OK)
        return code;
    cli_training_begin(&training.common, cli, "train msa", "residues", "accuracy");
    code = cli_training_end(&training.common, attn_msa_train(cli->context, &job), job.directory);
    if (code != CLI_OK || cli->json)
        return code == CLI_OK ? print_json(cli, &training, job.directory) : code;
    printf("The model is in %s", job.directory);
    cli_training_print(&training.common);
    puts(".");
    return CLI_OK;
}

static int run(cli_call *cli)
{
    return cli_training_run(cli, train);
}

const cli_command cli_train_msa = {
    "train msa",
    "train a language model of protein alignments",
    usage,
    description,
    CLI_OPTIONS(options),
    attn_msa_training_keys,
    examples,
    0,
    0,
    run,
};
