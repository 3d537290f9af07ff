/* SPDX-License-Identifier: MIT
 *
 * encode.h - published encoders as a tool: texts to vectors, proteins to vectors, contacts and logits. It loads a
 * directory as it was published: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ModernBERT and ESM-2 of Hugging
 * Face, with the pooling of sentence-transformers, and ESM-2 of facebookresearch/esm (.pt).
 *
 *     attn_encoder *encoder;
 *     attn_encoder_load(&encoder, context, "all-MiniLM-L6-v2", NULL);
 *     attn_encoder_text text = {0};
 *     attn_encoder_tokens(encoder, "How are you?", 12, &text);
 *     float *vector = malloc(attn_encoder_about(encoder)->dim * sizeof *vector);
 *     attn_encoder_run(encoder, &text, 1, NULL, vector);
 *     ...
 *     attn_encoder_text_free(encoder, &text);
 *     attn_encoder_destroy(encoder);
 *
 * One thread at a time uses an encoder and its context, except that any number of threads may call
 * attn_encoder_about. Work is divided among the threads of the context; results do not depend on their number. Fixed
 * letters: D channels, V tokens of the vocabulary. */
#ifndef ATTN_ENCODE_H
#define ATTN_ENCODE_H

#include "attn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_encoder attn_encoder;

/* How the vectors of a text's tokens become its result. */
typedef enum attn_pool {
    ATTN_POOL_OWN = 0, /* the pooling of the directory; without one, MEAN */
    ATTN_POOL_MEAN,    /* the mean of all tokens; for proteins, of the residues */
    ATTN_POOL_CLS,     /* the first token's vector */
    ATTN_POOL_MAX,     /* the maximum of each channel */
    ATTN_POOL_LAST,    /* the last token's vector */
    ATTN_POOL_NONE     /* a vector for each token; for proteins, for each residue */
} attn_pool;

/* Options for loading. Zero means the default. */
typedef struct attn_encoder_load_options {
    attn_precision precision; /* precision of products, as in attn_model_options */
    /* Longest text in tokens, with special tokens. 0: what the directory says, at most the positions of the model. If
     * positions are rotary, a longer text than the directory's is possible. */
    int64_t max_length;
    /* path of the file of ESM's contact regression (.pt); NULL: the file beside the checkpoint, if there is one */
    const char *regression;
    const char *names; /* a names file (io.h) for weights with foreign names; NULL: that of the directory's kind */
    int64_t reserved[4];
} attn_encoder_load_options;

/* Loads an encoder: a directory with config.json and weights (model.safetensors, pytorch_model.bin), which
 * attn_model_save of models.h may also have written, or a .pt file of ESM-2. These files of the directory are read if
 * they exist: tokenizer.json, vocab.txt, a SentencePiece model and tokenizer_config.json, modules.json,
 * sentence_bert_config.json, config_sentence_transformers.json and 1_Pooling/config.json. `options` may be NULL.
 * *encoder is NULL on failure. ATTN_ERROR_NOT_FOUND: no such file; ATTN_ERROR_FORMAT: a damaged file;
 * ATTN_ERROR_UNSUPPORTED: a model, a setting, a module or a part of a tokenizer that is not followed, which the message
 * names; ATTN_ERROR_SHAPE: parameters are missing, extra or of another shape; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_encoder_load(attn_encoder **encoder, attn_context *context, const char *path,
                                       const attn_encoder_load_options *options);
/* Makes an encoder of a model of the architecture transformer-encoder, such as attn_model_load loads, and of the files
 * of a tokenizer and a pooling in `directory`, which attn_encoder_load names; none has to exist. The caller keeps the
 * model, destroys it after the encoder, and may change its parameters between runs. *encoder is NULL on failure.
 * ATTN_ERROR_UNSUPPORTED: the model is of another architecture or not F32; otherwise the statuses of attn_encoder_load.
 */
ATTN_API attn_status attn_encoder_wrap(attn_encoder **encoder, attn_model *model, const char *directory);
ATTN_API void attn_encoder_destroy(attn_encoder *encoder); /* Destroys an encoder. NULL is allowed. */

/* What is known of a loaded encoder. */
typedef struct attn_encoder_info {
    int64_t dim, vocabulary; /* D and V */
    int64_t max_length;      /* longest text in tokens, with special tokens */
    attn_pool pool;          /* the directory's pooling, or MEAN */
    bool pooled;             /* true: the directory gives the pooling */
    bool normalize;          /* true: the directory's results have length 1 */
    bool protein;            /* true: texts are proteins in one-letter code */
    bool tokenizer;          /* true: the directory has a tokenizer; false: attn_encoder_tokens fails for words */
    bool contacts;           /* true: attn_encoder_contacts is possible */
    bool masked_head;        /* true: attn_encoder_logits is possible */
    int64_t reserved[4];
} attn_encoder_info;
/* Returns what is known of an encoder. The encoder owns it. */
ATTN_API const attn_encoder_info *attn_encoder_about(const attn_encoder *encoder);
/* Returns the model of the architecture transformer-encoder, which the encoder owns. */
ATTN_API attn_model *attn_encoder_model(const attn_encoder *encoder);

