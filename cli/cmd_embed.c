/* SPDX-License-Identifier: MIT
 * attn embed: computes vectors of texts and proteins with an encoder, or representations of residues and sequences with a
 * language model of alignments, and writes them as arrays. */
#include "commands.h"
#include "embed_texts.h"
#include "failures.h"
#include "family.h"

#include <math.h>
#include <string.h>

static const char *const whats[] = {"residues", "sequences", "all", NULL};

static const cli_option options[] = {
    CLI_FAMILY_OPTIONS,
    CLI_WRITES(
        TEXT, "out", 'o', "PATH", ".",
        "the array .npy of an encoder's vectors (default vectors.npy); of alignments, the directory that gets the "
        "results"),
    CLI_EMBED_OPTIONS,
    CLI_CHOICE("what", whats, "residues",
               "residues: of the query, [residues, channels]; sequences: means over each, [sequences, channels]; all: "
               "[sequences, columns, channels]"),
    CLI_INT("layer", 'l', "-1", -1000, 1000,
            "the layer whose output is written: 0 is the embedding, -1 the last layer (normalized)"),
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"[FILE...] --model DIR [-o FILE.npy]", "FILE... --model PATH [-o DIR]", NULL};

static const char description[] =
    "The model is an encoder (a directory as published of BERT, RoBERTa, DistilBERT, ModernBERT or ESM-2, or a .pt of "
    "ESM-2) or a model of alignments.\n"
    "\n"
    "With an encoder, each line of the files, or of standard input, is a text, and each text becomes a row of the array, "
    "in order. Texts are split by the directory's tokenizer and pooled as its modules.json says. Texts that are too long "
    "are cut, which is told at the end. With --json each vector is one object on a line of its own. With --pool none "
    "FILE.offsets.npy has the first row of each text. With ESM-2, files are FASTA, or have one protein a line; "
    "FILE.names.txt gets their names. A protein longer than --max-length is computed in windows that overlap by half; "
    "each residue has the vector of the window in whose middle it is nearest.\n"
    "\n"
    "With a model of alignments, for each alignment DIR gets NAME.WHAT.npy, and for sequences and all NAME.names.txt with the names of the "
    "sequences that were used, one a line. <cls> is left out; gaps of a sequence do not count in its mean.";

static const char *const examples[] = {
    "attn embed lines.txt --model all-MiniLM-L6-v2 -o vectors.npy",
    "attn embed lines.txt --model all-MiniLM-L6-v2 --similar \"How do I get my money back?\"",
    "attn embed proteins.fasta --model esm2_t33_650M_UR50D -o proteins.npy",
    "attn embed family.a3m --model esm_msa1b_t12_100M_UR50S.pt",
    "attn embed family.a3m --model msa1b --what sequences --layer 6 -o vectors",
    NULL,
};

/* The mean is zero if the sequence has only gaps. */
static void mean_of(const cli_family *f, const float *hidden, int64_t row, int64_t dim, float *to)
{
    const int32_t *tokens = f->tokens + row * f->cols;
    int64_t counted = 0;
    memset(to, 0, (size_t)dim * sizeof *to);
    for (int64_t c = 1; c < f->cols; c++) {
        if (tokens[c] == ATTN_RESIDUE_GAP)
            continue;
        const float *from = hidden + (row * f->cols + c) * dim;
        counted++;
        for (int64_t d = 0; d < dim; d++)
            to[d] += from[d];
    }
    for (int64_t d = 0; d < dim && counted > 0; d++)
        to[d] /= (float)counted;
}

/* Writes the vectors [N,D] of the query's residues. A residue without a column gets NaN. */
static void fill_residues(const cli_family *f, const float *hidden, int64_t residues, int64_t dim, float *to)
{
    for (int64_t i = 0; i < residues * dim; i++)
        to[i] = NAN;
    for (int64_t c = 1; c < f->cols; c++) {
        int64_t number = attn_alignment_number(f->all, c - 1);
        if (number > 0)
            memcpy(to + (number - 1) * dim, hidden + c * dim, (size_t)dim * sizeof *to);
    }
}

static attn_status fill(const cli_family *f, const char *what, const float *hidden, int64_t dim, attn_tensor **array)
{
    attn_context *context = f->cli->context;
    int64_t columns = f->cols - 1, line = columns * dim, residues = (int64_t)strlen(attn_alignment_query(f->all));
    bool all = strcmp(what, "all") == 0, sequences = strcmp(what, "sequences") == 0;
    int64_t shape[] = {f->rows, columns, dim}, means[] = {f->rows, dim}, query[] = {residues, dim};
    attn_status status = sequences ? attn_tensor_create(array, context, ATTN_F32, 2, means)
                         : all     ? attn_tensor_create(array, context, ATTN_F32, 3, shape)
                                   : attn_tensor_create(array, context, ATTN_F32, 2, query);
    if (status == ATTN_OK && !all && !sequences)
        fill_residues(f, hidden, residues, dim, attn_tensor_data(*array));
    for (int64_t r = 0; status == ATTN_OK && (all || sequences) && r < f->rows; r++) {
        float *to = attn_tensor_data(*array);
        if (sequences)
            mean_of(f, hidden, r, dim, to + r * dim);
        else
            memcpy(to + r * line, hidden + (r * f->cols + 1) * dim, (size_t)line * sizeof *to);
    }
    return status;
}

