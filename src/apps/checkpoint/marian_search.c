/* SPDX-License-Identifier: MIT
 *
 * Converts generation_config.json of a MarianMT model to search options. The settings mean the same as for generate()
 * in Hugging Face transformers.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/directory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double number_of(const attn_config *how, const char *key, double otherwise)
{
    const attn_config_value *value = attn_config_get(how, key);
    return value && value->type == ATTN_CONFIG_TYPE_INT    ? (double)value->integer
           : value && value->type == ATTN_CONFIG_TYPE_REAL ? value->real
                                                           : otherwise;
}

/* -------------------------------------------------------------------------------------- banned tokens */

static attn_status check_token(const attn_translator *t, int64_t token, const char *key, const char *path)
{
    if (token >= 0 && token <= INT32_MAX)
        return ATTN_OK;
    return attn__fail(t->context, ATTN_ERROR_FORMAT,
                      "%s: \"%s\" holds %lld, which is not a token's id; expected 0 to 2147483647", path, key,
                      (long long)token);
}

static attn_status ban(attn_translator *t, int64_t token, const char *key, const char *path)
{
    attn_status status = check_token(t, token, key, path);
    if (status != ATTN_OK)
        return status;
    int32_t *more = attn__grow(t->context, t->search.banned, t->search.nbanned, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    t->search.banned = more;
    more[t->search.nbanned++] = (int32_t)token;
    return ATTN_OK;
}

static attn_status ban_sequence(attn_translator *t, const attn_config_value *list, const char *key, const char *path)
{
    attn_token_sequence *more = attn__grow(t->context, t->search.sequences, t->search.nsequences, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    t->search.sequences = more;
    int32_t *ids = attn__alloc(t->context, attn__size_mul((size_t)list->n, sizeof *ids));
    if (!ids)
        return ATTN_ERROR_MEMORY;
    more[t->search.nsequences++] = (attn_token_sequence){ids, list->n};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < list->n && status == ATTN_OK; i++) {
        status = check_token(t, list->integers[i], key, path);
        ids[i] = (int32_t)list->integers[i];
    }
    return status;
}

/* As in transformers, a list that has only the end token is ignored. */
static attn_status read_bad_words(attn_translator *t, const attn_config *how, const char *path)
{
    const int32_t end = attn_vocab_special(t->target, ATTN_SPECIAL_EOS);
    char key[48];
    const attn_config_value *value = attn_config_get(how, "bad_words_ids");
    attn_status status = ATTN_OK;
    if (value && value->type != ATTN_CONFIG_TYPE_NULL && !(value->type == ATTN_CONFIG_TYPE_INTS && value->n == 0))
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"bad_words_ids\" is not a list of lists of tokens",
                          path);
    for (int n = 0; status == ATTN_OK; n++) {
        snprintf(key, sizeof key, "bad_words_ids.%d", n);
        value = attn_config_get(how, key);
        if (!value)
            break;
        if (value->type != ATTN_CONFIG_TYPE_INTS || value->n < 1)
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is not a list of one token or more", path,
                              key);
        if (value->n > 1)
            status = ban_sequence(t, value, key, path);
        else if (value->integers[0] != end)
            status = ban(t, value->integers[0], key, path);
    }
    return status;
}

/* Negative values are not tokens and are skipped. */
static attn_status read_suppressed(attn_translator *t, const attn_config *how, const char *path)
{
    static const char key[] = "suppress_tokens";
    const attn_config_value *value = attn_config_get(how, key);
    attn_status status = ATTN_OK;
    if (!value || value->type == ATTN_CONFIG_TYPE_NULL)
        return ATTN_OK;
    if (value->type != ATTN_CONFIG_TYPE_INTS)
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is not a list of tokens", path, key);
    for (int64_t i = 0; i < value->n && status == ATTN_OK; i++)
        status = value->integers[i] < 0 ? ATTN_OK : ban(t, value->integers[i], key, path);
    return status;
}

/* --------------------------------------------------------------------------------------------- checks */

/* Reports whether a value has no effect: it is null or equals `neutral`. */
static bool is_neutral(const attn_config_value *value, double neutral)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_NULL:
        return true;
    case ATTN_CONFIG_TYPE_BOOL:
        return (value->boolean ? 1 : 0) == neutral;
    case ATTN_CONFIG_TYPE_INT:
        return (double)value->integer == neutral;
    case ATTN_CONFIG_TYPE_REAL:
        return value->real == neutral;
    case ATTN_CONFIG_TYPE_INTS:
        return value->n == 0 || (value->n == 1 && (double)value->integers[0] == neutral);
    default:
        return false;
    }
}

