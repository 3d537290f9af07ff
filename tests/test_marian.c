/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests directories in the form of Hugging Face's MarianMT: reading, translating, and messages for invalid directories.
 * tests/parity/marian.py compares translations with transformers.
 */
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "apps/translator/align.h"

#include "base/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define M "\xe2\x96\x81"
enum { V = 6, D = 4 };
static const char vocab_json[] =
    "{\"</s>\": 0, \"<unk>\": 1, \">>fra<<\": 2, \"\xe2\x96\x81\x61\": 3, \"\xe2\x96\x81\x62\": 4, \"<pad>\": 5}";
static const char config_json[] =
    "{\"model_type\": \"marian\", \"vocab_size\": 6, \"d_model\": 4, \"encoder_layers\": 0, \"decoder_layers\": 0, "
    "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 3, \"decoder_ffn_dim\": 3, "
    "\"max_position_embeddings\": 8, \"activation_function\": \"%s\", \"scale_embedding\": true, \"pad_token_id\": 5, "
    "\"decoder_start_token_id\": 5, \"eos_token_id\": 0, \"forced_eos_token_id\": 0, \"bad_words_ids\": [[5]], "
    "\"max_length\": 5, \"task\": {\"prefix\": [[1, 2], [3]]}}";

typedef struct fixture {
    attn_context *c;
    char directory[64];
} fixture;

static void put(const fixture *f, const char *name, const char *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    assert_int_equal(attn_file_write(f->c, path, bytes, size), ATTN_OK);
}

static void put_config(const fixture *f, const char *activation)
{
    char text[1024];
    put(f, "config.json", text, (size_t)snprintf(text, sizeof text, config_json, activation));
}

static void put_pieces(const fixture *f)
{
    static const char text[] = "a b a\tb a b\nb b\ta a\na\tb\nb a\ta b\n";
    attn_pairs *pairs;
    attn_vocab *vocab;
    attn_bytes file;
    assert_int_equal(
        attn_pairs_parse(&pairs, f->c, text, sizeof text - 1, "t", &(attn_pairs_options){.keep_text = true}), ATTN_OK);
    assert_int_equal(
        attn_vocab_build(&vocab, pairs, ATTN_SIDE_SOURCE,
                         &(attn_vocab_options){.kind = ATTN_VOCAB_UNIGRAM, .max_size = 300, .joint = true}),
        ATTN_OK);
    assert_int_equal(attn_vocab_format(vocab, &file), ATTN_OK);
    put(f, "source.spm", file.data, file.size);
    put(f, "target.spm", file.data, file.size);
    attn_bytes_free(f->c, &file);
    attn_vocab_destroy(vocab);
    attn_pairs_destroy(pairs);
}

/* The model has no blocks, so the most likely token depends only on the newest token and the biases. */
static void put_biases_of(const fixture *f, const float *biases, int64_t n)
{
    attn_named_list list = {.context = f->c, .owns = true};
    attn_tensor *shared, *bias;
    char path[128];
    assert_int_equal(attn_tensor_create(&shared, f->c, ATTN_F32, 2, (int64_t[]){n, D}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&bias, f->c, ATTN_F32, 2, (int64_t[]){1, n}), ATTN_OK);
    memset(attn_tensor_data(shared), 0, (size_t)n * D * sizeof(float));
    memcpy(attn_tensor_data(bias), biases, (size_t)n * sizeof *biases);
    attn_named_add(&list, "model.shared.weight", shared);
    attn_named_add(&list, "final_logits_bias", bias);
    snprintf(path, sizeof path, "%s/model.safetensors", f->directory);
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
}

static void put_biases(const fixture *f, const float *biases)
{
    put_biases_of(f, biases, V);
}

/* Writes weights with which every translated token is piece 4, because <pad> is banned. */
static void put_weights(const fixture *f)
{
    put_biases(f, (const float[V]){0, 0, 0, 0, 2, 9});
}

static int set_up(void **state)
{
    static fixture kept;
    fixture *f = &kept;
    *f = (fixture){.c = test_context()};
    scratch_open(f->directory);
    put_config(f, "swish");
    put(f, "vocab.json", vocab_json, sizeof vocab_json - 1);
    put_pieces(f);
    put_weights(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    (void)scratch_close(f->directory);
    end_context(f->c);
    return 0;
}

static void banned_and_forced_tokens(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    attn_translation said;
    const char *line = ">>fra<< a b";
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    for (int64_t beam = 1; beam <= 2; beam++) {
        assert_int_equal(attn_translator_translate(t, &line, 1, &(attn_translator_options){.beam = beam}, &said),
                         ATTN_OK);
        assert_string_equal(said.text, "b b b");
        assert_int_equal(said.unknown, 0);
        attn_translations_free(f->c, &said, 1);
    }
    attn_translator_destroy(t);
}

static void check_says(const fixture *f, const char *names, const char *expected)
{
    attn_translator *t;
    attn_translation said;
    const char *line = "a b";
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, names), ATTN_OK);
    assert_int_equal(attn_translator_translate(t, &line, 1, NULL, &said), ATTN_OK);
    assert_string_equal(said.text, expected);
    attn_translations_free(f->c, &said, 1);
    attn_translator_destroy(t);
}

/* If generation_config.json exists, config.json does not describe the search. The end is then forced only by a key
 * of generation_config.json, which is a number or a list. */
