/* SPDX-License-Identifier: MIT
 * Translations that are made of a lexicon's tokens. */
#include "shortlist.h"

int cli_shortlist(const cli_call *cli, const attn_translator *translator, attn_translator_options *how,
                  attn_lexicon **lexicon)
{
    const char *path = cli_text(cli, "shortlist");
    *lexicon = NULL;
    if (!path[0] && (cli_given(cli, "shortlist_first") || cli_given(cli, "shortlist_best")))
        return cli_fail(CLI_BAD, "--shortlist-first and --shortlist-best say how --shortlist FILE is used: name one");
    if (!path[0])
        return CLI_OK;
    if (attn_translator_lexicon(lexicon, translator, path) != ATTN_OK)
        return cli_failed(cli, NULL);
    how->shortlist = *lexicon;
    how->shortlist_first = cli_int(cli, "shortlist_first");
    how->shortlist_best = cli_int(cli, "shortlist_best");
    return CLI_OK;
}
