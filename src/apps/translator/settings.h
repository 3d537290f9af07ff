/* SPDX-License-Identifier: MIT
 * settings.h - converts a translator's settings to options of the data functions. */
#ifndef ATTN_APPS_SETTINGS_H
#define ATTN_APPS_SETTINGS_H

#include "attn/trainer.h"
#include "config/keys.h"
#include "data/sentences.h"

extern const attn__keys attn__translator_keys;
extern const attn_trainer attn__translator_trainer;

attn_compat attn__setting_compat(const attn_config *settings);
/* While "auto" is not resolved yet, this is ATTN_VOCAB_WORDS. It is also ATTN_VOCAB_WORDS for older directories, which
 * do not have this setting. */
attn_vocab_kind attn__setting_vocabulary(const attn_config *settings);
/* Returns the options for splitting pairs. They are the same for the training and for later evaluations. */
attn_pairs_split_options attn__setting_split(const attn_config *settings);

#endif