static attn_status write_names(const cli_family *f, const char *path)
{
    size_t size = 0, used = 0;
    for (int64_t r = 0; r < f->rows; r++)
        size += strlen(attn_alignment_name(f->chosen, r)) + 1;
    attn_tensor *text;
    attn_status status = attn_tensor_create(&text, f->cli->context, ATTN_U8, 1, (int64_t[]){(int64_t)size});
    for (int64_t r = 0; status == ATTN_OK && r < f->rows; r++) {
        const char *name = attn_alignment_name(f->chosen, r);
        char *to = (char *)attn_tensor_data(text) + used;
        size_t length = strlen(name);
        memcpy(to, name, length); /* NOLINT: a newline follows the name, not a 0 */
        to[length] = '\n';
        used += length + 1;
    }
    if (status == ATTN_OK)
        status = attn_file_write(f->cli->context, path, attn_tensor_data(text), used);
    attn_tensor_destroy(text);
    return status;
}

/* `names` is the path of the file with the sequences' names, or NULL. */
static int print_result(const cli_family *f, const char *path, const char *names, const attn_tensor *array)
{
    const int64_t *shape = attn_tensor_shape(array);
    if (!f->cli->json) {
        cli_print("%s\n", path);
        if (names)
            cli_print("%s\n", names);
        return CLI_OK;
    }
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_INTS, .n = attn_tensor_rank(array), .integers = shape};
    attn_json json;
    attn_json_begin(&json, f->cli->context, false);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "alignment", f->path);
    attn_json_text(&json, "array", path);
    if (names)
        attn_json_text(&json, "names", names);
    attn_json_value(&json, "shape", &value);
    attn_json_end(&json);
    return cli_print_json(f->cli, &json);
}

static int write_result(const cli_family *f, const attn_tensor *hidden)
{
    const cli_call *cli = f->cli;
    const char *what = cli_text(cli, "what"), *directory = cli_text(cli, "out");
    char ending[64], path[4096], names[4096];
    snprintf(ending, sizeof ending, "%s.npy", what);
    int code = cli_family_path(f, directory, ending, path);
    if (code == CLI_OK)
        code = cli_family_path(f, directory, "names.txt", names);
    if (code != CLI_OK)
        return code;
    attn_tensor *array = NULL;
    attn_status status = attn_directory_create(cli->context, directory);
    if (status == ATTN_OK)
        status = fill(f, what, attn_tensor_data(hidden), attn_tensor_length(hidden, 3), &array);
    if (status == ATTN_OK)
        status = attn_npy_write(array, cli->context, path);
    bool named = strcmp(what, "residues") != 0;
    if (status == ATTN_OK && named)
        status = write_names(f, names);
    code = status == ATTN_OK ? print_result(f, path, named ? names : NULL, array) : cli_failed(cli, NULL);
    attn_tensor_destroy(array);
    return code;
}

typedef struct embedding {
    const cli_call *cli;
    attn_msa *msa;
    attn_msa_options how;
} embedding;

static int embed(void *user, int i)
{
    const embedding *e = user;
    cli_family family;
    attn_msa_result result;
    int code = cli_family_read(&family, e->cli, e->cli->words[i]);
    if (code == CLI_OK)
        code = cli_family_run(&family, e->msa, &e->how, &result);
    if (code == CLI_OK)
        code = write_result(&family, result.representations[0]);
    cli_family_free(&family);
    return code;
}

static int run(cli_call *cli)
{
    static const char *const encoders[] = {"pool",        "normalize", "unnormalized", "prompt",
                                           "prompt_name", "ids",       "max_length",   "query_prompt",
                                           "batch",       "similar",   "top",          NULL};
    int64_t layer = cli_int(cli, "layer");
    embedding e = {.cli = cli, .how = {.layers = &layer, .nlayers = 1}};
    attn_context_set_inference(cli->context, true);
    if (cli_encoder_is(cli))
        return cli_embed_texts(cli);
    if (cli->nwords < 1)
        return cli_fail(
            CLI_BAD, "attn embed needs a file, because the model is of alignments; only encoders read standard input");
    int code = cli_embed_refuse(cli, encoders, "encoders", "a model of alignments");
    char array[64];
    const char *endings[] = {array, NULL, NULL};
    snprintf(array, sizeof array, "%s.npy", cli_text(cli, "what"));
    if (strcmp(cli_text(cli, "what"), "residues") != 0)
        endings[1] = "names.txt";
    if (code == CLI_OK)
        code = cli_family_claim(cli, endings);
    if (code == CLI_OK)
        code = cli_family_bounds(cli, &e.how);
    if (code == CLI_OK)
        code = cli_family_model(cli, &e.msa);
    if (code == CLI_OK)
        code = cli_spread(cli, cli->nwords, cli->words, embed, &e);
    attn_msa_destroy(e.msa);
    return code;
}

const cli_command cli_embed = {
    "embed",
    "turn texts, proteins or alignments into vectors",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    -1,
    run,
};