static void one_file_describes_the_search(void **state)
{
    static const char *const cases[][2] = {{"", "b b b"},
                                           {", \"forced_eos_token_id\": 0", "b b"},
                                           {", \"forced_eos_token_id\": [0]", "b b"},
                                           {", \"forced_eos_token_id\": []", "b b b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "{\"bad_words_ids\": [[5]], \"max_length\": 4%s}", cases[i][0]);
        put(*state, "generation_config.json", text, (size_t)n);
        check_says(*state, NULL, cases[i][1]);
    }
}

/* A search with options must equal a search with the same settings in generation_config.json. tests/parity/marian.py
 * compares searches with transformers. */
static void searches_obey_their_settings(void **state)
{
    static const int32_t four[] = {4};
    static const struct {
        attn_translator_options options;
        const char *file, *said;
    } cases[] = {{{.beam = 1}, "", "b b b"},
                 {{.no_repeat_ngram = 1}, "\"no_repeat_ngram_size\": 1", "b a"},
                 {{.no_repeat_ngram = 2}, "\"no_repeat_ngram_size\": 2", "b b a"},
                 {{.repetition_penalty = 3}, "\"repetition_penalty\": 3", "b a"},
                 {{.suppressed = four, .nsuppressed = 1}, "\"suppress_tokens\": [4]", "a a a"},
                 {{.no_repeat_ngram = 1, .min_len = 4}, "\"no_repeat_ngram_size\": 1, \"min_length\": 4", "b a"},
                 {{.max_len = 3}, "\"max_new_tokens\": 3", "b b"},
                 {{.beam = 1}, "\"renormalize_logits\": true, \"do_sample\": true, \"num_beams\": 1", "b b b"}};
    fixture *f = *state;
    put_biases(f, (const float[V]){0.75F, -9, -9, 1, 2, 9});
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char text[256];
        attn_translator *t;
        attn_translation said;
        bool file = i % 2;
        const char *line = "a b";
        int n =
            snprintf(text, sizeof text, "{\"bad_words_ids\": [[5]], \"forced_eos_token_id\": 0, \"max_length\": 5%s%s}",
                     file && *cases[i / 2].file ? ", " : "", file ? cases[i / 2].file : "");
        put(f, "generation_config.json", text, (size_t)n);
        assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
        assert_int_equal(attn_translator_translate(t, &line, 1, file ? NULL : &cases[i / 2].options, &said), ATTN_OK);
        assert_string_equal(said.text, cases[i / 2].said);
        attn_translations_free(f->c, &said, 1);
        attn_translator_destroy(t);
    }
}

/* A text, its tokens, and the ids in the model's file suppress the same sequence. */
static void sequences_are_suppressed(void **state)
{
    static const struct {
        const char *text, *tokens, *ids, *said;
    } cases[] = {{"b b", M "b " M "b", "[4, 4]", M "b " M "a " M "b"},
                 {" b ", M "b", "[4]", M "a " M "a " M "a"},
                 {"b b b", M "b " M "b " M "b", "[4, 4, 4]", M "b " M "b " M "a"},
                 {"a b", M "a " M "b", "[3, 4]", M "b " M "b " M "b"},
                 {"b zz b", "<unk> " M "b", "[1, 4]", M "b " M "b " M "b"}};
    fixture *f = *state;
    const char *line = "a b";
    put_biases(f, (const float[V]){0.75F, -9, -9, 1, 2, 9});
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const size_t at = i / 3, way = i % 3;
        const char *const given[] = {"a a a", way == 1 ? cases[at].tokens : cases[at].text, NULL};
        attn_translator_options options = {.suppressed_sequences = way == 1 ? given + 1 : given,
                                           .sequences_are_tokens = way == 1};
        char text[128];
        attn_translator *t;
        attn_translation said;
        int n =
            snprintf(text, sizeof text, "{\"bad_words_ids\": [[5], %s], \"forced_eos_token_id\": 0, \"max_length\": 5}",
                     way == 2 ? cases[at].ids : "[0]");
        put(f, "generation_config.json", text, (size_t)n);
        assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
        assert_int_equal(attn_translator_translate(t, &line, 1, way == 2 ? NULL : &options, &said), ATTN_OK);
        /* the first way also suppresses "a a a", of which the second case is made */
        assert_string_equal(said.tokens, way == 0 && at == 1 ? M "a " M "a" : cases[at].said);
        attn_translations_free(f->c, &said, 1);
        attn_translator_destroy(t);
    }
}

static void wrong_sequences_are_refused(void **state)
{
    static const struct {
        const char *given;
        bool tokens;
        const char *why;
    } cases[] = {{" ", false, "suppressed sequence 2 has no tokens"},
                 {"", true, "suppressed sequence 2 has no tokens"},
                 {M "b b", true, "suppressed sequence 2: \"b\" is not a token of the target vocabulary"}};
    fixture *f = *state;
    attn_translator *t;
    attn_translation said;
    const char *line = "a b";
    put_weights(f);
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const given[] = {M "a", cases[i].given, NULL};
        attn_translator_options options = {.suppressed_sequences = given, .sequences_are_tokens = cases[i].tokens};
        assert_refused(f->c, attn_translator_translate(t, &line, 1, &options, &said), ATTN_ERROR_ARGUMENT,
                       cases[i].why);
    }
    attn_translator_destroy(t);
}

/* <unk> is the most likely token. */
static void the_unknown_token_can_be_suppressed(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    put_biases(f, (const float[V]){0, 5, 0, 0, 2, 9});
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    for (int i = 0; i < 2; i++) {
        attn_translation said;
        const char *line = "a b";
        attn_translator_options options = {.suppress_unk = i > 0};
        assert_int_equal(attn_translator_translate(t, &line, 1, &options, &said), ATTN_OK);
        assert_string_equal(said.tokens, i ? M "b " M "b " M "b" : "<unk> <unk> <unk>");
        attn_translations_free(f->c, &said, 1);
    }
    attn_translator_destroy(t);
}

/* The model reads at most 8 tokens with the end. */
static void lines_are_cut_at_the_given_maximum(void **state)
{
    static const struct {
        int64_t most;
        const char *line;
        bool cut;
    } cases[] = {{0, "a b a b a b a", false},  {0, "a b a b a b a b", true},  {4, "a b a", false}, {4, "a b a b", true},
                 {99, "a b a b a b a", false}, {99, "a b a b a b a b", true}, {1, "a", true}};
    fixture *f = *state;
    attn_translator *t;
    put_weights(f);
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_translation said;
        attn_translator_options options = {.max_input = cases[i].most};
        assert_int_equal(attn_translator_translate(t, &cases[i].line, 1, &options, &said), ATTN_OK);
        assert_true(said.truncated == cases[i].cut);
        attn_translations_free(f->c, &said, 1);
    }
    attn_translator_destroy(t);
}

