/* SPDX-License-Identifier: MIT
 * attn train translate: learns to translate from a file of sentence pairs. */
#include "commands.h"
#include "source.h"
#include "translator_training.h"

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FILE", "",
             "sentence pairs, plain or gzip; \"phrasebook\": the English-French one that attn "
             "carries"),
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets the translator"),
    CLI_FLAG("resume", 0, "go on where a training that was stopped or killed left off"),
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"--data FILE --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char description[] =
    "FILE holds one pair a line: the sentence, a tab, its translation; whatever follows a second tab is ignored. A line that is no pair is "
    "left out and named, and the exit status is 2 at the end. "
    "With 4,000 pairs or more, sentences are split into pieces of words, with case and punctuation kept (--vocabulary); with "
    "fewer they are put into lower case and split into words. Part of the pairs is kept for validation (the parameters "
    "that do best on it are the ones kept) and part for testing (attn eval); all translations of one sentence stay on "
    "one side.\n"
    "\n"
    "DIR gets config.json, model.safetensors, source.spm and target.spm (of words: source.vocab and target.vocab), which are the translator, and "
    "training.json, checkpoint.safetensors and history.tsv, which a training needs to go on. Ctrl-C finishes the step, "
    "saves and stops; --resume then ends in the same bits as a training that was not stopped, whatever the number of "
    "threads. A resumed training keeps its data and settings: they need not be given again. --epochs, --patience and "
    "--save-every may be changed, to train for longer.\n"
    "\n"
    "With --from a training begins with another translator, a directory of attn's or a MarianMT or OPUS-MT model, whose "
    "model and vocabularies it keeps. A MarianMT or OPUS-MT model stays in MarianMT's form, which transformers reads. "
    "--mix adds pairs of older data, so that what was learned from them is not lost.\n"
    "\n"
    "--guided-alignment names a file of word alignments, a line for each pair of FILE: '0-0 2-1' means that word 0 of "
    "the translation comes from word 0 of the sentence and word 1 from word 2. Words are separated by spaces; a line "
    "may be empty. attn align --alignments writes such a file, and so does fast_align (source-target). The decoder's "
    "attention to the source (of its last layer, the mean of the heads) learns to follow the alignments, and the "
    "training loss has a part for it. Pairs of --mix have no alignments.\n"
    "\n"
    "Defaults below are those of the Transformer. bahdanau (a recurrent model with attention) and --compat d2l have "
    "some of their own. training.json has the values that were used.";

static const char *const examples[] = {
    "attn train translate --data fra.txt.gz --out en-fr --epochs 15",
    "attn train translate --data pairs.tsv --out small --num-hiddens 128 --num-blks 2",
    "attn train translate --data pairs.tsv --out rnn --model bahdanau",
    "attn train translate --data questions.tsv --out asks --from en-fr --rate 0.0002 --mix fra.tsv=0.5",
    "attn train translate --data law.tsv --out law --from opus-mt-en-fr --rate 0.00005",
    "attn train translate --data pairs.tsv --guided-alignment pairs.align --out guided",
    "attn train translate --out en-fr --resume",
    NULL,
};

static int print_json(const cli_call *cli, const cli_translator_training *training, const char *directory)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train_pairs", training->plan.train_pairs);
    attn_json_int(&json, "valid_pairs", training->plan.valid_pairs);
    attn_json_int(&json, "test_pairs", training->plan.test_pairs);
    attn_json_int(&json, "source_words", training->plan.source_words);
    attn_json_int(&json, "target_words", training->plan.target_words);
    attn_json_int(&json, "left_out_unlike", training->plan.filtered.unlike);
    attn_json_int(&json, "left_out_duplicates", training->plan.filtered.duplicates);
    attn_json_int(&json, "mixed_pairs", training->plan.mixed_pairs);
    attn_json_real(&json, "valid_bleu", training->common.last.metric);
    attn_json_real(&json, "valid_chrf", training->common.last.metric2);
    cli_training_json(&json, &training->common);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static void print_result(const cli_call *cli, const cli_translator_training *training, const char *directory)
{
    printf("The translator is in %s", directory);
    cli_training_print(&training->common);
    puts(".");
    if (!cli->quiet)
        printf("Try:  attn translate %s \"...\"\n      attn eval %s%s\n      attn show %s \"...\" -o attention.png\n",
               directory, directory, training->plan.test_pairs > 0 ? "" : " --part valid", directory);
}

static int train(cli_call *cli, const attn_config *settings)
{
    const char *directory = cli_text(cli, "out");
    attn_translator_job job = {.data = cli_source_of(cli_text(cli, "data")),
                               .directory = directory,
                               .settings = settings,
                               .resume = cli_flag(cli, "resume")};
    cli_translator_training training;
    cli_failures bad = {.cli = cli, .things = "sentence pairs"};
    cli_source_goes_on(&job.data, &bad);
    if (!job.data.path && !job.data.text && !job.resume)
        return cli_fail(CLI_BAD,
                        "train translate needs --data FILE (--data phrasebook for the sentences attn carries)");
    if (job.resume) {
        int code = cli_training_unchanged(cli, settings, directory);
        if (code != CLI_OK)
            return code;
    }
    int code = cli_train_translator(cli, &job, &training);
    if (code != CLI_OK)
        return code;
    if (cli->json)
        code = print_json(cli, &training, directory);
    else
        print_result(cli, &training, directory);
    bad.tried += training.plan.train_pairs + training.plan.valid_pairs + training.plan.test_pairs;
    return code == CLI_OK ? cli_failures_end(&bad) : code;
}

static int run(cli_call *cli)
{
    return cli_training_run(cli, train);
}

const cli_command cli_train_translate = {
    "train translate",
    "train a translator on sentence pairs",
    usage,
    description,
    CLI_OPTIONS(options),
    attn_translator_keys,
    examples,
    0,
    0,
    run,
};