/* Reports whether entry i of the config can change translations: it is a member of the list or object `key`, or it
 * is `key` itself with a value that has an effect. */
static bool changes(const attn_config *how, int64_t i, const char *key, double neutral)
{
    const char *name = attn_config_key(how, i);
    size_t n = strlen(key);
    return strncmp(name, key, n) == 0 &&
           (name[n] == '.' || (!name[n] && !is_neutral(attn_config_get(how, name), neutral)));
}

/* Refuses settings that would change translations but are not supported. A setting with its neutral value is
 * accepted. If the neutral value is NAN, only null is accepted. */
static attn_status check_rest(const attn_translator *t, const attn_config *how, const char *path)
{
    const double eos = attn_vocab_special(t->target, ATTN_SPECIAL_EOS);
    const double start = attn_vocab_special(t->target, ATTN_SPECIAL_BOS);
    const struct {
        const char *key;
        double neutral;
    } keys[] = {{"encoder_repetition_penalty", 1},
                {"encoder_no_repeat_ngram_size", 0},
                {"diversity_penalty", 0},
                {"num_beam_groups", 1},
                {"forced_bos_token_id", -1},
                {"forced_eos_token_id", eos},
                {"forced_decoder_ids", (double)NAN},
                {"eos_token_id", eos},
                {"decoder_start_token_id", start},
                {"begin_suppress_tokens", -1},
                {"exponential_decay_length_penalty", (double)NAN},
                {"sequence_bias", (double)NAN},
                {"watermarking_config", (double)NAN},
                {"max_time", (double)NAN},
                {"stop_strings", (double)NAN},
                {"constraints", (double)NAN},
                {"force_words_ids", (double)NAN},
                {"dola_layers", (double)NAN},
                {"guidance_scale", 1},
                {"penalty_alpha", 0},
                {"token_healing", 0}};
    for (int64_t i = 0; i < attn_config_size(how); i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (!changes(how, i, keys[k].key, keys[k].neutral))
                continue;
            if (isnan(keys[k].neutral))
                return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED, "%s: the setting \"%s\" is not supported", path,
                                  keys[k].key);
            return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" is supported only with the value %g",
                              path, keys[k].key, keys[k].neutral);
        }
    }
    return ATTN_OK;
}

/* Checks that decoding starts with <pad>. If "decoder_start_token_id" is missing, "bos_token_id" is checked, because
 * transformers then starts with that token. */
static attn_status check_start(const attn_translator *t, const attn_config *how, const char *path)
{
    const int32_t start = attn_vocab_special(t->target, ATTN_SPECIAL_BOS);
    const attn_config_value *given = attn_config_get(how, "decoder_start_token_id");
    double bos = number_of(how, "bos_token_id", start);
    if (bos == start || (given && given->type != ATTN_CONFIG_TYPE_NULL))
        return ATTN_OK;
    return attn__fail(
        t->context, ATTN_ERROR_UNSUPPORTED,
        "%s: \"decoder_start_token_id\" is missing, so decoding would start with \"bos_token_id\", %g; only a start "
        "with <pad>, %d, is supported",
        path, bos, (int)start);
}

/* Checks that each numeric setting is a number that is not below its minimum. A null value counts as missing. */
static attn_status check_numbers(const attn_translator *t, const attn_config *how, const char *path)
{
    static const struct {
        const char *key;
        double min;
        bool whole;
    } keys[] = {{"length_penalty", -1e9, false},   {"max_length", 1, true},
                {"max_new_tokens", 1, true},       {"min_length", 0, true},
                {"min_new_tokens", 0, true},       {"num_beams", 1, true},
                {"no_repeat_ngram_size", 0, true}, {"repetition_penalty", 1e-6, false},
                {"max_length_factor", 0, false}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const attn_config_value *value = attn_config_get(how, keys[i].key);
        if (!value || value->type == ATTN_CONFIG_TYPE_NULL)
            continue;
        double x = number_of(how, keys[i].key, (double)NAN);
        if (x >= keys[i].min && x <= 1e9 && (!keys[i].whole || value->type == ATTN_CONFIG_TYPE_INT))
            continue;
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is not a number%s", path, keys[i].key,
                          !keys[i].whole    ? keys[i].min < 0 ? "" : " above 0"
                          : keys[i].min > 0 ? " of at least 1"
                                            : " of at least 0");
    }
    return ATTN_OK;
}