/* Adds a constant to all biases except that of <pad>. This changes the scores only if <pad> has a share of the
 * probability. */
static void banned_tokens_have_a_share_or_none(void **state)
{
    static const char *const searches[] = {
        "{\"bad_words_ids\": [[5]], \"max_length\": 3}",
        "{\"bad_words_ids\": [[5]], \"max_length\": 3, \"renormalize_logits\": true}"};
    fixture *f = *state;
    double score[2][2];
    for (int i = 0; i < 4; i++) {
        const float low = i % 2 ? -12 : 0;
        attn_translator *t;
        attn_translation said;
        const char *line = "a b";
        put_biases(f, (const float[V]){low, low, low, low, low + 2, 0});
        put(f, "generation_config.json", searches[i / 2], strlen(searches[i / 2]));
        assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
        assert_int_equal(attn_translator_translate(t, &line, 1, &(attn_translator_options){.beam = 2}, &said), ATTN_OK);
        score[i / 2][i % 2] = said.score;
        attn_translations_free(f->c, &said, 1);
        attn_translator_destroy(t);
    }
    assert_true(score[0][1] < score[0][0] - 5);
    assert_true(fabs(score[1][1] - score[1][0]) < 1e-5);
}

/* Spaces are tidied if the configuration requests it. */
static void generated_text_is_one_line_with_tidy_spaces(void **state)
{
    static const struct {
        const char *four, *two, *config, *said;
    } cases[] = {{"<0x0A>", M "b", "{}", "a  b"},
                 {"<0x09>", M "b", "{}", "a  b"},
                 {"<0x00>", M "b", "{}", "a  b"},
                 {M "n't", M ".", "{\"model_max_length\": 1000000000000000019884624838656}", "a n't ."},
                 {M "n't", M ".", "{\"clean_up_tokenization_spaces\": true, \"model_max_length\": 1e30}", "an't."}};
    static const char search[] =
        "{\"bad_words_ids\": [[5]], \"max_length\": 9, \"no_repeat_ngram_size\": 1, \"suppress_tokens\": [1]}";
    fixture *f = *state;
    put_biases(f, (const float[V]){0, 0, 1, 3, 2, 0});
    put(f, "generation_config.json", search, sizeof search - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int n = snprintf(text, sizeof text,
                         "{\"</s>\": 0, \"<unk>\": 1, \"%s\": 2, \"" M "a\": 3, \"%s\": 4, \"<pad>\": 5}", cases[i].two,
                         cases[i].four);
        put(f, "vocab.json", text, (size_t)n);
        put(f, "tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        check_says(f, NULL, cases[i].said);
    }
}

static void names_of_specials_are_tokens(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    int32_t ids[16];
    static const int32_t wanted[] = {2, 3, 0, 4, 5, 1, 0};
    int64_t n, unknown;
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    const attn_vocab *source = attn_translator_vocab(t, ATTN_SIDE_SOURCE);
    assert_int_equal(attn_vocab_encode(source, ">>fra<< a</s> b<pad><unk>", NULL, ids, 16, &n, &unknown), ATTN_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(ids, wanted, sizeof wanted);
    attn_translator_destroy(t);
}

static void check_refused(const fixture *f, attn_status status, const char *why)
{
    attn_translator *t;
    assert_refused(f->c, attn_translator_load(&t, f->c, f->directory, NULL), status, why);
    assert_null(t);
    attn_context_clear_error(f->c);
}

static void wrong_checkpoints_are_refused(void **state)
{
    static const struct {
        const char *vocab, *why;
    } cases[] = {
        {"{\"</s>\": 0, \"<unk>\": 1, \"<pad>\": 2}", "pad_token_id in config.json is 5; expected 0 to 2"},
        {"{\"</s>\": 0, \"<unk>\": 0, \"a\": 2, \"b\": 3, \"c\": 4, \"<pad>\": 5}", "have the same id, 0"},
        {"{\"</s>\": 0, \"<unk>\": 7, \"a\": 2, \"b\": 3, \"c\": 4, \"<pad>\": 5}", "an integer from 0 to 5"},
        {"{\"</s>\": 0, \"x\": 1, \"a\": 2, \"b\": 3, \"c\": 4, \"<pad>\": 5}", "the vocabulary has no piece <unk>"},
        {"{\"</s>\": 0, \"<unk>\": 1, \"\\ud800\": 2}", "vocab.json"},
        {"{\"</s>\": 0, \"<unk>\": 1, \"a\": 2, \"b\": 3, \"c\": 4, \"<pad>\": 5, \"d\": 6}",
         "config.json: the model has 6 source and 6 target pieces"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(f, "vocab.json", cases[i].vocab, strlen(cases[i].vocab));
        check_refused(f, ATTN_ERROR_FORMAT, cases[i].why);
    }
    put(f, "vocab.json", vocab_json, sizeof vocab_json - 1);
    put_config(f, "maxout");
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "activation_function is \"maxout\"");
    put_config(f, "relu");
    static const char *const searches[][2] = {
        {"{\"encoder_repetition_penalty\": 1.5}", "\"encoder_repetition_penalty\""},
        {"{\"diversity_penalty\": 3}", "\"diversity_penalty\""},
        {"{\"forced_eos_token_id\": 3}", "\"forced_eos_token_id\""},
        {"{\"begin_suppress_tokens\": [2]}", "\"begin_suppress_tokens\""},
        {"{\"eos_token_id\": 3}", "\"eos_token_id\""},
        {"{\"decoder_start_token_id\": 2}", "\"decoder_start_token_id\""},
        {"{\"bos_token_id\": 0}",
         "decoding would start with \"bos_token_id\", 0; only a start with <pad>, 5, is supported"},
        {"{\"forced_eos_token_id\": [0, 3]}", "\"forced_eos_token_id\""},
        {"{\"eos_token_id\": [0, 1.5]}", "\"eos_token_id\""},
        {"{\"exponential_decay_length_penalty\": [2, 1.5]}", "\"exponential_decay_length_penalty\""},
        {"{\"exponential_decay_length_penalty\": [2, 3]}", "\"exponential_decay_length_penalty\""},
        {"{\"sequence_bias\": [[[3], 5.0]]}", "\"sequence_bias\""},
        {"{\"watermarking_config\": {\"bias\": 2.5}}", "\"watermarking_config\""},
        {"{\"max_time\": 0.5}", "\"max_time\""},
        {"{\"stop_strings\": [\"a\"]}", "\"stop_strings\""},
        {"{\"constraints\": [\"a\"]}", "\"constraints\""},
        {"{\"force_words_ids\": [[3]]}", "\"force_words_ids\""},
        {"{\"forced_decoder_ids\": [[1, 3]]}", "\"forced_decoder_ids\""},
        {"{\"dola_layers\": \"high\"}", "\"dola_layers\""},
        {"{\"guidance_scale\": 2.0}", "\"guidance_scale\""},
        {"{\"penalty_alpha\": 0.6}", "\"penalty_alpha\""},
        {"{\"token_healing\": true}", "\"token_healing\""}};
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        put(f, "generation_config.json", searches[i][0], strlen(searches[i][0]));
        check_refused(f, ATTN_ERROR_UNSUPPORTED, searches[i][1]);
    }
    static const char *const numbers[][2] = {
        {"{\"length_penalty\": \"2\"}", "\"length_penalty\" is not a number"},
        {"{\"max_new_tokens\": 0}", "\"max_new_tokens\" is not a number of at least 1"},
        {"{\"max_length\": -5}", "\"max_length\" is not a number of at least 1"},
        {"{\"max_length\": 1}", "\"max_length\" is 1, but the token that decoding starts with counts too"},
        {"{\"max_length\": 2.5}", "\"max_length\" is not a number of at least 1"},
        {"{\"min_length\": -1}", "\"min_length\" is not a number of at least 0"},
        {"{\"num_beams\": 0}", "\"num_beams\" is not a number of at least 1"},
        {"{\"no_repeat_ngram_size\": 2.5}", "\"no_repeat_ngram_size\" is not a number of at least 0"},
        {"{\"repetition_penalty\": 0}", "\"repetition_penalty\" is not a number above 0"},
        {"{\"renormalize_logits\": \"yes\"}", "\"renormalize_logits\" is neither true nor false"},
        {"{\"suppress_tokens\": \"a\"}", "\"suppress_tokens\" is not a list of tokens"},
        {"{\"bad_words_ids\": 3}", "\"bad_words_ids\" is not a list of lists"},
        {"{\"bad_words_ids\": [[4294967298]]}", "holds 4294967298, which is not a token's id"},
        {"{\"bad_words_ids\": [[-1]]}", "holds -1, which is not a token's id"},
        {"{\"bad_words_ids\": [[3, -1]]}", "holds -1, which is not a token's id"},
        {"{\"bad_words_ids\": [[3], []]}", "\"bad_words_ids.1\" is not a list of one token or more"}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put(f, "generation_config.json", numbers[i][0], strlen(numbers[i][0]));
        check_refused(f, ATTN_ERROR_FORMAT, numbers[i][1]);
    }
    static const char neutral[] =
        "{\"forced_eos_token_id\": null, \"suppress_tokens\": null, \"length_penalty\": null, \"repetition_penalty\": "
        "1.0, "
        "\"guidance_scale\": 1.0, \"max_time\": null, \"token_healing\": false, \"penalty_alpha\": 0.0, "
        "\"sequence_bias\": null, "
        "\"max_length\": 1, \"max_new_tokens\": 4, \"decoder_start_token_id\": [5], \"bos_token_id\": 0}";
    attn_translator *t;
    put(f, "generation_config.json", neutral, sizeof neutral - 1);
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    attn_translator_destroy(t);
    put(f, "target.spm", "damaged", 7);
    check_refused(f, ATTN_ERROR_FORMAT, "target.spm");
}

typedef struct entry {
    const char *name;
    int64_t rows, cols;
} entry;

/* Writes tensors with these names. They are zeros, or ones if the name begins with "1 ", or sines if it begins with
 * "~ ". The bias makes piece 4 the most likely token. */
static void put_tensors(const fixture *f, const entry *entries, size_t n)
{
    attn_named_list list = {.context = f->c, .owns = true};
    char path[128];
    for (size_t i = 0; i < n; i++) {
        attn_tensor *tensor;
        assert_int_equal(attn_tensor_create(&tensor, f->c, ATTN_F32, 2, (int64_t[]){entries[i].rows, entries[i].cols}),
                         ATTN_OK);
        memset(attn_tensor_data(tensor), 0, (size_t)attn_tensor_size(tensor) * sizeof(float));
        float *numbers = attn_tensor_data(tensor);
        if (entries[i].rows == 1)
            numbers[4] = 2;
        const char *name = entries[i].name, kind = strchr("1~", name[0]) ? name[0] : '0';
        for (int64_t k = 0; k < attn_tensor_size(tensor) && kind != '0'; k++) {
            double angle = (double)(k / D) * (k % 2 ? 0.01 : 1);
            numbers[k] = kind == '1' ? 1 : (float)(k % D < D / 2 ? sin(angle) : cos(angle));
        }
        attn_named_add(&list, kind == '0' ? name : name + 2, tensor);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", f->directory);
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
}

static void put_two_tables(const fixture *f, bool tied)
{
    char text[1024];
    put_config(f, "swish");
    int n = snprintf(text, sizeof text, config_json, "swish");
    n += snprintf(text + n - 1, sizeof text - (size_t)n,
                  ", \"share_encoder_decoder_embeddings\": false, \"tie_word_embeddings\": %s}",
                  tied ? "true" : "false");
    put(f, "config.json", text, (size_t)n - 1);
}

/* Tests one or two embedding tables, and an output layer that has its own table or the decoder's, with or without a
 * bias. The error must name a tensor that the model does not use. */
static void embedding_tables_shared_and_separate_load(void **state)
{
    static const entry encoder = {"model.encoder.embed_tokens.weight", V, D};
    static const entry decoder = {"model.decoder.embed_tokens.weight", V, D};
    static const entry head = {"lm_head.weight", V, D}, bias = {"final_logits_bias", 1, V};
    fixture *f = *state;
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}, encoder, decoder, head, bias}, 5);
    check_says(f, NULL, "b b b");
    put_tensors(f, (entry[]){{"Wemb", V - 1, D}, {"decoder_ff_logit_out_b", 1, V - 1}}, 2);
    check_says(f, "marian-native", "b b b");
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "no rule of marian-huggingface matches \"Wemb\"");
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}, bias, {"model.encoder.layers.0.fc3.weight", V, D}}, 3);
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "model.encoder.layers.0.fc3.weight");
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}, {"final_logits_bias", 1, V + 1}}, 2);
    check_refused(f, ATTN_ERROR_SHAPE, "final_logits_bias");

    /* If the model shares its tables, any one of them is enough, and tables that differ are refused. Stored
     * positions must equal the computed ones. */
    put_tensors(f, (entry[]){head, bias}, 2);
    check_says(f, NULL, "b b b");
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}, {"1 lm_head.weight", V, D}, bias}, 3);
    check_refused(f, ATTN_ERROR_FORMAT, "\"lm_head.weight\" and \"model.shared.weight\" are one tensor of the model");
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}, {"1 model.encoder.embed_tokens.weight", V, D}, bias}, 3);
    check_refused(f, ATTN_ERROR_FORMAT, "are one tensor of the model");
    put_tensors(f, (entry[]){head, bias, {"~ model.encoder.embed_positions.weight", 8, D}}, 3);
    check_says(f, NULL, "b b b");
    put_tensors(f, (entry[]){head, bias, {"1 model.decoder.embed_positions.weight", 8, D}}, 3);
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "\"model.decoder.embed_positions.weight\" must have the 8 x 4 sines");
    put_tensors(f, (entry[]){head, bias, {"~ model.decoder.embed_positions.weight", 9, D}}, 3);
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "embed_positions");

    put_two_tables(f, true);
    put_tensors(f, (entry[]){encoder, head, bias}, 3);
    check_says(f, NULL, "b b b");
    put_tensors(f, (entry[]){encoder, decoder, {"1 lm_head.weight", V, D}, bias}, 4);
    check_refused(f, ATTN_ERROR_FORMAT, "\"tie_word_embeddings\" is on, but the output layer's table");
    put_tensors(f, (entry[]){encoder, decoder, {"1 model.shared.weight", V, D}, bias}, 4);
    check_refused(f, ATTN_ERROR_FORMAT, "are one tensor of the model");
    put_tensors(f, (entry[]){encoder, decoder, head, bias}, 4);
    check_says(f, NULL, "b b b");
    put_tensors(f, (entry[]){encoder, decoder, bias}, 3);
    check_says(f, NULL, "b b b");
    put_two_tables(f, false);
    check_refused(f, ATTN_ERROR_SHAPE, "decoder.dense.weight");
    put_tensors(f, (entry[]){encoder, decoder, head, bias}, 4);
    check_says(f, NULL, "b b b");
    put_config(f, "swish");
    put_tensors(f, (entry[]){{"model.shared.weight", V, D}}, 1);
    check_says(f, NULL, "");
}

