/* SPDX-License-Identifier: MIT
 *
 * Writes a MarianMT model in Hugging Face's form: the parameters with the names of that form, and the other files.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/identify.h"

#include "data/subword.h"
#include "data/vocab.h"
#include "io/tensors/weights.h"
#include "io/json_writer.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------- other files */

static attn_status copy_files(attn_context *context, const char *directory, const char *to)
{
    static const char *const names[] = {
        "config.json", "generation_config.json", "vocab.json",        "target_vocab.json",       "source.spm",
        "target.spm",  "tokenizer_config.json",  "added_tokens.json", "special_tokens_map.json", NULL};
    attn_status status = ATTN_OK;
    for (int i = 0; names[i] && status == ATTN_OK; i++)
        status = attn__file_copy(context, directory, names[i], to);
    return status;
}

static attn_status write_json(attn_json *json, const char *directory, const char *name)
{
    char path[ATTN__PATH];
    const char *text;
    attn_json_end(json);
    attn_status status = attn_json_finish(json, &text);
    if (status == ATTN_OK)
        status = attn__path(json->context, path, directory, name);
    if (status == ATTN_OK)
        status = attn_file_write(json->context, path, text, strlen(text));
    attn_json_free(json);
    return status;
}

/* Reports whether a key belongs to generation_config.json, where transformers reads the search settings. *both
 * becomes true if the key also belongs to config.json. */
static bool is_of_search(const char *key, bool *both)
{
    static const char *const keys[] = {"bad_words_ids",     "length_penalty", "max_length",
                                       "max_length_factor", "num_beams",      "renormalize_logits"};
    static const char *const shared[] = {"decoder_start_token_id", "eos_token_id", "forced_eos_token_id",
                                         "pad_token_id"};
    const size_t length = strcspn(key, ".");
    *both = false;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        *both = *both || strcmp(key, shared[i]) == 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == length && strncmp(key, keys[i], length) == 0)
            return true;
    return *both;
}

/* Writes the banned tokens as a list of lists. In the config, each list has a key of its own: "bad_words_ids.0" and
 * so on. */
static void write_lists(attn_json *json, const attn_config *config)
{
    attn_json_array(json, "bad_words_ids");
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        if (strncmp(key, "bad_words_ids.", strlen("bad_words_ids.")) == 0)
            attn_json_value(json, NULL, attn_config_get(config, key));
    }
    attn_json_end(json);
}

static attn_status write_config(attn_context *context, const attn_config *config, bool search, const char *to)
{
    static const char *const classes[] = {"MarianMTModel"};
    attn_json json;
    attn_json_begin(&json, context, true);
    attn_json_object(&json, NULL);
    if (!search)
        attn_json_value(&json, "architectures",
                        &(attn_config_value){.type = ATTN_CONFIG_TYPE_TEXTS, .n = 1, .texts = classes});
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        bool both;
        if ((is_of_search(key, &both) == search || both) && !strchr(key, '.'))
            attn_json_value(&json, key, attn_config_get(config, key));
    }
    if (search)
        write_lists(&json, config);
    return write_json(&json, to, search ? "generation_config.json" : "config.json");
}

static attn_status write_vocabulary(attn_context *context, const attn_vocab *vocab, const char *to, const char *name)
{
    attn_json json;
    attn_json_begin(&json, context, true);
    attn_json_object(&json, NULL);
    for (int32_t i = 0; i < attn_vocab_size(vocab); i++)
        attn_json_int(&json, attn_vocab_token(vocab, i), i);
    return write_json(&json, to, name);
}

static attn_status write_pieces(attn_context *context, const attn_vocab *vocab, const char *to, const char *name)
{
    char path[ATTN__PATH];
    size_t size;
    const char *bytes = attn__subword_bytes(vocab->subword, &size);
    attn_status status = attn__path(context, path, to, name);
    return status == ATTN_OK ? attn_file_write(context, path, bytes, size) : status;
}

static attn_status write_tokenizer(attn_context *context, bool separate, const char *to)
{
    attn_json json;
    attn_json_begin(&json, context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "tokenizer_class", "MarianTokenizer");
    attn_json_bool(&json, "separate_vocabs", separate);
    return write_json(&json, to, "tokenizer_config.json");
}

static bool are_same(const attn_vocab *a, const attn_vocab *b)
{
    bool same = attn_vocab_size(a) == attn_vocab_size(b);
    for (int32_t i = 0; same && i < attn_vocab_size(a); i++)
        same = strcmp(attn_vocab_token(a, i), attn_vocab_token(b, i)) == 0;
    return same;
}

attn_status attn__marian_files(attn_context *context, const attn_config *config, const attn_vocab *source,
                               const attn_vocab *target, const char *directory, const char *to)
{
    attn__identity is;
    attn_status status = attn__identify(&is, context, directory);
    bool native = is.form == ATTN__FORM_MARIAN;
    attn__identity_end(&is);
    if (status != ATTN_OK || !native)
        return status == ATTN_OK ? copy_files(context, directory, to) : status;
    bool separate = !are_same(source, target);
    status = write_config(context, config, false, to);
    if (status == ATTN_OK)
        status = write_config(context, config, true, to);
    if (status == ATTN_OK)
        status = write_vocabulary(context, source, to, "vocab.json");
    if (status == ATTN_OK && separate)
        status = write_vocabulary(context, target, to, "target_vocab.json");
    if (status == ATTN_OK)
        status = write_tokenizer(context, separate, to);
    if (status == ATTN_OK)
        status = write_pieces(context, source, to, "source.spm");
    return status == ATTN_OK ? write_pieces(context, target, to, "target.spm") : status;
}

/* ---------------------------------------------------------------------------------------------- weights */

attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path)
{
    bool shared = strcmp(attn_config_text(config, "tie", ""), "all") == 0;
    attn_named_list list = {.context = context, .owns = true};
    attn_name_map *names;
    attn_status status =
        attn_name_map_read(&names, context, shared ? "to-marian-huggingface" : "to-marian-huggingface-two");
    attn_weights_options how = {.names = names, .keep_types = true};
    if (status == ATTN_OK)
        status = attn__weights_named(&list, parameters, path, &how);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    attn_name_map_destroy(names);
    return status;
}
