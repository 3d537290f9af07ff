/* SPDX-License-Identifier: MIT
 *
 * attn eval: measures how good a model is. It measures loss and BLEU of a translator, accuracy of a classifier, bits
 * per dimension of an image generator, and average precision of detections.
 */
#include "commands.h"
#include "eval_images.h"
#include "failures.h"
#include "foreign.h"
#include "sentences.h"
#include "shortlist.h"
#include "source.h"
#include "apps/translator/translator.h"
#include "base/context.h"

#include <string.h>

static const char *const parts[] = {"test", "valid", "train", "all", NULL};

static const cli_option options[] = {
    CLI_TEXT(
        "data", 0, "FILE", "",
        "sentence pairs, plain or gzip, or \"phrasebook\"; a folder of images; COCO's annotations, or a folder with "
        "YOLO's labels; default: those of the training"),
    CLI_TEXT("coco", 0, "RESULTS", "",
             "evaluate this file of detections, without a DIR: a list of {image_id, category_id, bbox, score}"),
    CLI_CHOICE(
        "part", parts, "test",
        "which part of the data: what the training kept for testing or for validation, what it learned from, or all"),
    CLI_INT("samples", 'n', "0", 0, 1e9, "print this many translations with their references"),
    CLI_NAMES_LONG,
    CLI_BEAM,
    CLI_LENGTH_PENALTY,
    CLI_MBR,
    CLI_FLAG("all_references", 0,
             "a sentence that is in several pairs is translated once and compared with all their translations"),
    CLI_SHORTLIST,
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"DIR... [--data FILE]", "--coco RESULTS --data ANNOTATIONS", NULL};

static const char description[] =
    "A translator: translates every sentence of one part of FILE and compares. The parts are those of the training "
    "(the same split and seed): the translator has never seen --part test. For a file that has nothing to do with the "
    "training use --part all. Prints the loss (nats per token, with the reference's tokens before it given), the mean "
    "over the sentences of BLEU as Dive into Deep Learning defines it (k = 2, 0 to 1), and corpus BLEU and chrF as "
    "sacreBLEU computes them (0 to 100), each with its signature. With --all-references other translations of the same "
    "sentence in FILE count as right too.\n"
    "\n"
    "A classifier: prints accuracy and loss; for each class how many of its images were found (recall), how many of "
    "those taken for it belong to it (precision), and what each was taken for.\n"
    "\n"
    "A model that draws images: prints how many bits a number of an image costs (bits per dimension), and how many it "
    "would cost if pixels were independent. The latter follows from each pixel's histogram over the training part, "
    "with one added to every count.\n"
    "\n"
    "Detections, of any model: with --coco it prints the twelve numbers of COCO's evaluation of boxes, equal to those "
    "of pycocotools, and the average precision of each category. -1 means that there are no such objects. Detections "
    "of categories that ANNOTATIONS lack are left out; an image that they lack is an error.\n"
    "\n"
    "With several DIRs each is measured. Started by mpirun, they are spread over its processes.";

static const char *const examples[] = {
    "attn eval out/demo",
    "attn eval en-fr --data fra.txt.gz --part valid --beam 4 --samples 10",
    "attn eval en-fr --json",
    "attn eval clothes --data fashion_mnist",
    "attn eval drawn --data fashion_mnist",
    "attn eval --coco results.json --data annotations.json",
    NULL,
};

typedef struct samples {
    int64_t wanted, printed;
    attn_json *json; /* JSON output; NULL: plain text */
} samples;

static void print_sample(void *user, const char *source, const char *reference, const char *prediction)
{
    samples *s = user;
    if (s->printed >= s->wanted)
        return;
    s->printed++;
    if (!s->json) {
        cli_print("source     %s\nreference  %s\nprediction %s\n\n", source, reference, prediction);
        return;
    }
    attn_json_object(s->json, NULL);
    cli_json_sample(s->json, source, reference, prediction);
    attn_json_end(s->json);
}

static attn_split part_of(const char *name)
{
    static const attn_split values[] = {ATTN_SPLIT_TEST, ATTN_SPLIT_VALID, ATTN_SPLIT_TRAIN, ATTN_SPLIT_ALL};
    int i = 0;
    while (parts[i + 1] && strcmp(parts[i], name) != 0)
        i++;
    return values[i];
}

