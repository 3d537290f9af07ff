/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests vocabularies, ids and batches.
 */
#include "support/fixture.h"
#include "support/faults.h"

#include "data/sentences.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char corpus_text[] =
    "go .\tva !\n"
    "go !\tva va !\n"
    "i go .\tje vais .\n"
    "he is <pad> .\til est <unk> .\n"
    "he is here and there and here and there .\til est ici et l\xc3\xa0 et ici et l\xc3\xa0 .\n";

typedef struct fixture {
    attn_context *c;
    attn_pairs *pairs;
    attn_vocab *source, *target;
} fixture;

static void set_up(fixture *f, attn_compat compat, int64_t min_frequency)
{
    attn_vocab_options options = {.compat = compat, .min_frequency = min_frequency};
    assert_int_equal(attn_context_create(&f->c, NULL), ATTN_OK);
    assert_int_equal(attn_pairs_parse(&f->pairs, f->c, corpus_text, sizeof corpus_text - 1, "t",
                                      &(attn_pairs_options){.compat = compat}),
                     ATTN_OK);
    assert_int_equal(attn_vocab_build(&f->source, f->pairs, ATTN_SIDE_SOURCE, &options), ATTN_OK);
    assert_int_equal(attn_vocab_build(&f->target, f->pairs, ATTN_SIDE_TARGET, &options), ATTN_OK);
}

static void tear_down(fixture *f)
{
    attn_vocab_destroy(f->source);
    attn_vocab_destroy(f->target);
    attn_pairs_destroy(f->pairs);
    end_context(f->c);
}

static void check_tokens(const attn_vocab *v, const char *const *tokens)
{
    int64_t n = 0;
    for (; tokens[n]; n++) {
        assert_non_null(attn_vocab_token(v, n));
        assert_string_equal(attn_vocab_token(v, n), tokens[n]);
    }
    assert_int_equal(attn_vocab_size(v), n);
    assert_null(attn_vocab_token(v, n));
    assert_null(attn_vocab_token(v, -1));
}

static void frequent_words_come_first(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_NONE, 0);
    check_tokens(f.source, (const char *const[]){"<pad>", "<bos>", "<eos>", "<unk>", ".", "and", "go", "he", "here",
                                                 "is", "there", NULL});
    assert_int_equal(attn_vocab_find(f.source, "go", 2), 6);
    assert_int_equal(attn_vocab_find(f.source, "i", 1), -1);
    assert_int_equal(attn_vocab_find(f.source, "<pad>", 5), -1);
    assert_int_equal(attn_vocab_special(f.source, ATTN_SPECIAL_UNK), 3);
    tear_down(&f);
}

/* Computed by hand from the book's rule: sentences are cut, or padded with <eos>, to 9 tokens, and words that occur
 * at least twice are sorted by code point. */
static void the_books_vocabulary(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_D2L, 0);
    check_tokens(f.source,
                 (const char *const[]){".", "<eos>", "<pad>", "<unk>", "and", "go", "he", "here", "is", "there", NULL});
    check_tokens(f.target, (const char *const[]){"!", ".", "<bos>", "<eos>", "<pad>", "<unk>", "est", "et", "ici", "il",
                                                 "l\xc3\xa0", "va", NULL});
    assert_int_equal(attn_vocab_special(f.source, ATTN_SPECIAL_BOS), -1);
    assert_int_equal(attn_vocab_special(f.target, ATTN_SPECIAL_BOS), 2);
    tear_down(&f);
}

