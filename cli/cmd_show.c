/* SPDX-License-Identifier: MIT
 * attn show: draws the attention of a model. */
#include "classified.h"
#include "commands.h"
#include "drawing.h"
#include "family.h"
#include "foreign.h"
#include "picture.h"
#include "shortlist.h"
#include "show.h"

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "FILE", "attention.png",
               "the picture: its ending selects the kind; .png, .svg, .pdf, or .html for a page to explore"),
    CLI_TEXT(
        "kinds", 'k', "LIST", "",
        "which attentions, with commas between: encoder,decoder,cross of a translator; rows,columns of an alignment"),
    CLI_FLAG("words", 'w',
             "of a translator with a vocabulary of pieces: a row and a column for each word instead of each piece"),
    CLI_BEAM,
    CLI_LENGTH_PENALTY,
    CLI_SHORTLIST,
    CLI_FLAG("prefix", 0,
             "SENTENCE may be followed by a tab and a forced prefix, the words that begin its translation"),
    CLI_INT("layer", 0, "0", 0, 1000,
            "which layer or block of a model of pictures or of alignments, from 1; 0: all (vit: their rollout)"),
    CLI_INT("head", 0, "0", 0, 1000, "of a picture: which head of the layer, from 1; 0: all"),
    CLI_TEXT("query", 0, "ROW,COL", "",
             "of a picture: row and column of the query, a patch or pixel, counted from 1,1 in the grid of the layer "
             "(without --layer, of the first layer); default: the class token, or the middle"),
    CLI_REAL("threshold", "0.7", 0, 1, "of a detector: the least score of a box that gets a panel"),
    CLI_DETECTED_SIZE,
    CLI_CLASSIFIED_OPTIONS,
    CLI_INT("channel", 0, "0", 0, 3, "of a model that draws images: which channel is predicted, from 1; 0: the last"),
    CLI_INT("frame", 0, "0", 0, 4096,
            "of a model that draws videos: which frame is predicted, from 1; 0: the last that VIDEO has"),
    CLI_CLIP_OPTION,
    CLI_CHOICE(
        "colours", cli_colour_names, "heat",
        "colours of heatmaps; diverging: blue below 0 and red above. A page has blue for blues and red for the others"),
    CLI_TEXT("range", 0, "LOW,HIGH", "",
             "of heatmaps: the values at the ends of the colour scale, as 0,1, so that several pictures have the same "
             "scale; default: 0, or the least value if it is below 0, and the greatest"),
    CLI_TEXT("title", 't', "TEXT", "", "of an array: title above the picture; default: the file and its sizes"),
    CLI_TEXT("x_label", 0, "TEXT", "", "of an array: label of its columns; default: Keys"),
    CLI_TEXT("y_label", 0, "TEXT", "", "of an array: label of its rows; default: Queries"),
    CLI_NAMES_LONG,
    CLI_FAMILY_CHOICE_OPTIONS("32"),
};

static const char *const usage[] = {
    "DIR SENTENCE [-o FILE]", "DIR IMAGE [--layer N] [--head N] [--query ROW,COL] [--channel N] [-o FILE]",
    "MODEL ALIGNMENT [--kinds rows] [--layer N] [-o FILE]", "WEIGHTS.npy [-o FILE]", NULL};

static const char description[] =
    "A translator: translates SENTENCE, as attn translate does with the same --beam, --length-penalty, --prefix and "
    "--shortlist, and draws what each word attends to: a row of panels for each layer, a panel for each head, all in "
    "one colour scale. \"encoder\" is how the words of SENTENCE attend to each other, \"decoder\" how those of the "
    "translation do, \"cross\" how the translation attends to SENTENCE. Models with a single attention have \"cross\" "
    "only. With --words the pieces of a word are joined: as a query it has the mean of their weights, as a key their "
    "sum.\n"
    "\n"
    "A classifier: draws IMAGE in grey, and in red over it how much one position attends to each part. There is a "
    "panel for each layer, the mean of its heads; with --layer there is a panel for each head of that layer. vit: the "
    "class token or a patch, and without --layer attention rollout over all layers (Abnar and Zuidema 2020). sasa: a "
    "pixel's window. nonlocal: the keys of a position. axial, axial-image: a patch's row and column. A page (.html) "
    "holds all layers and heads; point at the place whose attention you want to see.\n"
    "\n"
    "A detector: draws a panel for each box that it finds, framed, with the weights of its query over the picture in "
    "the decoder's last block, the mean of its heads, or in those of --layer and --head; with --query the weights of "
    "one place in the blocks of the encoder. A page (.html) holds the encoder's weights of all places.\n"
    "\n"
    "A model that draws images or videos (VIDEO as of attn complete): brings IMAGE to its size and draws what it "
    "attends to where it predicts one number, the pixel --query of the plane --channel: a panel for each block, the "
    "mean of its heads; with --layer a panel for each head of that block. \"exterior\" blocks look at the planes "
    "before this one, \"outer\" ones at the rows above (the query is the pixel above, whose result they give to the "
    "row below), \"inner\" ones at the pixels to the left; each along its row or down its column.\n"
    "\n"
    "A language model of alignments (a directory or a published checkpoint): draws a panel for each head. \"rows\" is "
    "how the columns of ALIGNMENT attend to each other, one map for all its sequences; contacts show there. "
    "\"columns\" is how its sequences attend to each other, the mean over the columns.\n"
    "\n"
    "An array of weights (.npy), as attn run --output weights=weights.npy or NumPy writes it: draws a panel for each "
    "head. The last two axes are queries and keys, the one before them heads, and each index of those before is a row "
    "of panels. Values that are not finite are drawn as not there.";