/* Added tokens have ids after those of the vocabulary, and the model has a row for each. */
static void added_tokens_are_tokens(void **state)
{
    static const char decoder[] =
        "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<pad>\", \"special\": true}, \"6\": {\"content\": "
        "\"<t>\"}, "
        "\"7\": {\"content\": \"<tt>\", \"lstrip\": true, \"rstrip\": true, \"special\": true}}}";
    static const char *const wrong[][2] = {
        {"{\"added_tokens_decoder\": {\"6\": {\"content\": \"t u\"}}}",
         "added token \"t u\" has a space, which is not supported"},
        {"{\"added_tokens_decoder\": {\"6\": {\"content\": \"t\", \"single_word\": true}}}", "single_word"},
        {"{\"added_tokens_decoder\": {\"7\": {\"content\": \"t\"}}}", "\"t\" has the id 7"},
        {"{\"added_tokens_decoder\": {\"3\": {\"content\": \"t\"}}}", "\"t\" has the id 3"},
        {"{\"sp_model_kwargs\": {\"alpha\": 0.1, \"enable_sampling\": true}}",
         "\"enable_sampling\" of \"sp_model_kwargs\" is true"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"t\"}}}",
         "\"x\" of \"added_tokens_decoder\" is not an id"}};
    static const int32_t wanted[] = {3, 6, 7, 3, 0};
    fixture *f = *state;
    attn_translator *t;
    int32_t ids[16];
    int64_t n, unknown;
    char text[1024];
    put(f, "added_tokens.json", "{\"t\": -6}", 9);
    check_refused(f, ATTN_ERROR_FORMAT, "the id of \"t\" in added_tokens.json is -6; expected an integer from 0");
    put(f, "added_tokens.json", "{\"t\": \"6\"}", 10);
    check_refused(f, ATTN_ERROR_FORMAT, "the id of \"t\" in added_tokens.json is \"6\"; expected");
    put(f, "added_tokens.json", "{}", 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put(f, "tokenizer_config.json", wrong[i][0], strlen(wrong[i][0]));
        attn_status status = strstr(wrong[i][1], "id") ? ATTN_ERROR_FORMAT : ATTN_ERROR_UNSUPPORTED;
        check_refused(f, status, wrong[i][1]);
    }
    put(f, "tokenizer_config.json", decoder, sizeof decoder - 1);
    check_refused(f, ATTN_ERROR_FORMAT,
                  "the model has 6 source and 6 target pieces, but its vocabularies have 8 and 8");
    snprintf(text, sizeof text, config_json, "swish");
    *strchr(strstr(text, "vocab_size"), '6') = '8';
    put(f, "config.json", text, strlen(text));
    put_tensors(f, (entry[]){{"model.shared.weight", V + 2, D}, {"final_logits_bias", 1, V + 2}}, 2);
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    const attn_vocab *source = attn_translator_vocab(t, ATTN_SIDE_SOURCE);
    assert_int_equal(attn_vocab_encode(source, "a<t> <tt> a", NULL, ids, 16, &n, &unknown), ATTN_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, wanted, sizeof wanted);
    attn_translator_destroy(t);
    put_biases_of(f, (const float[V + 2]){0, 0, 0, 0, 1, 0, 3, 2}, V + 2);
    static const char search[] = "{\"bad_words_ids\": [[5]], \"max_length\": 5, \"no_repeat_ngram_size\": 1}";
    put(f, "generation_config.json", search, sizeof search - 1);
    check_says(f, NULL, "<t> b"); /* <tt> is a special token, so it is not in the text. */
}

