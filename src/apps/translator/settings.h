/* SPDX-License-Identifier: MIT
 * settings.h - converts a translator's settings to options of the data functions. */
#ifndef ATTN_APPS_SETTINGS_H
#define ATTN_APPS_SETTINGS_H

#include "attn/trainer.h"
#include "base/keys.h"
#include "data/sentences.h"

extern const attn__keys attn__translator_keys;
extern const attn_trainer attn__translator_trainer;

attn_compat attn__setting_compat(const attn_config *settings);
/* Returns the kind of vocabulary. It is ATTN_VOCAB_WORDS while "auto" is unresolved, and for older directories,
 * which lack this setting. */
attn_vocab_kind attn__setting_vocabulary(const attn_config *settings);
/* Returns how the pairs are split, both in the training and later. */
attn_pairs_split_options attn__setting_split(const attn_config *settings);

#endif