static void vocabularies_survive_a_file(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_NONE, 1);
    attn_bytes file;
    attn_vocab *again;
    assert_int_equal(attn_vocab_format(f.target, &file), ATTN_OK);
    const char *text = file.data;
    size_t size = file.size;
    assert_int_equal(attn_vocab_parse(&again, f.c, text, size, "v"), ATTN_OK);
    assert_int_equal(attn_vocab_size(again), attn_vocab_size(f.target));
    for (int64_t i = 0; i < attn_vocab_size(again); i++)
        assert_string_equal(attn_vocab_token(again, i), attn_vocab_token(f.target, i));
    attn_vocab_destroy(again);
    /* A file that is cut at any byte is refused, or is a shorter vocabulary if it ends with a complete line. */
    for (size_t cut = 0; cut < size; cut++) {
        attn_context_clear_error(f.c);
        attn_status status = attn_vocab_parse(&again, f.c, text, cut, "v");
        assert_true(status == ATTN_ERROR_FORMAT || (status == ATTN_OK && text[cut - 1] == '\n'));
        attn_vocab_destroy(again);
    }
    attn_bytes_free(f.c, &file);
    tear_down(&f);
}

static void damaged_vocabularies_are_refused(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "v: the vocabulary is empty"},
        {"<pad>\n\n", "v:2: the line is empty; expected a token"},
        {"<pad>\na b\n", "v:2: the token has a space or a control character"},
        {"<pad>\nx\nx\n", "v:3: the token \"x\" is already on line 2"},
        {"<pad>\nx\xff\n", "v:2: the token is not UTF-8"},
        {"<pad>\n<eos>\n<unk>\nx", "v:4: the last line has no newline: the file is cut off"},
        {"<pad>\n<eos>\n", "v: the vocabulary has no <unk>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_vocab *v;
        attn_context_clear_error(c);
        assert_int_equal(attn_vocab_parse(&v, c, cases[i].text, strlen(cases[i].text), "v"), ATTN_ERROR_FORMAT);
        assert_null(v);
        assert_string_equal(attn_context_error(c), cases[i].error);
    }
}

/* ------------------------------------------------------------------------------------------------- ids */

static void sentences_become_ids_and_back(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_NONE, 0);
    int32_t ids[16];
    int64_t n, unknown;
    char text[64];
    assert_int_equal(attn_vocab_encode(f.source, "he is unknown .", NULL, ids, 16, &n, &unknown), ATTN_OK);
    assert_int_equal(n, 5);
    assert_int_equal(unknown, 1);
    assert_int_equal(ids[2], attn_vocab_special(f.source, ATTN_SPECIAL_UNK));
    assert_int_equal(ids[4], attn_vocab_special(f.source, ATTN_SPECIAL_EOS));
    attn_vocab_decode(f.source, ids, n, text, sizeof text);
    assert_string_equal(text, "he is <unk> .");
    /* A sentence that is cut still has an end token. */
    assert_int_equal(attn_vocab_encode(f.source, "he is here .", &(attn_encode_options){.steps = 3}, ids, 16, &n, NULL),
                     ATTN_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[2], attn_vocab_special(f.source, ATTN_SPECIAL_EOS));
    assert_int_equal(attn_vocab_encode(f.source, "he is here .", NULL, ids, 4, &n, NULL), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_vocab_encode(f.source, "", &(attn_encode_options){.steps = -1}, ids, 4, &n, NULL),
                     ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_vocab_encode(f.source, "", NULL, ids, 4, &n, NULL), ATTN_OK);
    assert_int_equal(n, 1);
    tear_down(&f);
}

static void the_book_cuts_the_end_mark(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_D2L, 0);
    int32_t ids[9];
    int64_t n;
    const attn_encode_options d2l = {.compat = ATTN_COMPAT_D2L};
    assert_int_equal(attn_vocab_encode(f.source, "go .", &d2l, ids, 9, &n, NULL), ATTN_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[8], attn_vocab_special(f.source, ATTN_SPECIAL_PAD));
    assert_int_equal(attn_vocab_encode(f.source, "he is here and there and here and there .", &d2l, ids, 9, &n, NULL),
                     ATTN_OK);
    assert_int_equal(n, 9);
    assert_int_equal(ids[8], attn_vocab_find(f.source, "there", 5));
    tear_down(&f);
}

/* --------------------------------------------------------------------------------------------- batches */

static attn_corpus *make_corpus(const fixture *f, attn_compat compat)
{
    attn_corpus *corpus;
    assert_int_equal(
        attn_corpus_create(&corpus, f->pairs, f->source, f->target, &(attn_encode_options){.compat = compat}), ATTN_OK);
    return corpus;
}