/* Writes the files of a model of 7 pieces, whose first output is the last piece and whose second is "b". */
static void put_seven(const fixture *f, const char *vocab)
{
    char text[1024];
    put(f, "vocab.json", vocab, strlen(vocab));
    snprintf(text, sizeof text, config_json, "swish");
    *strchr(strstr(text, "vocab_size"), '6') = '7';
    put(f, "config.json", text, strlen(text));
    put_tensors(f, (entry[]){{"model.shared.weight", V + 1, D}, {"final_logits_bias", 1, V + 1}}, 2);
    put_biases_of(f, (const float[V + 1]){0, 0, 0, 0, 1, 0, 3}, V + 1);
    static const char search[] = "{\"bad_words_ids\": [[5]], \"max_length\": 5, \"no_repeat_ngram_size\": 1}";
    put(f, "generation_config.json", search, sizeof search - 1);
}

#define SIX "{\"</s>\": 0, \"<unk>\": 1, \"x\": 2, \"" M "a\": 3, \"" M "b\": 4, \"<pad>\": 5"

/* Each file that may name special tokens does, for a token of the vocabulary and for one that is appended to it. */
static void special_tokens_of_every_file_are_left_out_of_the_text(void **state)
{
    static const struct {
        const char *config, *map, *added;
        bool special;
    } cases[] = {
        {"{\"additional_special_tokens\": [\"<e>\"]}", NULL, NULL, true},
        {"{\"extra_special_tokens\": [\"<e>\"]}", NULL, NULL, true},
        {"{\"extra_special_tokens\": {\"entity\": \"<e>\"}}", NULL, NULL, true},
        {"{\"extra_special_tokens\": [], \"additional_special_tokens\": [{\"content\": \"<e>\"}]}", NULL, NULL, true},
        {"{\"mask_token\": \"<e>\"}", NULL, NULL, true},
        {"{}", "{\"additional_special_tokens\": [\"<e>\"]}", NULL, true},
        {"{}", "{\"cls_token\": {\"content\": \"<e>\", \"lstrip\": false}}", NULL, true},
        {"{}", "{\"additional_special_tokens\": [\"<e>\"]}", "{\"<e>\": 6}", true},
        {"{}", NULL, "{\"<e>\": 6}", false},
        {"{\"added_tokens_decoder\": {\"6\": {\"content\": \"<e>\"}}, \"additional_special_tokens\": [\"<e>\"]}", NULL,
         NULL, true},
        /* As in transformers, the map is not read beside added_tokens_decoder. */
        {"{\"added_tokens_decoder\": {\"6\": {\"content\": \"<e>\"}}}", "{\"additional_special_tokens\": [\"<e>\"]}",
         NULL, false},
    };
    fixture *f = *state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const char *config = cases[i / 2].config, *map = cases[i / 2].map ? cases[i / 2].map : "{}";
        const char *added = cases[i / 2].added ? cases[i / 2].added : "{}";
        put_seven(f, i % 2 ? SIX "}" : SIX ", \"<e>\": 6}");
        put(f, "tokenizer_config.json", config, strlen(config));
        put(f, "special_tokens_map.json", map, strlen(map));
        put(f, "added_tokens.json", added, strlen(added));
        check_says(f, NULL, cases[i / 2].special ? "b" : "<e> b");
    }
}

