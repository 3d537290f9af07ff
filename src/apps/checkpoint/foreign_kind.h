/* SPDX-License-Identifier: MIT
 *
 * foreign_kind.h - recognizes models of other programs that attn cannot load, to name them in an error.
 */
#ifndef ATTN_APPS_FOREIGN_KIND_H
#define ATTN_APPS_FOREIGN_KIND_H

#include "attn/io.h"

/* Refuses a path that is a model of translation, or of another kind of text, in the form of another program: a zip
 * archive, a package of Argos Translate, a model of CTranslate2 or bergamot, or a model of Hugging Face with a
 * model_type other than "marian". ATTN_ERROR_UNSUPPORTED: the message names the program, and what attn loads. */
attn_status attn__foreign_translator_refuse(attn_context *context, const char *path);

/* Fails because settings name no architecture of attn. If they are of Hugging Face, the error names their model_type and
 * the types that attn loads. */
attn_status attn__foreign_type_refuse(attn_context *context, const char *settings, const attn_config *config);

#endif
