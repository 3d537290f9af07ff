/* SPDX-License-Identifier: MIT */
#ifndef ATTN_IO_JSON_WRITER_H
#define ATTN_IO_JSON_WRITER_H

#include "attn/config.h"

/* Writes JSON into a growing buffer. The text is either one line, or indented by two spaces. Indented text has one line
 * per member, and a list of numbers is on one line. Members are written in the order of the calls. `key` must be NULL
 * inside arrays and at the top level. The first error is kept, so only the status of attn_json_finish must be checked.
 * Numbers keep all their digits. NaN and infinities become null. Text is escaped, and invalid UTF-8 becomes U+FFFD.
 *
 *     attn_json json;
 *     attn_json_begin(&json, context, true);
 *     attn_json_object(&json, NULL);
 *     attn_json_real(&json, "bleu", 31.4);
 *     attn_json_end(&json);
 *     if (attn_json_finish(&json, &text) == ATTN_OK) puts(text);
 *     attn_json_free(&json);
 */
enum { ATTN_JSON_DEPTH = 32 };
typedef struct attn_json {
    attn_context *context;
    attn_bytes out; /* the fields after this line are private */
    bool pretty;
    int depth;
    char closing[ATTN_JSON_DEPTH];
    bool filled[ATTN_JSON_DEPTH + 1];
    attn_status status;
} attn_json;
void attn_json_begin(attn_json *json, attn_context *context, bool pretty);
void attn_json_object(attn_json *json, const char *key);
void attn_json_array(attn_json *json, const char *key);
void attn_json_end(attn_json *json);                                      /* ends the innermost open object or array */
void attn_json_text(attn_json *json, const char *key, const char *value); /* if `value` is NULL, writes null */
void attn_json_int(attn_json *json, const char *key, int64_t value);
void attn_json_real(attn_json *json, const char *key, double value);
void attn_json_bool(attn_json *json, const char *key, bool value);
void attn_json_null(attn_json *json, const char *key);
void attn_json_value(attn_json *json, const char *key, const attn_config_value *value);
void attn_json_config(attn_json *json, const char *key, const attn_config *config);
/* Sets *text to the JSON text, which ends with a newline and a 0 byte. The text is valid until attn_json_free.
 * ATTN_ERROR_MEMORY: there was no memory. ATTN_ERROR_ARGUMENT: begin and end calls do not match, or a key is missing or
 * not allowed. */
attn_status attn_json_finish(attn_json *json, const char **text);
void attn_json_free(attn_json *json);

#endif
