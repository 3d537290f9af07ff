/* SPDX-License-Identifier: MIT
 * Training a translator from the command. */
#include "translator_training.h"

static void tell_data(const cli_call *cli, const attn_translator_run_info *plan)
{
    char count[32], other[32];
    if (plan->filtered.unlike + plan->filtered.duplicates > 0)
        cli_note(cli, "%s pairs were left out of the training part as too unlike in length, %s as duplicates",
                 cli_count(plan->filtered.unlike, count), cli_count(plan->filtered.duplicates, other));
    if (plan->mixed_pairs > 0)
        cli_note(cli, "%s of the pairs to train on are those of --mix", cli_count(plan->mixed_pairs, count));
    if (plan->judged_pairs > 0)
        cli_note(cli, "%s sentences of the validation part are translated after each epoch",
                 cli_count(plan->judged_pairs, count));
}

static void begin(void *user, const attn_translator_run_info *plan)
{
    cli_translator_training *training = user;
    const cli_call *cli = training->common.cli;
    char train[32], valid[32], test[32], source[32], target[32];
    training->plan = *plan;
    training->plan.settings = NULL;
    training->plan.taken = NULL;
    cli_note(cli, "%s pairs to train on, %s for validation, %s kept for testing", cli_count(plan->train_pairs, train),
             cli_count(plan->valid_pairs, valid), cli_count(plan->test_pairs, test));
    cli_note(cli, "vocabularies of %s source and %s target tokens", cli_count(plan->source_words, source),
             cli_count(plan->target_words, target));
    tell_data(cli, plan);
    if (plan->taken)
        cli_training_taken(cli, plan->taken);
    cli_training_announce(&training->common, CLI_TRAINING_PLAN(plan));
}

int cli_train_translator(const cli_call *cli, attn_translator_job *job, cli_translator_training *training)
{
    *training = (cli_translator_training){0};
    job->begin = begin;
    job->progress = cli_training_progress; /* reads `common`, the first member */
    job->user = training;
    cli_training_begin(&training->common, cli, "train translate", "tokens", "BLEU");
    attn_status status = attn_translator_train(cli->context, job);
    return cli_training_end(&training->common, status, job->directory);
}
