/* SPDX-License-Identifier: MIT
 *
 * Determines which translations are doubtful: those whose log-probability per token is lower than that of nearly all
 * translations of sentences that the training has held out.
 */
#include "apps/translator/translator.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/directory.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 500, OF = 50 }; /* one of OF translations of held-out sentences is below the limit */

static const char file_name[] = "low_score.json", key[] = "score_per_token";

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the number of tokens of a translation, including the end token. */
static int64_t count_tokens(const char *tokens)
{
    int64_t n = 1;
    const char *word;
    size_t length;
    while (attn_text_word(&tokens, &word, &length))
        n++;
    return n;
}

static attn_status score_all(attn_translator *t, const attn_pairs *pairs, int64_t n, double *scores)
{
    const char **sources = attn__alloc(t->context, attn__size_mul((size_t)n, sizeof *sources));
    attn_translation *results = attn__alloc_zero(t->context, attn__size_mul((size_t)n, sizeof *results));
    attn_status status = sources && results ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; status == ATTN_OK && i < n; i++)
        sources[i] = attn_pairs_get(pairs, i).source;
    if (status == ATTN_OK)
        status = attn_translator_translate(t, sources, n, &(attn_translator_options){.beam = 1}, results);
    for (int64_t i = 0; status == ATTN_OK && i < n; i++)
        scores[i] = results[i].score / (double)count_tokens(results[i].tokens);
    if (results)
        attn_translations_free(t->context, results, n);
    attn__free(t->context, results);
    attn__free(t->context, sources);
    return status;
}

static attn_status write(attn_context *context, const char *directory, double limit, int64_t n)
{
    char path[ATTN__PATH];
    attn_config *config = NULL;
    attn_status status = attn__path(context, path, directory, file_name);
    if (status == ATTN_OK)
        status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = attn_config_set_real(config, key, limit);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "sentences", n);
    if (status == ATTN_OK)
        status = attn_config_write(config, context, path);
    attn_config_destroy(config);
    return status;
}

attn_status attn__low_score_write(attn_context *context, const char *directory, const attn_pairs *pairs)
{
    int64_t n = attn_pairs_size(pairs) < MOST ? attn_pairs_size(pairs) : MOST;
    double *scores = attn__alloc(context, attn__size_mul((size_t)n, sizeof *scores));
    attn_translator *t = NULL;
    attn_status status = scores ? attn_translator_load(&t, context, directory, NULL) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = score_all(t, pairs, n, scores);
    if (status == ATTN_OK) {
        qsort(scores, (size_t)n, sizeof *scores, ascending);
        status = write(context, directory, scores[n / OF], n);
    }
    attn_translator_destroy(t);
    attn__free(context, scores);
    return status;
}

attn_status attn__low_score_read(double *limit, attn_context *context, const char *directory)
{
    char path[ATTN__PATH];
    attn_config *config = NULL;
    *limit = -INFINITY;
    attn_status status = attn__path(context, path, directory, file_name);
    if (status != ATTN_OK || !attn_file_exists(path))
        return status;
    status = attn_config_read(&config, context, path);
    const attn_config_value *value = status == ATTN_OK ? attn_config_get(config, key) : NULL;
    if (value && (value->type == ATTN_CONFIG_TYPE_REAL || value->type == ATTN_CONFIG_TYPE_INT))
        *limit = value->real;
    else if (status == ATTN_OK)
        status =
            attn__fail(context, ATTN_ERROR_FORMAT, "%s: \"%s\" is %s", path, key, value ? "not a number" : "missing");
    attn_config_destroy(config);
    return status;
}