/* The signature tells how a score was computed. It has the form of sacreBLEU's signatures, with attn's version. */
#define TEXT_OF(x)          #x
#define VERSION_OF(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
#define ATTN_VERSION_TEXT   VERSION_OF(ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH)
static const char bleu_signature[] = "case:mixed|eff:no|tok:13a|smooth:exp|version:attn-" ATTN_VERSION_TEXT;
static const char chrf_signature[] = "case:mixed|eff:yes|nc:6|nw:0|space:no|version:attn-" ATTN_VERSION_TEXT;

/* Adds the number of references to a signature: "1" if each sentence has one reference, and otherwise "var". */
static const char *signed_with(const attn_translator_score *score, const char *signature, char text[128])
{
    snprintf(text, 128, "nrefs:%s|%s", score->references == score->sentences ? "1" : "var", signature);
    return text;
}

static void json_score(attn_json *json, const attn_translator_score *score)
{
    char text[128];
    attn_json_int(json, "sentences", score->sentences);
    attn_json_int(json, "references", score->references);
    attn_json_real(json, "loss", score->loss);
    attn_json_real(json, "bleu_d2l", score->bleu_d2l);
    attn_json_real(json, "bleu", score->corpus.score);
    attn_json_array(json, "precisions");
    for (int i = 0; i < 4; i++)
        attn_json_real(json, NULL, score->corpus.precisions[i]);
    attn_json_end(json);
    attn_json_real(json, "brevity_penalty", score->corpus.brevity_penalty);
    attn_json_int(json, "prediction_length", score->corpus.prediction_length);
    attn_json_int(json, "reference_length", score->corpus.reference_length);
    attn_json_text(json, "bleu_signature", signed_with(score, bleu_signature, text));
    attn_json_real(json, "chrf", score->chrf);
    attn_json_text(json, "chrf_signature", signed_with(score, chrf_signature, text));
    attn_json_real(json, "tokens_per_second", score->tokens_per_second);
    attn_json_real(json, "words_per_second", score->words_per_second);
}

static void print_score(const char *part, const attn_translator_score *score)
{
    const attn_bleu *b = &score->corpus;
    char count[32], rate[32], words[32], text[128];
    printf("part          %s, %s sentences", part, cli_count(score->sentences, count));
    if (score->references != score->sentences)
        printf(" with %s references", cli_count(score->references, count));
    printf("\n");
    printf("loss          %.4f nats per token\n", score->loss);
    printf("BLEU (d2l)    %.4f  mean over the sentences, k = 2\n", score->bleu_d2l);
    printf("BLEU          %.2f  corpus, as sacreBLEU; %.1f/%.1f/%.1f/%.1f, brevity penalty %.3f\n", b->score,
           b->precisions[0], b->precisions[1], b->precisions[2], b->precisions[3], b->brevity_penalty);
    printf("              %s\n", signed_with(score, bleu_signature, text));
    printf("chrF2         %.2f  corpus, as sacreBLEU\n", score->chrf);
    printf("              %s\n", signed_with(score, chrf_signature, text));
    printf("speed         %s source words a second; %s tokens decoded\n",
           cli_count((int64_t)score->words_per_second, words), cli_count((int64_t)score->tokens_per_second, rate));
}

static int evaluate(cli_call *cli, attn_translator *translator, const char *data, attn_translator_judging how)
{
    attn_pairs_source source = cli_source_of(data);
    cli_failures bad = {.cli = cli, .things = "sentence pairs"};
    cli_source_goes_on(&source, &bad);
    const char *part = cli_text(cli, "part");
    attn_translator_score score;
    attn_json json;
    samples s = {.wanted = cli_int(cli, "samples"), .json = cli->json ? &json : NULL};
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "part", part);
    attn_json_array(&json, "samples");
    how.sample = s.wanted > 0 ? print_sample : NULL;
    how.user = &s;
    if (attn_translator_evaluate(translator, &source, part_of(part), &how, &score) != ATTN_OK) {
        attn_json_free(&json);
        return cli_failed(cli, NULL);
    }
    attn_json_end(&json);
    json_score(&json, &score);
    attn_json_end(&json);
    int code = CLI_OK;
    if (cli->json)
        code = cli_print_json(cli, &json);
    else
        attn_json_free(&json);
    if (!cli->json)
        print_score(part, &score);
    if (score.truncated > 0)
        cli_warn("%lld sentences are longer than the translator supports: their ends were left out",
                 (long long)score.truncated);
    bad.tried += score.references;
    return code == CLI_OK ? cli_failures_end(&bad) : code;
}