static attn_status read_flag(const attn_translator *t, const attn_config *how, const char *path, const char *key,
                             bool *flag)
{
    const attn_config_value *value = attn_config_get(how, key);
    *flag = value && value->type == ATTN_CONFIG_TYPE_BOOL && value->boolean;
    return !value || value->type == ATTN_CONFIG_TYPE_NULL || value->type == ATTN_CONFIG_TYPE_BOOL
               ? ATTN_OK
               : attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is neither true nor false", path, key);
}

/* ------------------------------------------------------------------------------------------- settings */

/* As in transformers, max_length includes the start token, but max_new_tokens does not. */
static attn_status set_lengths(attn_translator *t, const attn_config *how, const char *path)
{
    double longest = number_of(how, "max_length", (double)t->max_tokens);
    longest = number_of(how, "max_new_tokens", longest - 1) + 1;
    if (longest == 1)
        return attn__fail(t->context, ATTN_ERROR_FORMAT,
                          "%s: \"max_length\" is 1, but the token that decoding starts with counts too; give 2 or more",
                          path);
    t->max_output = longest >= 2 && longest - 1 <= (double)t->max_tokens ? (int64_t)longest - 1 : t->max_tokens;
    double shortest = number_of(how, "min_new_tokens", 0);
    shortest = shortest > 0 ? shortest + 1 : number_of(how, "min_length", 0);
    t->search.min_len = (int64_t)shortest;
    /* "max_length_factor" is attn's own key, which holds a setting of decoder.yml */
    t->search.length_factor = number_of(how, "max_length_factor", 0);
    return ATTN_OK;
}

static attn_status set_search(attn_translator *t, const attn_config *how, const char *path)
{
    attn_status status = check_rest(t, how, path);
    if (status == ATTN_OK)
        status = check_start(t, how, path);
    if (status == ATTN_OK)
        status = check_numbers(t, how, path);
    if (status == ATTN_OK)
        status = read_flag(t, how, path, "renormalize_logits", &t->search.renormalize);
    if (status == ATTN_OK)
        status = read_flag(t, how, path, "do_sample", &t->search.sampled);
    if (status != ATTN_OK)
        return status;
    const attn_config_value *early = attn_config_get(how, "early_stopping");
    t->search.rule = ATTN_LENGTH_POWER;
    t->search.stopping = early && early->type == ATTN_CONFIG_TYPE_TEXT                     ? ATTN_STOP_NEVER
                         : early && early->type == ATTN_CONFIG_TYPE_BOOL && early->boolean ? ATTN_STOP_FULL
                                                                                           : ATTN_STOP_LIKELY;
    t->search.beam = (int64_t)number_of(how, "num_beams", 1);
    t->search.length_penalty = number_of(how, "length_penalty", 1);
    t->search.repetition_penalty = number_of(how, "repetition_penalty", 1);
    t->search.no_repeat_ngram = (int64_t)number_of(how, "no_repeat_ngram_size", 0);
    /* the setting is the id of the end token, or a list that contains only this id */
    const attn_config_value *forced = attn_config_get(how, "forced_eos_token_id");
    t->search.force_end = forced && (forced->type == ATTN_CONFIG_TYPE_INT || forced->n > 0);
    status = set_lengths(t, how, path);
    if (status == ATTN_OK)
        status = read_bad_words(t, how, path);
    return status == ATTN_OK ? read_suppressed(t, how, path) : status;
}

/* Reads the search settings from generation_config.json. If this file is missing, reads them from config.json. */
attn_status attn__marian_search(attn_translator *t, const char *directory)
{
    char path[ATTN__PATH];
    attn_config *how = NULL;
    attn_status status = attn__path(t->context, path, directory, "generation_config.json");
    if (status == ATTN_OK && attn_file_exists(path))
        status = attn_config_read(&how, t->context, path);
    else if (status == ATTN_OK)
        status = attn__path(t->context, path, directory, "config.json");
    if (status == ATTN_OK)
        status = set_search(t, how ? how : t->config, path);
    attn_config_destroy(how);
    return status;
}