static void special_tokens_without_a_row_are_text(void **state)
{
    static const char config[] = "{\"additional_special_tokens\": [\"<e>\", \"" M "b\"]}";
    fixture *f = *state;
    put(f, "tokenizer_config.json", config, sizeof config - 1);
    check_says(f, NULL, "");
}

static void the_unknown_token_is_the_one_that_is_named(void **state)
{
    static const char config[] = "{\"unk_token\": \"[U]\"}", other[] = "{\"eos_token\": \"x\"}";
    fixture *f = *state;
    attn_translator *t;
    int32_t ids[8];
    int64_t n, unknown;
    put_seven(f, SIX ", \"[U]\": 6}");
    put(f, "tokenizer_config.json", config, sizeof config - 1);
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    assert_int_equal(attn_vocab_special(attn_translator_vocab(t, ATTN_SIDE_SOURCE), ATTN_SPECIAL_UNK), 6);
    assert_int_equal(attn_vocab_encode(attn_translator_vocab(t, ATTN_SIDE_SOURCE), "a [U]", NULL, ids, 8, &n, &unknown),
                     ATTN_OK);
    assert_memory_equal(ids, ((int32_t[]){3, 6, 0}), 3 * sizeof *ids);
    attn_translator_destroy(t);
    put(f, "special_tokens_map.json", "{\"unk_token\": \"[V]\"}", 20);
    check_refused(f, ATTN_ERROR_FORMAT, "the vocabulary has no piece [V]");
    put(f, "special_tokens_map.json", "{}", 2);
    put(f, "tokenizer_config.json", other, sizeof other - 1);
    check_refused(f, ATTN_ERROR_UNSUPPORTED, "ends sentences with x, id 2");
}