static int evaluate_translator(cli_call *cli, const char *data)
{
    attn_translator *translator;
    if (attn_translator_load(&translator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_translator_search own = attn_translator_own_search(translator);
    attn_translator_judging how = {.search = {.beam = cli_beam(cli, &own),
                                              .length_penalty = cli_real(cli, "length_penalty"),
                                              .mbr = cli_flag(cli, "mbr")},
                                   .all_references = cli_flag(cli, "all_references")};
    attn_lexicon *lexicon;
    int code = cli_shortlist(cli, translator, &how.search, &lexicon);
    if (code == CLI_OK)
        code = evaluate(cli, translator, data, how);
    attn_lexicon_destroy(lexicon);
    attn_translator_destroy(translator);
    return code;
}

static int evaluate_one(cli_call *cli)
{
    const char *part = cli_text(cli, "part");
    cli_model_kind kind;
    attn_status status = cli_model_kind_of(cli, &kind, cli->words[0]);
    attn_config *training = status != ATTN_OK || cli_given(cli, "data") ? NULL : cli_training_of(cli);
    const char *data = training ? attn_config_text(training, "data", "") : cli_text(cli, "data");
    char *path = attn__join(cli->context, cli->words[0], "config.json");
    int code;
    if (status != ATTN_OK || attn_context_status(cli->context) != ATTN_OK)
        code = cli_failed(cli, NULL);
    else if (kind == CLI_READS_ALIGNMENTS)
        code = cli_fail(CLI_BAD, "%s is a model of alignments: attn contacts --structure evaluates it", cli->words[0]);
    else if (kind == CLI_DETECTS)
        code = cli_fail(CLI_BAD,
                        "%s is a detector: attn detect --coco writes its detections, which attn eval --coco evaluates",
                        cli->words[0]);
    else if (!data[0] && (kind == CLI_CLASSIFIES || attn_file_exists(path)))
        code = cli_fail(CLI_BAD, "%s does not record its training data; eval needs --data", cli->words[0]);
    else if (kind == CLI_DRAWS)
        code = cli_eval_generator(cli, data, part_of(part), part);
    else
        code =
            kind == CLI_CLASSIFIES ? cli_eval_images(cli, data, part_of(part), part) : evaluate_translator(cli, data);
    attn__free(cli->context, path);
    attn_config_destroy(training);
    return code;
}

static int evaluate_word(void *user, int i)
{
    const cli_call *cli = user;
    cli_call one = *cli;
    one.words = cli->words + i;
    if (cli->nwords > 1 && !cli->json)
        cli_print("%s%s\n", i ? "\n" : "", one.words[0]);
    return evaluate_one(&one);
}

static int evaluate_detections(const cli_call *cli)
{
    if (cli->nwords > 0)
        return cli_fail(CLI_BAD, "--coco needs no model, but %s is given", cli->words[0]);
    if (!cli_given(cli, "data"))
        return cli_fail(CLI_BAD, "--coco needs --data ANNOTATIONS");
    return cli_eval_boxes(cli, cli_text(cli, "coco"), cli_text(cli, "data"));
}

static int run(cli_call *cli)
{
    if (cli_given(cli, "coco"))
        return evaluate_detections(cli);
    if (cli->nwords == 0)
        return cli_fail(CLI_BAD, "eval needs the directory of a training, or --coco RESULTS");
    attn_context_set_inference(cli->context, true);
    int code = cli_ranks_join(cli);
    return cli_ranks_leave(cli, code == CLI_OK ? cli_spread(cli, cli->nwords, cli->words, evaluate_word, cli) : code);
}

const cli_command cli_eval = {
    "eval",
    "measure BLEU, accuracy, bits per dimension or average precision",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    -1,
    run,
};
