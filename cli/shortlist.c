/* SPDX-License-Identifier: MIT
 *
 * Reads the options that restrict translations to the tokens of a lexicon.
 */
#include "shortlist.h"
#include "apps/translator/translator.h"

#include <string.h>

int64_t cli_beam(const cli_call *cli, const attn_translator_search *own)
{
    int64_t beam = cli_int(cli, "beam"), its = own->options.beam;
    if (beam == 0 && its > 1)
        cli_note(cli, "note: the search keeps %lld hypotheses, as the model's files say; --beam 1 is faster",
                 (long long)its);
    return beam > 0 ? beam : its;
}

int cli_shortlist(const cli_call *cli, const attn_translator *translator, attn_translator_options *how,
                  attn_lexicon **lexicon)
{
    attn_translator_search own = attn_translator_own_search(translator);
    const char *path = cli_given(cli, "shortlist") || !own.shortlist ? cli_text(cli, "shortlist") : own.shortlist;
    bool its = own.shortlist && path == own.shortlist;
    *lexicon = NULL;
    if (strcmp(path, "off") == 0)
        return CLI_OK;
    if (its)
        cli_note(
            cli,
            "note: translations use only the tokens of %s, as the model's files say; --shortlist off allows all tokens",
            path);
    if (!path[0] && (cli_given(cli, "shortlist_first") || cli_given(cli, "shortlist_best")))
        return cli_fail(CLI_BAD, "--shortlist-first and --shortlist-best need --shortlist FILE");
    if (!path[0])
        return CLI_OK;
    if (attn_translator_lexicon(lexicon, translator, path) != ATTN_OK)
        return cli_failed(cli, NULL);
    how->shortlist = *lexicon;
    how->shortlist_first =
        its && !cli_given(cli, "shortlist_first") ? own.options.shortlist_first : cli_int(cli, "shortlist_first");
    how->shortlist_best =
        its && !cli_given(cli, "shortlist_best") ? own.options.shortlist_best : cli_int(cli, "shortlist_best");
    return CLI_OK;
}