/* ------------------------------------------------------------------------------------------------ tokens */

/* The tokens of one text. Begin with {0}. A program may also set the fields to its own ids, which it then frees itself.
 */
typedef struct attn_encoder_text {
    int64_t n;
    int32_t *ids;   /* n ids, with special tokens */
    int32_t *types; /* n segments; NULL: all are 0 */
    bool cut;       /* true: the text was longer than max_length and lost tokens at its end */
    int64_t skip;   /* tokens at the beginning that MEAN, MAX and NONE leave out */
    int64_t reserved[2];
} attn_encoder_text;

/* Sets a text that attn_encoder_tokens puts before each text, such as "query: ". NULL or "" removes it; it is copied.
 * If the name of a prompt in config_sentence_transformers.json is given as `name` instead, its text is used; NULL: the
 * default prompt of the directory, if it has one and `text` is NULL. ATTN_ERROR_NOT_FOUND: no prompt has this name.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_encoder_prompt(attn_encoder *encoder, const char *text, const char *name);
/* Splits a text of `length` bytes of UTF-8 into tokens. Words beyond max_length are cut, and text->cut tells. A
 * protein is letters in either case; blanks and a final '*' are left out, and it is never cut. `text` is overwritten;
 * free it with attn_encoder_text_free. ATTN_ERROR_UNSUPPORTED: the directory has no tokenizer. ATTN_ERROR_FORMAT: a
 * character that is no residue. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_encoder_tokens(const attn_encoder *encoder, const char *text, size_t length,
                                         attn_encoder_text *tokens);
ATTN_API void attn_encoder_text_free(const attn_encoder *encoder, attn_encoder_text *tokens); /* Frees its arrays. */

/* ------------------------------------------------------------------------------------------------ vectors */

typedef enum attn_normalize { ATTN_NORMALIZE_OWN = 0, ATTN_NORMALIZE_YES, ATTN_NORMALIZE_NO } attn_normalize;

/* Options of a run. Zero means the default. */
typedef struct attn_encoder_options {
    attn_pool pool;
    attn_normalize normalize; /* whether results are divided by their length; OWN: as the directory says */
    int64_t max_tokens;       /* most tokens that are computed together; 0: 1024 */
    int64_t reserved[4];
} attn_encoder_options;

/* Returns the number of vectors that attn_encoder_run writes for a text: 1, or with NONE the number of its tokens. */
ATTN_API int64_t attn_encoder_rows(const attn_encoder *encoder, const attn_encoder_text *text,
                                   const attn_encoder_options *options);
/* Computes the vectors of n texts into `vectors`, which has room for the sum of attn_encoder_rows rows of D floats, in
 * the order of the texts. Texts are sorted by length and computed together without padding; a text's result does not
 * depend on the others beyond rounding. A protein longer than max_length is computed in windows of this length that
 * overlap by half; each residue has the vector of the window in whose middle it is nearest. `options` may be NULL.
 * ATTN_ERROR_ARGUMENT: a text without tokens, or an id out of range; ATTN_ERROR_SHAPE: a text longer than the model's
 * positions; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_encoder_run(attn_encoder *encoder, const attn_encoder_text *texts, int64_t n,
                                      const attn_encoder_options *options, float *vectors);

/* ------------------------------------------------------------------------------------------------ proteins */

/* Computes the probability that two residues of a protein of R residues are within 8 A, into `contacts` [R,R]. In a
 * protein longer than max_length, the mean over the windows that have both residues; NAN if none has. Windows overlap
 * by half. ATTN_ERROR_UNSUPPORTED: the model has no contact regression. Otherwise the statuses of attn_encoder_run. */
ATTN_API attn_status attn_encoder_contacts(attn_encoder *encoder, const attn_encoder_text *protein, float *contacts);
/* Computes the logits [n,V] of the tokens at n places of a text, each while only this place is masked, with the head of
 * masked tokens. places[i] is an index into the text's tokens. In a protein longer than max_length, the window with the
 * place in its middle is read. ATTN_ERROR_UNSUPPORTED: the model has no such head or no mask. ATTN_ERROR_ARGUMENT: a
 * place is out of range. Otherwise the statuses of attn_encoder_run. */
ATTN_API attn_status attn_encoder_logits(attn_encoder *encoder, const attn_encoder_text *text, const int64_t *places,
                                         int64_t n, float *logits);

#ifdef __cplusplus
}
#endif
#endif