static void a_target_vocabulary_counts_only_if_the_vocabularies_are_separate(void **state)
{
    static const char other[] = "{\"</s>\": 0, \"<unk>\": 1, \"x\": 2, \"y\": 3, \"" M "a\": 4, \"<pad>\": 5}";
    fixture *f = *state;
    put(f, "target_vocab.json", other, sizeof other - 1);
    check_says(f, NULL, "b b b");
    put(f, "tokenizer_config.json", "{\"separate_vocabs\": true}", 25);
    check_says(f, NULL, "a a a");
    put(f, "tokenizer_config.json", "{\"separate_vocabs\": false}", 26);
    check_says(f, NULL, "b b b");
}

/* A shortlist begins with the first token that is text and not special. */
static void shortlists_begin_with_text(void **state)
{
    static const char entries[] = "\xe2\x96\x81\x61 \xe2\x96\x81\x61 0.5\n";
    fixture *f = *state;
    attn_translator *t;
    attn_lexicon *lexicon;
    attn_translation said;
    const char *line = "b";
    put_biases(f, (const float[V]){0, 0, 1, 2, 3, 0});
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    assert_int_equal(attn_lexicon_parse(&lexicon, f->c, entries, sizeof entries - 1, "l",
                                        attn_translator_vocab(t, ATTN_SIDE_SOURCE),
                                        attn_translator_vocab(t, ATTN_SIDE_TARGET)),
                     ATTN_OK);
    attn_translator_options options = {.shortlist = lexicon, .shortlist_first = 1, .max_len = 2};
    assert_int_equal(attn_translator_translate(t, &line, 1, &options, &said), ATTN_OK);
    assert_string_equal(said.tokens, ">>fra<<");
    attn_translations_free(f->c, &said, 1);
    attn_lexicon_destroy(lexicon);
    attn_translator_destroy(t);
}

static void words_of_pieces_are_numbered(void **state)
{
    static const struct {
        const char *token;
        int64_t number;
    } cases[] = {{">>fra<<", 0}, {M "a", 1}, {"b", 1}, {M, 2},         {"c", 2},     {M, 3},
                 {M "d", 3},     {".", 3},   {M M, 4}, {"e" M "f", 4}, {M "g" M, 6}, {"h", 7}};
    attn__word_counter pieces = {.subwords = true}, words = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(attn__word_number(&pieces, cases[i].token, strlen(cases[i].token)), cases[i].number);
        assert_int_equal(attn__word_number(&words, cases[i].token, strlen(cases[i].token)), (int64_t)i);
    }
    assert_int_equal(pieces.n, 8);
}

enum { WORDS = 6, SAID = 5 };

/* Writes the pairs "i-j" of the attention in the decoder's last layer, for a sentence that is translated alone. The
 * words of `a` are its tokens. */
static void expected_pairs(const attn_translator *t, const attn__aligned *a, char *text)
{
    attn_tape *tape;
    attn_named_list weights = {.context = t->context};
    int32_t length = (int32_t)a->nsource, in[SAID] = {attn_vocab_special(t->target, ATTN_SPECIAL_BOS)};
    memcpy(in + 1, a->said, (size_t)(a->nsaid - 1) * sizeof *in);
    assert_int_equal(attn_tape_create(&tape, t->context), ATTN_OK);
    attn_tensor *source = attn__ids_on_tape(tape, 1, a->nsource, a->source);
    attn_tensor *lens = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){1}, &length);
    attn_tensor *input = attn__ids_on_tape(tape, 1, a->nsaid, in);
    assert_non_null(
        attn_seq2seq_forward(t->model, tape, source, lens, input, &(attn_seq2seq_options){.weights = &weights}));
    const float *w = attn_tensor_data((attn_tensor *)(uintptr_t)attn_named_find(&weights, "cross.1"));
    int64_t n = a->nsource;
    for (int64_t j = 0; j < a->nsaid; j++) {
        int64_t best = 0;
        for (int64_t i = 1; i < a->ntokens; i++)
            best = w[j * n + i] + w[(a->nsaid + j) * n + i] > w[j * n + best] + w[(a->nsaid + j) * n + best] ? i : best;
        text += sprintf(text, "%s%d-%d", j > 0 ? " " : "", (int)best, (int)j); /* NOLINT: the numbers are below 10 */
    }
    attn_named_clear(&weights);
    attn_tape_destroy(tape);
}

/* In a batch of several lengths, each sentence has the same alignment as when it is translated alone. */
static void alignments_are_those_of_the_last_layer(void **state)
{
    static const char list[] = "<unk>\n<pad>\n<bos>\n<eos>\na\nb\nc\nd\n";
    static const char settings[] = "{\"vocab_size\": 8, \"num_hiddens\": 8, \"ffn_num_hiddens\": 8, \"num_heads\": 2, "
                                   "\"num_blks\": 2, \"max_len\": 16}";
    static const int32_t sources[3][WORDS] = {{4, 5, 3}, {7, 6, 5, 4, 4, 3}, {6, 3}};
    static const int32_t said[3][SAID] = {{5, 5, 4, 7, 6}, {7}, {4, 6, 7}};
    static const int64_t words[WORDS] = {0, 1, 2, 3, 4, 5}, lengths[3][2] = {{3, 5}, {6, 1}, {2, 3}};
    fixture *f = *state;
    attn_config *config;
    attn_tape *tape;
    attn_translator t = {.context = f->c};
    char *text[3] = {0};
    attn__aligned all[3];
    assert_int_equal(attn_vocab_parse(&t.source, f->c, list, sizeof list - 1, "list"), ATTN_OK);
    t.target = t.source;
    assert_int_equal(attn_config_parse(&config, f->c, settings, sizeof settings - 1, "settings"), ATTN_OK);
    assert_int_equal(attn_model_create(&t.model, f->c, "transformer", config, NULL), ATTN_OK);
    for (int i = 0; i < 3; i++)
        all[i] = (attn__aligned){.source = sources[i],
                                 .nsource = lengths[i][0],
                                 .ntokens = lengths[i][0] - 1,
                                 .words = words,
                                 .said = said[i],
                                 .nsaid = lengths[i][1],
                                 .owner = f->c,
                                 .alignment = &text[i]};
    assert_int_equal(attn_tape_create(&tape, f->c), ATTN_OK);
    assert_int_equal(attn__translator_align(&t, tape, all, 3), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        char expected[64];
        expected_pairs(&t, &all[i], expected);
        assert_string_equal(text[i], expected);
        attn__free(f->c, text[i]);
    }
    attn_tape_destroy(tape);
    attn_model_destroy(t.model);
    attn_config_destroy(config);
    attn_vocab_destroy(t.source);
}

