/* SPDX-License-Identifier: MIT
 *
 * attn align: learns from sentence pairs which tokens translate to which tokens. It writes a lexicon for --shortlist,
 * or word alignments for --guided-alignment.
 */
#include "commands.h"
#include "foreign.h"
#include "source.h"
#include "apps/translator/translator.h"

#include <string.h>

static const char *const parts[] = {"train", "all", NULL};

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FILE", "", "sentence pairs, plain or gzip, or \"phrasebook\"; default: those of the training"),
    CLI_CHOICE("part", parts, "train", "which pairs: those that the training learned from, or all"),
    CLI_WRITES(TEXT, "lexicon", 'o', "FILE", "", "write the lexicon to this file"),
    CLI_WRITES(TEXT, "alignments", 'a', "FILE", "",
               "write word alignments to this file, a line for each pair that is read, for attn train translate "
               "--guided-alignment"),
    CLI_INT("iterations", 0, "5", 1, 1000, "rounds of expectation maximisation"),
    CLI_INT("best", 0, "100", 1, 1 << 30, "keep this many translations of each token, the likeliest"),
    CLI_REAL("min-probability", "0.0001", 1e-12, 1, "drop translations that are less probable"),
    CLI_STRICT_OPTION,
    CLI_NAMES_LONG,
};

static const char *const usage[] = {"DIR --lexicon FILE [--data PAIRS]", "DIR --alignments FILE [--data PAIRS]", NULL};

static const char description[] =
    "Learns from sentence pairs how likely each source token translates to each target token, by IBM Model 1 (Brown et "
    "al. 1993). The tokens are those of the vocabularies of the translator DIR.\n"
    "\n"
    "--lexicon writes these probabilities for attn translate --shortlist, in the form of Marian's lexical shortlists: "
    "a line for each pair of tokens, 'target source probability'.\n"
    "\n"
    "--alignments writes word alignments, a line for each pair that is read: as many as the training read "
    "(--max-examples), or all with --part all. Among them, --part chooses those from which attn learns. '0-0 2-1' "
    "means that word 0 of the translation comes from word 0 of the sentence, and word 1 from word 2. The source word "
    "is the likeliest one by the same probabilities and a preference for the diagonal. Words are separated by spaces; "
    "a target word that comes from no source word is left out.";

static const char *const examples[] = {
    "attn align en-fr --lexicon lex.s2t",
    "attn align opus-mt-en-fr --data pairs.tsv --part all --lexicon lex.s2t",
    "attn translate en-fr --shortlist lex.s2t < english.txt > french.txt",
    "attn align en-fr --data pairs.tsv --part all --alignments pairs.align",
    "attn train translate --data pairs.tsv --guided-alignment pairs.align --out guided",
    NULL,
};

static bool write_file(const cli_call *cli, const char *path, const attn_bytes *file)
{
    return attn_file_write(cli->context, path, file->data, file->size) == ATTN_OK;
}

static bool write_lexicon(const cli_call *cli, const char *path, const attn_lexicon *lexicon)
{
    attn_bytes file = {0};
    bool written = attn_lexicon_format(lexicon, &file) == ATTN_OK && write_file(cli, path, &file);
    attn_bytes_free(cli->context, &file);
    return written;
}

static int64_t count_lines(const attn_bytes *file)
{
    int64_t lines = 0;
    for (size_t i = 0; i < file->size; i++)
        lines += file->data[i] == '\n';
    return lines;
}

static int tell(const cli_call *cli, const attn_lexicon *lexicon, const attn_bytes *alignments, int64_t pairs)
{
    const char *path = cli_text(cli, "lexicon"), *aligned = cli_text(cli, "alignments");
    char entries[32], count[32];
    attn_json json;
    if (!cli->json) {
        if (path[0])
            cli_print("%s: %s entries from %s sentence pairs\n", path, cli_count(attn_lexicon_size(lexicon), entries),
                      cli_count(pairs, count));
        if (aligned[0])
            cli_print("%s: word alignments of %s sentence pairs\n", aligned, cli_count(count_lines(alignments), count));
        return CLI_OK;
    }
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    if (path[0])
        attn_json_text(&json, "lexicon", path);
    attn_json_int(&json, "entries", attn_lexicon_size(lexicon));
    attn_json_int(&json, "pairs", pairs);
    if (aligned[0]) {
        attn_json_text(&json, "alignments", aligned);
        attn_json_int(&json, "aligned_pairs", count_lines(alignments));
    }
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int learn(const cli_call *cli, attn_translator *translator, const char *data)
{
    attn_pairs_source source = cli_source_of(data);
    const char *path = cli_text(cli, "lexicon"), *aligned = cli_text(cli, "alignments");
    attn_split part = strcmp(cli_text(cli, "part"), "all") == 0 ? ATTN_SPLIT_ALL : ATTN_SPLIT_TRAIN;
    attn_bytes alignments = {0};
    attn_lexicon_options how = {.iterations = cli_int(cli, "iterations"),
                                .best = cli_int(cli, "best"),
                                .min_probability = cli_real(cli, "min-probability"),
                                .alignments = aligned[0] ? &alignments : NULL};
    attn_lexicon *lexicon;
    int64_t pairs;
    cli_failures bad = {.cli = cli, .things = "sentence pairs"};
    if (!aligned[0]) /* No line may be skipped, because line i of the alignments belongs to line i of the data. */
        cli_source_goes_on(&source, &bad);
    if (attn_translator_learn_lexicon(&lexicon, translator, &source, part, &how, &pairs) != ATTN_OK)
        return cli_failed(cli, NULL);
    bool written =
        (!path[0] || write_lexicon(cli, path, lexicon)) && (!aligned[0] || write_file(cli, aligned, &alignments));
    int code = written ? tell(cli, lexicon, &alignments, pairs) : cli_failed(cli, NULL);
    attn_bytes_free(cli->context, &alignments);
    attn_lexicon_destroy(lexicon);
    bad.tried += pairs;
    return code == CLI_OK ? cli_failures_end(&bad) : code;
}

static int run(cli_call *cli)
{
    attn_translator *translator;
    if (!cli_text(cli, "lexicon")[0] && !cli_text(cli, "alignments")[0])
        return cli_fail(CLI_BAD, "align has nothing to write: give --lexicon FILE or --alignments FILE");
    int code;
    if (attn_translator_load(&translator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_config *training = cli_given(cli, "data") ? NULL : cli_training_of(cli);
    const char *data = training ? attn_config_text(training, "data", "") : cli_text(cli, "data");
    if (attn_context_status(cli->context) != ATTN_OK)
        code = cli_failed(cli, NULL);
    else
        code = data[0] || training
                   ? learn(cli, translator, data)
                   : cli_fail(CLI_BAD, "%s does not record its training data; align needs --data", cli->words[0]);
    attn_translator_destroy(translator);
    attn_config_destroy(training);
    return code;
}

const cli_command cli_align = {
    "align",
    "learn a lexicon or word alignments from sentence pairs",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    1,
    run,
};