static void a_batch_is_padded_and_shifted(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_NONE, 1);
    attn_corpus *corpus = make_corpus(&f, ATTN_COMPAT_NONE);
    attn_batches *batches;
    attn_batch b;
    assert_int_equal(attn_batches_create(&batches, corpus, &(attn_batches_options){.size = 2, .in_order = true}),
                     ATTN_OK);
    assert_int_equal(attn_batches_count(batches), 3);
    assert_true(attn_batches_next(batches, &b));
    assert_int_equal(b.size, 2);
    assert_int_equal(b.source_steps, 3);
    assert_int_equal(b.target_steps, 4);
    const int32_t pad = 0, bos = 1, eos = 2, va = attn_vocab_find(f.target, "va", 2),
                  mark = attn_vocab_find(f.target, "!", 1);
    const int32_t labels[] = {va, mark, eos, pad, va, va, mark, eos}, input[] = {bos, va, mark, pad, bos, va, va, mark};
    assert_memory_equal(b.labels, labels, sizeof labels);
    assert_memory_equal(b.input, input, sizeof input);
    assert_int_equal(b.target_lens[0], 3);
    assert_int_equal(b.target_lens[1], 4);
    assert_int_equal(b.target_tokens, 7);
    assert_int_equal(b.source_tokens, 6);
    assert_true(attn_batches_next(batches, &b));
    assert_true(attn_batches_next(batches, &b));
    assert_int_equal(b.size, 1);
    assert_false(attn_batches_next(batches, &b));
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

static void the_books_batch(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_D2L, 0);
    attn_corpus *corpus = make_corpus(&f, ATTN_COMPAT_D2L);
    attn_batches *batches;
    attn_batch b;
    assert_int_equal(
        attn_batches_create(&batches, corpus, &(attn_batches_options){.size = 128, .in_order = true, .fixed_steps = 9}),
        ATTN_OK);
    assert_true(attn_batches_next(batches, &b));
    assert_int_equal(b.size, 5);
    assert_int_equal(b.source_steps, 9);
    assert_int_equal(b.target_steps, 9);
    const int32_t bos = 2, eos = 3, pad = 4, va = 11, mark = 0;
    const int32_t input[9] = {bos, va, mark, eos, pad, pad, pad, pad, pad},
                  labels[9] = {va, mark, eos, pad, pad, pad, pad, pad, pad};
    assert_memory_equal(b.input, input, sizeof input);
    assert_memory_equal(b.labels, labels, sizeof labels);
    assert_int_equal(b.target_lens[4], 9);
    assert_memory_equal(b.input + 4 * 9 + 1, b.labels + 4 * 9, 8 * sizeof(int32_t));
    attn_batches_destroy(batches);
    assert_int_equal(attn_batches_create(&batches, corpus, &(attn_batches_options){.fixed_steps = 8}),
                     ATTN_ERROR_ARGUMENT);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

/* Makes 700 sentences of 1 to 20 words. */
static void many_sentences(fixture *f)
{
    enum { N = 700 };
    char *text = malloc(N * 100), *at = text;
    for (int i = 0; i < N; i++) {
        int words = 1 + i * 7919 % 20;
        for (int w = 0; w < words; w++)
            at += sprintf(at, "%sw%d", w ? " " : "", i % 10);
        *at++ = '\t';
        for (int w = 0; w < words; w++)
            at += sprintf(at, "%sv%d", w ? " " : "", i % 10);
        at += sprintf(at, "\n");
    }
    assert_int_equal(attn_context_create(&f->c, NULL), ATTN_OK);
    assert_int_equal(attn_pairs_parse(&f->pairs, f->c, text, (size_t)(at - text), "m", NULL), ATTN_OK);
    assert_int_equal(attn_vocab_build(&f->source, f->pairs, ATTN_SIDE_SOURCE, NULL), ATTN_OK);
    assert_int_equal(attn_vocab_build(&f->target, f->pairs, ATTN_SIDE_TARGET, NULL), ATTN_OK);
    free(text);
}