static const char *const examples[] = {
    "attn show out/demo \"Is the door open?\" --words",
    "attn show en-fr \"I'm home.\" --kinds cross -o home.svg",
    "attn show en-fr \"I'm home.\" -o home.html",
    "attn show clothes shirt.png --layer 2 --query 3,4 -o shirt.svg",
    "attn show clothes shirt.png -o shirt.html",
    "attn show shapes street.png --threshold 0.5 -o boxes.png",
    "attn show drawn shirt.png --query 6,5 -o prediction.png",
    "attn show msa1b family.a3m --kinds rows --layer 12 -o rows.html",
    "attn show weights.npy -o weights.png",
    "attn show P.npy --x-label Column --y-label Position --colours blues -o encoding.png",
    NULL,
};

enum { SENTENCE = 1, IMAGE = 2, ALIGNMENT = 4, ARRAY = 8, DRAWN = 16, OBJECTS = 32 };

/* Draws a model by `show`, after refusing options that its kind does not have. */
static int show_as(cli_call *cli, unsigned shown, const char *what, int (*show)(cli_call *cli))
{
    static const struct read {
        const char *option;
        unsigned by;
    } reads[] = {{"kinds", SENTENCE | ALIGNMENT},
                 {"words", SENTENCE},
                 {"beam", SENTENCE},
                 {"length_penalty", SENTENCE},
                 {"shortlist", SENTENCE},
                 {"prefix", SENTENCE},
                 {"shortlist_first", SENTENCE},
                 {"shortlist_best", SENTENCE},
                 {"colours", SENTENCE | ALIGNMENT | ARRAY},
                 {"range", SENTENCE | ALIGNMENT | ARRAY},
                 {"title", ARRAY},
                 {"x_label", ARRAY},
                 {"y_label", ARRAY},
                 {"layer", IMAGE | DRAWN | OBJECTS | ALIGNMENT},
                 {"head", IMAGE | DRAWN | OBJECTS},
                 {"query", IMAGE | DRAWN | OBJECTS},
                 {"threshold", OBJECTS},
                 {"size", OBJECTS},
                 {"invert", IMAGE},
                 {"channels", IMAGE},
                 {"channel", DRAWN},
                 {"frame", DRAWN},
                 {"clip", DRAWN}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (cli_given(cli, reads[i].option) && !(reads[i].by & shown)) {
            char name[64];
            const cli_option option = {.key = {.name = reads[i].option}};
            return cli_fail(CLI_BAD, "show %s: --%s does not apply to %s", cli->words[0],
                            cli_option_spell(&option, name), what);
        }
    double low, high;
    int code = cli_range(cli, &low, &high);
    return code == CLI_OK ? show(cli) : code;
}

static int run(cli_call *cli)
{
    cli_model_kind kind;
    bool array = cli_is_array(cli->words[0]);
    attn_context_set_inference(cli->context, true);
    if (cli->nwords == 2 && array)
        return cli_fail(CLI_BAD, "%s is an array of weights, which is shown alone: leave out %s", cli->words[0],
                        cli->words[1]);
    if (array)
        return show_as(cli, ARRAY, "an array of weights", cli_show_weights);
    if (cli->nwords < 2)
        return cli_fail(CLI_BAD, "show %s: expected a sentence, a picture or an alignment after the model",
                        cli->words[0]);
    if (!attn_file_exists(cli->words[0]))
        return cli_fail(CLI_BAD, "there is no %s", cli->words[0]);
    if (cli_model_kind_of(cli, &kind, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (kind == CLI_READS_ALIGNMENTS)
        return show_as(cli, ALIGNMENT, "an alignment", cli_show_family);
    if (kind == CLI_CLASSIFIES)
        return show_as(cli, IMAGE, "a classifier", cli_show_image);
    if (kind == CLI_DETECTS)
        return show_as(cli, OBJECTS, "a detector", cli_show_detector);
    if (kind == CLI_DRAWS)
        return show_as(cli, DRAWN, "a model that draws images", cli_show_generator);
    return show_as(cli, SENTENCE, "a translator", cli_show_sentence);
}

const cli_command cli_show = {
    "show", "draw what a model attends to", usage, description, CLI_OPTIONS(options), NULL, examples, 1, 2, run,
};