static void without_attention_there_are_no_alignments(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    attn_translation said;
    const char *line = "a b";
    attn_translator_options options = {.alignments = true};
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    assert_refused(f->c, attn_translator_translate(t, &line, 1, &options, &said), ATTN_ERROR_UNSUPPORTED,
                   "does not attend to the source");
    attn_translator_destroy(t);
}

static void *count_alloc(void *user, size_t size, size_t align)
{
    ++*(int *)user;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

static void kept_weights_are_packed_once(void **state)
{
    fixture *f = *state;
    int count = 0, needed[3];
    attn_context *c;
    attn_translator *t;
    const char *line = ">>fra<< a b";
    attn_context_options options = {.allocator = {count_alloc, count_release, &count}, .threads = 1};
    assert_int_equal(attn_context_create(&c, &options), ATTN_OK);
    assert_int_equal(attn_translator_load(&t, c, f->directory, NULL), ATTN_OK);
    for (int i = 0; i < 4; i++) {
        attn_translation said;
        if (i > 0)
            assert_int_equal(attn_translator_pack_weights(t), ATTN_OK);
        count = 0;
        assert_int_equal(attn_translator_translate(t, &line, 1, NULL, &said), ATTN_OK);
        needed[i % 3] = count;
        assert_string_equal(said.text, "b b b");
        attn_translations_free(c, &said, 1);
        if (i == 2)
            assert_true(needed[2] + 3 <= needed[0]);
    }
    assert_int_equal(needed[0], needed[2]);
    attn_translator_destroy(t);
    end_context(c);
}

static void translations_begin_with_their_prefix(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    attn_translation said[2];
    const char *lines[] = {"a b", "b"}, *prefixes[] = {"a a", NULL};
    attn_translator_options options = {.prefixes = prefixes};
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    assert_int_equal(attn_translator_translate(t, lines, 2, &options, said), ATTN_OK);
    assert_string_equal(said[0].text, "a a b");
    assert_string_equal(said[1].text, "b b b");
    attn_translations_free(f->c, said, 2);
    static const char *const refused[][2] = {
        {"a a a a", "line 2: the given beginning of the translation has more than 3"},
        {"a</s>", "cannot begin with \"</s>\""},
        {"zyx", "which is not a word of the target"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        prefixes[1] = refused[i][0];
        assert_refused(f->c, attn_translator_translate(t, lines, 2, &options, said), ATTN_ERROR_ARGUMENT,
                       refused[i][1]);
    }
    attn_translator_destroy(t);
}

/* The longer line is translated first, but the error must have the line's number in the input. */
static void weights_that_are_not_finite_name_the_line(void **state)
{
    fixture *f = *state;
    attn_translator *t;
    attn_translation said[2];
    const char *lines[] = {"b", "a b"};
    assert_int_equal(attn_translator_load(&t, f->c, f->directory, NULL), ATTN_OK);
    attn_tensor *first = attn_model_parameters(t->model)->items[0].tensor;
    for (int64_t i = 0; i < attn_tensor_size(first); i++)
        ((float *)attn_tensor_data(first))[i] = NAN;
    assert_refused(f->c, attn_translator_translate(t, lines, 2, NULL, said), ATTN_ERROR_UNSUPPORTED,
                   "the probabilities of sentence 2 are not finite");
    attn_translator_destroy(t);
}

#define TEST_PREPARED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {TEST_PREPARED(banned_and_forced_tokens),
                                       TEST_PREPARED(one_file_describes_the_search),
                                       TEST_PREPARED(searches_obey_their_settings),
                                       TEST_PREPARED(sequences_are_suppressed),
                                       TEST_PREPARED(wrong_sequences_are_refused),
                                       TEST_PREPARED(the_unknown_token_can_be_suppressed),
                                       TEST_PREPARED(lines_are_cut_at_the_given_maximum),
                                       TEST_PREPARED(banned_tokens_have_a_share_or_none),
                                       TEST_PREPARED(generated_text_is_one_line_with_tidy_spaces),
                                       TEST_PREPARED(added_tokens_are_tokens),
                                       TEST_PREPARED(special_tokens_of_every_file_are_left_out_of_the_text),
                                       TEST_PREPARED(special_tokens_without_a_row_are_text),
                                       TEST_PREPARED(the_unknown_token_is_the_one_that_is_named),
                                       TEST_PREPARED(a_target_vocabulary_counts_only_if_the_vocabularies_are_separate),
                                       TEST_PREPARED(names_of_specials_are_tokens),
                                       TEST_PREPARED(embedding_tables_shared_and_separate_load),
                                       TEST_PREPARED(shortlists_begin_with_text),
                                       TEST(words_of_pieces_are_numbered),
                                       TEST_PREPARED(alignments_are_those_of_the_last_layer),
                                       TEST_PREPARED(without_attention_there_are_no_alignments),
                                       TEST_PREPARED(kept_weights_are_packed_once),
                                       TEST_PREPARED(translations_begin_with_their_prefix),
                                       TEST_PREPARED(weights_that_are_not_finite_name_the_line),
                                       TEST_PREPARED(wrong_checkpoints_are_refused)};
    return attn_subwords_available() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
