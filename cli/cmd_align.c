/* SPDX-License-Identifier: MIT
 * attn align: which tokens translate to which, learned from sentence pairs, as a lexicon for --shortlist. */
#include "commands.h"
#include "foreign.h"
#include "source.h"

#include <string.h>

static const char *const parts[] = {"train", "all", NULL};

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FILE", "", "sentence pairs, plain or gzip, or \"phrasebook\"; default: those of the training"),
    CLI_CHOICE("part", parts, "train", "which of them: the ones that the training learned from, or all"),
    CLI_TEXT("lexicon", 'o', "FILE", "", "where the lexicon is written"),
    CLI_INT("iterations", 0, "5", 1, 1000, "of expectation maximisation"),
    CLI_INT("best", 0, "100", 1, 1 << 30, "translations that are kept of each token, the likeliest"),
    CLI_REAL("min-probability", "0.0001", 1e-12, 1, "least probability of what is kept"),
    CLI_NAMES_LONG,
};

static const char *const usage[] = {"DIR --lexicon FILE [--data PAIRS]", NULL};

static const char description[] =
    "Learns from sentence pairs how likely each token of the source vocabulary of the translator DIR translates to each of "
    "the target's, by IBM Model 1 (Brown et al. 1993), and writes a lexicon for attn translate --shortlist: a line for each "
    "pair of tokens, 'target source probability', as Marian's lexical shortlists are.";

static const char *const examples[] = {
    "attn align en-fr --lexicon lex.s2t",
    "attn align opus-mt-en-fr --data pairs.tsv --part all --lexicon lex.s2t",
    "attn translate en-fr --shortlist lex.s2t < english.txt > french.txt",
    NULL,
};

static int write_lexicon(const cli_call *cli, attn_lexicon *lexicon, int64_t pairs)
{
    const char *path = cli_text(cli, "lexicon");
    attn_bytes file = {0};
    char entries[32], count[32];
    attn_json json;
    bool written = attn_lexicon_format(lexicon, &file) == ATTN_OK &&
                   attn_file_write(cli->context, path, file.data, file.size) == ATTN_OK;
    attn_bytes_free(cli->context, &file);
    if (!written)
        return cli_failed(cli, NULL);
    if (!cli->json) {
        cli_print("%s: %s entries from %s sentence pairs\n", path, cli_count(attn_lexicon_size(lexicon), entries),
                  cli_count(pairs, count));
        return CLI_OK;
    }
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "lexicon", path);
    attn_json_int(&json, "entries", attn_lexicon_size(lexicon));
    attn_json_int(&json, "pairs", pairs);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int learn(const cli_call *cli, attn_translator *translator, const char *data)
{
    cli_source source = cli_source_of(data);
    attn_split part = strcmp(cli_text(cli, "part"), "all") == 0 ? ATTN_SPLIT_ALL : ATTN_SPLIT_TRAIN;
    attn_lexicon_options how = {.iterations = cli_int(cli, "iterations"),
                                .best = cli_int(cli, "best"),
                                .min_probability = cli_real(cli, "min-probability")};
    attn_lexicon *lexicon;
    int64_t pairs;
    if (attn_translator_learn_lexicon(&lexicon, translator, source.path, source.text, source.size, part, &how,
                                      &pairs) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = write_lexicon(cli, lexicon, pairs);
    attn_lexicon_destroy(lexicon);
    return code;
}

static int run(cli_call *cli)
{
    attn_translator *translator;
    if (!cli_text(cli, "lexicon")[0])
        return cli_fail(CLI_BAD, "align writes a lexicon: --lexicon FILE says where");
    attn_config *training = cli_given(cli, "data") ? NULL : cli_training_of(cli);
    const char *data = training ? attn_config_text(training, "data", "") : cli_text(cli, "data");
    int code;
    if (attn_translator_load(&translator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK) {
        code = cli_failed(cli, NULL);
    } else {
        code = data[0] || training
                   ? learn(cli, translator, data)
                   : cli_fail(CLI_BAD, "%s does not tell what it was trained on: align needs --data", cli->words[0]);
        attn_translator_destroy(translator);
    }
    attn_config_destroy(training);
    return code;
}

const cli_command cli_align = {
    "align",
    "learn a lexicon for --shortlist from sentence pairs",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    1,
    run,
};