/* Reads an epoch, in which every sentence must come once. Returns the share of padding in the targets. */
static double read_epoch(attn_batches *batches, int64_t *order)
{
    attn_batch b;
    int seen[700] = {0};
    int64_t n = 0, places = 0, tokens = 0;
    while (attn_batches_next(batches, &b)) {
        for (int64_t i = 0; i < b.size; i++) {
            seen[b.indices[i]]++;
            order[n++] = b.indices[i];
        }
        places += b.size * b.target_steps;
        tokens += b.target_tokens;
    }
    assert_int_equal(n, 700);
    for (int i = 0; i < 700; i++)
        assert_int_equal(seen[i], 1);
    return 1 - (double)tokens / (double)places;
}

static void epochs_are_shuffled_and_can_be_resumed(void **state)
{
    fixture f;
    many_sentences(&f);
    attn_corpus *corpus = make_corpus(&f, ATTN_COMPAT_NONE);
    attn_batches *batches, *mixed, *again;
    static int64_t first[700], second[700], other[700];
    attn_batches_options options = {.size = 16, .seed = 3};
    assert_int_equal(attn_batches_create(&batches, corpus, &options), ATTN_OK);
    options.mixed_lengths = true;
    assert_int_equal(attn_batches_create(&mixed, corpus, &options), ATTN_OK);
    options.mixed_lengths = false;
    assert_int_equal(attn_batches_create(&again, corpus, &options), ATTN_OK);
    double padding = read_epoch(batches, first), mixed_padding = read_epoch(mixed, other);
    assert_true(padding < 0.1 && mixed_padding > 0.3);
    attn_batches_seek(batches, 1, 0);
    read_epoch(batches, second);
    assert_memory_not_equal(first, second, sizeof first);
    attn_batch b;
    attn_batches_seek(again, 1, 20);
    assert_true(attn_batches_next(again, &b));
    assert_int_equal(attn_batches_epoch(again), 1);
    assert_int_equal(attn_batches_position(again), 21);
    assert_memory_equal(b.indices, second + 20 * 16, 16 * sizeof *second);
    attn_batches_seek(again, 1, 1000);
    assert_false(attn_batches_next(again, &b));
    attn_batches_destroy(batches);
    attn_batches_destroy(mixed);
    attn_batches_destroy(again);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

/* Tests batches of at most 200 positions. Each sentence comes once, and every epoch has the same number of batches.
 * A longer sentence is alone in its batch. */
static void batches_are_counted_by_tokens(void **state)
{
    fixture f;
    many_sentences(&f);
    attn_corpus *corpus = make_corpus(&f, ATTN_COMPAT_NONE);
    attn_batches *batches;
    attn_batch b;
    static int64_t first[700], second[700];
    attn_batches_options options = {.tokens = 200, .seed = 3};
    assert_int_equal(attn_batches_create(&batches, corpus, &options), ATTN_OK);
    int64_t count = attn_batches_count(batches), n = 0;
    /* With its end token, a sentence has 11.5 tokens on average. */
    assert_in_range(count, 700 * 11 / 200, 700 * 14 / 200);
    assert_true(read_epoch(batches, first) < 0.05);
    for (int64_t epoch = 1; epoch < 4; epoch++) {
        attn_batches_seek(batches, epoch, 0);
        for (n = 0; attn_batches_next(batches, &b); n++)
            assert_true(b.size * b.target_steps <= 200 && b.size * b.source_steps <= 200);
        assert_int_equal(n, count);
    }
    attn_batches_seek(batches, 1, 0);
    read_epoch(batches, second);
    assert_memory_not_equal(first, second, sizeof first);
    attn_batches_destroy(batches);
    options.tokens = 1;
    assert_int_equal(attn_batches_create(&batches, corpus, &options), ATTN_OK);
    assert_int_equal(attn_batches_count(batches), 700);
    attn_batches_destroy(batches);
    options.mixed_lengths = true;
    assert_int_equal(attn_batches_create(&batches, corpus, &options), ATTN_ERROR_ARGUMENT);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

static void steps_are_rounded_up(void **state)
{
    fixture f;
    many_sentences(&f);
    attn_corpus *corpus = make_corpus(&f, ATTN_COMPAT_NONE);
    attn_batches *batches;
    attn_batch b;
    assert_int_equal(attn_batches_create(&batches, corpus, &(attn_batches_options){.multiple = 8}), ATTN_OK);
    uint64_t before, after;
    attn_context_memory(f.c, NULL, NULL, &before);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        attn_batches_seek(batches, epoch, 0);
        while (attn_batches_next(batches, &b))
            assert_true(b.source_steps % 8 == 0 && b.target_steps % 8 == 0 && b.target_steps <= 24);
    }
    attn_context_memory(f.c, NULL, NULL, &after);
    assert_int_equal(before, after);
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

static attn_status all_steps(attn_context *c, void *user)
{
    attn_pairs *pairs = NULL;
    attn_vocab *source = NULL, *target = NULL, *again = NULL;
    attn_corpus *corpus = NULL;
    attn_batches *batches = NULL;
    attn_bytes file = {0};
    attn_vocab_options options = {.compat = *(attn_compat *)user};
    attn_status status = attn_pairs_parse(&pairs, c, corpus_text, sizeof corpus_text - 1, "t", NULL);
    if (status == ATTN_OK)
        status = attn_vocab_build(&source, pairs, ATTN_SIDE_SOURCE, &options);
    if (status == ATTN_OK)
        status = attn_vocab_build(&target, pairs, ATTN_SIDE_TARGET, &options);
    if (status == ATTN_OK)
        status = attn_vocab_format(target, &file);
    if (status == ATTN_OK)
        status = attn_vocab_parse(&again, c, file.data, file.size, "v");
    if (status == ATTN_OK)
        status = attn_corpus_create(&corpus, pairs, source, target, NULL);
    if (status == ATTN_OK)
        status = attn_batches_create(&batches, corpus, NULL);
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
    attn_bytes_free(c, &file);
    attn_vocab_destroy(again);
    attn_vocab_destroy(source);
    attn_vocab_destroy(target);
    attn_pairs_destroy(pairs);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    for (attn_compat compat = ATTN_COMPAT_NONE; compat <= ATTN_COMPAT_D2L; compat++)
        assert_true(faults_try_all(all_steps, &compat) > 20);
}

/* ------------------------------------------------------------------------------------------- lexicons */

static void lexicons_survive_a_file(void **state)
{
    static const char text[] = "\xef\xbb\xbfva go 0.75\r\n\n \tvais  go\t.25\nNULL go 0.5\nva NULL 1\n. . 1e-3\n";
    fixture f;
    attn_lexicon *lexicon, *again;
    attn_bytes written, rewritten;
    set_up(&f, ATTN_COMPAT_NONE, 1);
    assert_int_equal(attn_lexicon_parse(&lexicon, f.c, text, sizeof text - 1, "t", f.source, f.target), ATTN_OK);
    assert_int_equal(attn_lexicon_size(lexicon), 3);
    assert_int_equal(attn_lexicon_format(lexicon, &written), ATTN_OK);
    assert_non_null(strstr(written.data, "va go 0.75\nvais go 0.25\n"));
    assert_non_null(strstr(written.data, ". . 0.001\n"));
    assert_int_equal(attn_lexicon_parse(&again, f.c, written.data, written.size, "again", f.source, f.target), ATTN_OK);
    assert_int_equal(attn_lexicon_format(again, &rewritten), ATTN_OK);
    assert_int_equal(rewritten.size, written.size);
    assert_memory_equal(rewritten.data, written.data, written.size);
    attn_bytes_free(f.c, &written);
    attn_bytes_free(f.c, &rewritten);
    attn_lexicon_destroy(lexicon);
    attn_lexicon_destroy(again);
    tear_down(&f);
}

static void damaged_lexicons_are_refused(void **state)
{
    static const char *const bad[][2] = {
        {"", "t: the lexicon has no entries"},
        {"\n \n", "t: the lexicon has no entries"},
        {"NULL NULL 1\n", "t: the lexicon has no entries"},
        {"va go 1\nva go\n", "t:2: expected three fields"},
        {"va go 1 1\n", "t:1: expected three fields"},
        {"va go nan\n", "t:1: \"nan\" is not a probability from 0 to 1"},
        {"va go inf\n", "t:1: \"inf\" is not a probability from 0 to 1"},
        {"va go 1.5\n", "t:1: \"1.5\" is not a probability from 0 to 1"},
        {"va go -0.5\n", "t:1: \"-0.5\" is not a probability from 0 to 1"},
        {"va go 0.5x\n", "t:1: \"0.5x\" is not a probability from 0 to 1"},
        {"va xyz 1\n", "t:1: \"xyz\" is not a token of the source vocabulary"},
        {"xyz go 1\n", "t:1: \"xyz\" is not a token of the target vocabulary"},
        {"va go 1\nv\xc3 go 1\n", "t:2: invalid UTF-8 at byte 2"},
    };
    fixture f;
    attn_lexicon *lexicon;
    char *huge = malloc(1 << 20);
    set_up(&f, ATTN_COMPAT_NONE, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        attn_context_clear_error(f.c);
        assert_refused(f.c, attn_lexicon_parse(&lexicon, f.c, bad[i][0], strlen(bad[i][0]), "t", f.source, f.target),
                       ATTN_ERROR_FORMAT, bad[i][1]);
        assert_null(lexicon);
    }
    attn_context_clear_error(f.c);
    assert_int_equal(attn_lexicon_parse(&lexicon, f.c, "va go\0 1", 8, "t", f.source, f.target), ATTN_ERROR_FORMAT);
    memset(huge, 'x', 1 << 20);
    attn_context_clear_error(f.c);
    assert_refused(f.c, attn_lexicon_parse(&lexicon, f.c, huge, 1 << 20, "t", f.source, f.target), ATTN_ERROR_FORMAT,
                   "t:1: the line has 1048576 bytes");
    free(huge);
    tear_down(&f);
}

enum { SIDE = 16 };

/* Computes IBM Model 1 with plain tables. The last row is the empty word. */
static void model_one(const fixture *f, int64_t rounds, double t[SIDE + 1][SIDE])
{
    for (int i = 0; i < (SIDE + 1) * SIDE; i++)
        t[i / SIDE][i % SIDE] = 1;
    for (int64_t round = 0; round < rounds; round++) {
        double count[SIDE + 1][SIDE] = {{0}}, total[SIDE + 1] = {0};
        for (int64_t p = 0; p < attn_pairs_size(f->pairs); p++) {
            int32_t from[SIDE], to[SIDE];
            int64_t n, m;
            attn_pair pair = attn_pairs_get(f->pairs, p);
            assert_int_equal(attn_vocab_encode(f->source, pair.source, NULL, from, SIDE, &n, NULL), ATTN_OK);
            assert_int_equal(attn_vocab_encode(f->target, pair.target, NULL, to, SIDE, &m, NULL), ATTN_OK);
            from[n - 1] = SIDE;
            for (int64_t j = 0; j + 1 < m; j++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    sum += t[from[i]][to[j]];
                for (int64_t i = 0; i < n; i++) {
                    count[from[i]][to[j]] += t[from[i]][to[j]] / sum;
                    total[from[i]] += t[from[i]][to[j]] / sum;
                }
            }
        }
        for (int i = 0; i < (SIDE + 1) * SIDE; i++)
            t[i / SIDE][i % SIDE] = total[i / SIDE] > 0 ? count[i / SIDE][i % SIDE] / total[i / SIDE] : 0;
    }
}

static void lexicons_are_learned_from_pairs(void **state)
{
    fixture f;
    attn_corpus *corpus;
    attn_lexicon *lexicon;
    attn_bytes file;
    static double t[SIDE + 1][SIDE];
    int64_t wanted = 0, found = 0;
    set_up(&f, ATTN_COMPAT_NONE, 1);
    assert_true(attn_vocab_size(f.source) <= SIDE && attn_vocab_size(f.target) <= SIDE);
    assert_int_equal(attn_corpus_create(&corpus, f.pairs, f.source, f.target, NULL), ATTN_OK);
    attn_lexicon_options options = {.iterations = 7, .min_probability = 0.01};
    assert_int_equal(attn_lexicon_learn(&lexicon, corpus, f.source, f.target, &options), ATTN_OK);
    assert_int_equal(attn_lexicon_format(lexicon, &file), ATTN_OK);
    model_one(&f, 7, t);
    for (int i = 0; i < SIDE * SIDE; i++)
        wanted += t[i / SIDE][i % SIDE] >= 0.01;
    for (const char *line = file.data; *line; line = strchr(line, '\n') + 1, found++) {
        char target[32], source[32];
        double p;
        assert_int_equal(sscanf(line, "%31s %31s %lf", target, source, &p), 3);
        for (int s = 0; s < SIDE; s++) {
            for (int e = 0; e < SIDE; e++) {
                const char *a = attn_vocab_token(f.source, s), *b = attn_vocab_token(f.target, e);
                if (a && b && strcmp(a, source) == 0 && strcmp(b, target) == 0)
                    assert_true(t[s][e] - p < 1e-6 && p - t[s][e] < 1e-6);
            }
        }
    }
    assert_int_equal(found, wanted);
    attn_bytes_free(f.c, &file);
    attn_lexicon_destroy(lexicon);
    options.best = 1; /* The lexicon then has one translation for each of nine words and for unknown words. */
    assert_int_equal(attn_lexicon_learn(&lexicon, corpus, f.source, f.target, &options), ATTN_OK);
    assert_int_equal(attn_lexicon_size(lexicon), 10);
    attn_lexicon_destroy(lexicon);
    attn_corpus_destroy(corpus);
    tear_down(&f);
}

static attn_status learn_and_read(attn_context *context, void *user)
{
    fixture *f = user;
    attn_corpus *corpus = NULL;
    attn_lexicon *lexicon = NULL, *again = NULL;
    attn_pairs *pairs = NULL;
    attn_bytes file = {0};
    attn_status status = attn_pairs_parse(&pairs, context, corpus_text, sizeof corpus_text - 1, "t", NULL);
    if (status == ATTN_OK)
        status = attn_corpus_create(&corpus, pairs, f->source, f->target, NULL);
    if (status == ATTN_OK)
        status = attn_lexicon_learn(&lexicon, corpus, f->source, f->target, NULL);
    if (status == ATTN_OK)
        status = attn_lexicon_format(lexicon, &file);
    if (status == ATTN_OK)
        status = attn_lexicon_parse(&again, context, file.data, file.size, "again", f->source, f->target);
    attn_bytes_free(context, &file);
    attn_lexicon_destroy(again);
    attn_lexicon_destroy(lexicon);
    attn_corpus_destroy(corpus);
    attn_pairs_destroy(pairs);
    return status;
}

static void lexicons_survive_failed_allocations(void **state)
{
    fixture f;
    set_up(&f, ATTN_COMPAT_NONE, 1);
    assert_true(faults_try_all(learn_and_read, &f) > 10);
    tear_down(&f);
}

RUN_TESTS(TEST(frequent_words_come_first), TEST(the_books_vocabulary), TEST(vocabularies_survive_a_file),
          TEST_WITH_CONTEXT(damaged_vocabularies_are_refused), TEST(sentences_become_ids_and_back),
          TEST(the_book_cuts_the_end_mark), TEST(a_batch_is_padded_and_shifted), TEST(the_books_batch),
          TEST(epochs_are_shuffled_and_can_be_resumed), TEST(batches_are_counted_by_tokens), TEST(steps_are_rounded_up),
          TEST(every_allocation_may_fail), TEST(lexicons_survive_a_file), TEST(damaged_lexicons_are_refused),
          TEST(lexicons_are_learned_from_pairs), TEST(lexicons_survive_failed_allocations))
