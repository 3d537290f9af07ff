/* SPDX-License-Identifier: MIT
 * Opens, learns and uses SentencePiece models with the context's errors and allocator. */
#include "data/subword.h"

#include "base/context.h"
#include "base/utf8.h"
#include "data/sentencepiece.h"

#include <inttypes.h>
#include <string.h>

struct attn__subword {
    attn_context *context;
    attn__spm *spm;
    char *bytes;
    size_t size;
};

#ifdef ATTN_HAVE_SENTENCEPIECE

static attn_status status_of(attn_context *context, attn__spm_result result, attn_status refused, const char *name,
                             const char *message)
{
    if (result == ATTN__SPM_OK)
        return ATTN_OK;
    if (result == ATTN__SPM_NO_MEMORY)
        return attn__fail(context, ATTN_ERROR_MEMORY, "%s: SentencePiece ran out of memory", name);
    return attn__fail(context, refused, "%s: SentencePiece says: %s", name, message);
}

static attn_status open_bytes(attn__subword *s, const char *name)
{
    char message[ATTN__SPM_MESSAGE] = "";
    attn_status status = attn__subword_check(s->context, s->bytes, s->size, name);
    if (status != ATTN_OK)
        return status;
    return status_of(s->context, attn__spm_open(&s->spm, s->bytes, s->size, message), ATTN_ERROR_FORMAT, name, message);
}

attn_status attn__subword_parse(attn__subword **subword, attn_context *context, const char *bytes, size_t size,
                                const char *name)
{
    *subword = NULL;
    attn__subword *s = attn__alloc_zero(context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    s->context = context;
    s->size = size;
    s->bytes = attn__alloc(context, size ? size : 1);
    if (s->bytes)
        memcpy(s->bytes, bytes, size);
    attn_status status = s->bytes ? open_bytes(s, name) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        *subword = s;
    else
        attn__subword_destroy(s);
    return status;
}

/* A copy of bytes that the library passed to a callback. The copy is made with the context's allocator. */
typedef struct kept {
    attn_context *context;
    char *bytes;
    size_t size;
} kept;

static void keep(void *user, const char *bytes, size_t size)
{
    kept *k = user;
    k->bytes = attn__alloc(k->context, attn__size_add(size, 1));
    if (!k->bytes)
        return;
    memcpy(k->bytes, bytes, size);
    k->bytes[size] = '\0';
    k->size = size;
}

attn_status attn__subword_train(attn__subword **subword, attn_context *context, const char *const *texts, int64_t n,
                                const char *kind, int64_t size, double coverage)
{
    char message[ATTN__SPM_MESSAGE] = "";
    kept model = {.context = context};
    int64_t needed = 0;
    *subword = NULL;
    attn__spm_result result = attn__spm_train(texts, n, kind, size, coverage, &needed, keep, &model, message);
    if (result == ATTN__SPM_REFUSED && needed > 0)
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "vocabulary: %" PRId64
            " pieces are too few for the characters of the texts: set vocabulary_size to at least %" PRId64
            ", or character_coverage below %g",
            size, needed, coverage > 0 ? coverage : 0.9995);
    attn_status status = status_of(context, result, ATTN_ERROR_ARGUMENT, "vocabulary", message);
    if (status == ATTN_OK)
        status = model.bytes ? attn__subword_parse(subword, context, model.bytes, model.size, "vocabulary")
                             : ATTN_ERROR_MEMORY;
    attn__free(context, model.bytes);
    return status;
}

void attn__subword_destroy(attn__subword *subword)
{
    if (!subword)
        return;
    attn__spm_close(subword->spm);
    attn__free(subword->context, subword->bytes);
    attn__free(subword->context, subword);
}

int64_t attn__subword_size(const attn__subword *subword)
{
    return attn__spm_size(subword->spm);
}

const char *attn__subword_piece(const attn__subword *subword, int64_t id, size_t *length, char *kind)
{
    return attn__spm_piece(subword->spm, id, length, kind);
}

attn_status attn__subword_encode(const attn__subword *subword, const char *text, size_t length,
                                 attn__subword_take *take, void *user)
{
    char message[ATTN__SPM_MESSAGE] = "";
    size_t bad = attn__utf8_first_invalid(text, length);
    if (bad != SIZE_MAX)
        return attn__fail(subword->context, ATTN_ERROR_FORMAT, "byte %zu: invalid UTF-8", bad);
    return status_of(subword->context, attn__spm_encode(subword->spm, text, length, take, user, message),
                     ATTN_ERROR_FORMAT, "a sentence", message);
}

attn_status attn__subword_decode(const attn__subword *subword, const char *const *pieces, const size_t *lengths,
                                 int64_t n, char **text, size_t *size)
{
    char message[ATTN__SPM_MESSAGE] = "";
    kept k = {.context = subword->context};
    attn_status status =
        status_of(subword->context, attn__spm_decode(subword->spm, pieces, lengths, n, keep, &k, message),
                  ATTN_ERROR_FORMAT, "a translation", message);
    *text = k.bytes;
    *size = k.size;
    return status != ATTN_OK ? status : k.bytes ? ATTN_OK : ATTN_ERROR_MEMORY;
}

#else

static attn_status absent(attn_context *context)
{
    return attn__fail(
        context, ATTN_ERROR_UNSUPPORTED,
        "subwords need SentencePiece, which this build of attn does not have: install libsentencepiece-dev and build "
        "again, or use vocabulary=word");
}

attn_status attn__subword_parse(attn__subword **subword, attn_context *context, const char *bytes, size_t size,
                                const char *name)
{
    (void)bytes, (void)size, (void)name;
    *subword = NULL;
    return absent(context);
}

attn_status attn__subword_train(attn__subword **subword, attn_context *context, const char *const *texts, int64_t n,
                                const char *kind, int64_t size, double coverage)
{
    (void)texts, (void)n, (void)kind, (void)size, (void)coverage;
    *subword = NULL;
    return absent(context);
}

/* Does nothing, because it is never called with a model: without the library, no model can be made. */
void attn__subword_destroy(attn__subword *subword)
{
    (void)subword;
}

int64_t attn__subword_size(const attn__subword *subword)
{
    (void)subword;
    return 0;
}

const char *attn__subword_piece(const attn__subword *subword, int64_t id, size_t *length, char *kind)
{
    (void)subword, (void)id;
    *length = 0;
    *kind = 'u';
    return "";
}

attn_status attn__subword_encode(const attn__subword *subword, const char *text, size_t length,
                                 attn__subword_take *take, void *user)
{
    (void)text, (void)length, (void)take, (void)user;
    return absent(subword->context);
}

attn_status attn__subword_decode(const attn__subword *subword, const char *const *pieces, const size_t *lengths,
                                 int64_t n, char **text, size_t *size)
{
    (void)pieces, (void)lengths, (void)n;
    *text = NULL;
    *size = 0;
    return absent(subword->context);
}

#endif

const char *attn__subword_bytes(const attn__subword *subword, size_t *size)
{
    *size = subword->size;
    return subword->bytes;
}
