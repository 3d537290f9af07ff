/* SPDX-License-Identifier: MIT
 *
 * shortlist.h - options that choose among translations, and options that restrict them to the tokens of a lexicon.
 */
#ifndef CLI_SHORTLIST_H
#define CLI_SHORTLIST_H

#include "command.h"
#include "apps/translator/translator.h"

#define CLI_BEAM                                                                                                       \
    CLI_INT(                                                                                                           \
        "beam", 'b', "0", 0, 64,                                                                                       \
        "hypotheses kept while searching; 1 is greedy, and 0 takes as many as a published model's files say, else 1")

#define CLI_LENGTH_PENALTY                                                                                             \
    CLI_REAL("length_penalty", "0", 0, 10, "how much the search favours longer translations, as in attn translate")

#define CLI_MBR                                                                                                        \
    CLI_FLAG("mbr", 0,                                                                                                 \
             "choose the translation of the beam that is most like all of them (minimum Bayes risk, by chrF) instead " \
             "of the "                                                                                                 \
             "likeliest; wide beams gain most")

#define CLI_SHORTLIST                                                                                                  \
    CLI_TEXT(                                                                                                          \
        "shortlist", 0, "FILE", "",                                                                                    \
        "a lexicon as attn align writes it: translations are made of the tokens that it has for those of the "         \
        "sentence, and of the most frequent tokens of the vocabulary; \"off\": without the one of the model's files"), \
        CLI_INT("shortlist_first", 0, "100", 1, 1 << 30, "with --shortlist: how many of the most frequent tokens"),    \
        CLI_INT("shortlist_best", 0, "100", 1, 1 << 30,                                                                \
                "with --shortlist: how many of the likeliest tokens for each token of the sentence")

/* Prints a note if the width comes from the model's settings and is above 1. */
int64_t cli_beam(const cli_call *cli, const attn_translator_search *own);

/* Fills the fields of `how` from the options. *lexicon is the lexicon, which is destroyed before the translator, or
 * NULL. Returns an exit code. Errors have been printed. */
int cli_shortlist(const cli_call *cli, const attn_translator *translator, attn_translator_options *how,
                  attn_lexicon **lexicon);

#endif
