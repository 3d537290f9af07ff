/* SPDX-License-Identifier: MIT
 * attn score: scores mutations with a language model of alignments. */
#include "commands.h"
#include "embed_texts.h"
#include "family.h"
#include "progress.h"

#include "base/context.h"
#include "data/lines.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const cli_option options[] = {
    CLI_FAMILY_OPTIONS,
    CLI_ENCODER_LENGTH,
    CLI_WRITES(TEXT, "out", 'o', "FILE", "-", "the file for the table; -: standard output"),
    CLI_TEXT("mutations", 0, "FILE", "",
             "a file of mutations, one in a line, or a table (csv, tsv) with the column mutant, as ProteinGym's"),
    CLI_FLAG("every", 0, "score every mutation of every residue"),
    CLI_INT("offset", 0, "0", -1000000, 1000000, "the number of the query's first residue in MUTATION, minus one"),
};

static const char *const usage[] = {"FILE MUTATION... --model PATH", "FILE --mutations FILE --model PATH",
                                    "FILE --every --model PATH", NULL};

static const char description[] =
    "FILE is an alignment whose first sequence is the protein. MUTATION is like A42G: the residue that is there, its "
    "number, and the residue that replaces it. Several that happen together are joined by colons (A42G:L50P). Numbers "
    "count the residues of the first sequence from 1, without its gaps. A file of --mutations has one in each line; if "
    "its first line is a header with the column mutant, it is a table of comma- or tab-separated fields.\n"
    "\n"
    "With ESM-2 (a .pt or a directory of Hugging Face) FILE is the protein alone, or an alignment of which only the first "
    "sequence is read. Of a protein longer than --max-length, a window with the residue in its middle is read.\n"
    "\n"
    "The score is the masked marginal of Meier et al. 2021: each mutated residue is hidden in the first sequence (the "
    "query), and the score is log p(new) - log p(old) there, summed over a mutation's parts. A score below 0: the "
    "model finds the mutation less likely than what is there.";

static const char *const examples[] = {
    "attn score family.a3m A42G L50P A42G:L50P --model esm_msa1b_t12_100M_UR50S.pt",
    "attn score family.a3m --mutations mutants.csv --model msa1b -o scores.tsv",
    "attn score protein.fasta --every --model esm2_t33_650M_UR50D.pt",
    "attn score family.a3m --every --model msa1b -o scores.tsv",
    NULL,
};

static const char amino_acids[] = "ACDEFGHIKLMNPQRSTVWY";

typedef struct listed_mutation {
    char *text;
    int64_t line; /* number of its line in the file of mutations; 0: the mutation is a word of the command */
} listed_mutation;

typedef struct scoring {
    cli_family family;
    attn_msa *msa;
    attn_encoder *encoder;    /* NULL: the model is `msa` */
    attn_encoder_text tokens; /* of the query, for the encoder */
    attn_msa_options how;
    const char *query; /* letters of all residues of the query, which is the first sequence */
    int64_t n;
    int64_t *column; /* column of each residue; -1: the residue has no column */
    /* log-probabilities of the letters at each residue, computed while this residue is masked */
    float (*logp)[ATTN_RESIDUE_COUNT];
    bool *known;
    listed_mutation *mutations;
    int64_t nmutations;
    char place[512]; /* file and line of the mutation that is read, for errors; "": a word of the command */
    FILE *out;       /* stream of the results: standard output, or a stream that collects them in `text` */
    char *text;
    size_t size;
} scoring;

typedef struct change {
    char from, to;
    int64_t residue; /* counted from 0 */
} change;

static int read_change(const scoring *s, const char *whole, const char **at, change *c)
{
    char *end = NULL;
    const char *text = *at;
    c->from = text[0];
    int64_t number = text[0] ? strtoll(text + 1, &end, 10) : 0;
    bool formed = end && end != text + 1 && isalpha((unsigned char)text[0]) && isalpha((unsigned char)*end) &&
                  (end[1] == 0 || (end[1] == ':' && end[2]));
    char odd = !formed || !strchr(amino_acids, text[0]) ? text[0] : *end;
    if (formed && !strchr(amino_acids, odd))
        return cli_fail(CLI_BAD, "%s\"%.60s\": %c is not one of the 20 amino acids, %s%s", s->place, whole, odd,
                        amino_acids, islower((unsigned char)odd) ? "; write capitals" : "");
    if (!formed)
        return cli_fail(CLI_BAD, "%s\"%.60s\" is not a mutation such as A42G or A42G:L50P", s->place, whole);
    c->to = *end;
    c->residue = number - 1 - cli_int(s->family.cli, "offset");
    *at = end + 1 + (end[1] == ':');
    if (c->residue < 0 || c->residue >= s->n)
        return cli_fail(CLI_BAD, "%s%.60s: there is no residue %lld; the query has the residues %lld to %lld", s->place,
                        whole, (long long)number, (long long)cli_int(s->family.cli, "offset") + 1,
                        (long long)s->n + (long long)cli_int(s->family.cli, "offset"));
    char there = s->query[c->residue];
    if (there != c->from)
        return cli_fail(CLI_BAD, "%s%.60s: residue %lld of the query is %c, not %c", s->place, whole, (long long)number,
                        there, c->from);
    if (s->column[c->residue] < 0)
        return cli_fail(CLI_BAD,
                        "%s%.60s: residue %lld of the query is an insertion (lower case in an a3m), which the model "
                        "does not read",
                        s->place, whole, (long long)number);
    return CLI_OK;
}

/* Stores the log-probabilities of the letters at a residue, from the logits of `classes` tokens. */
static void keep_logits(scoring *s, int64_t residue, const float *logits, int64_t classes)
{
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++)
        most = fmax(most, (double)logits[c]);
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)logits[c] - most);
    for (int64_t c = 0; c < classes && c < ATTN_RESIDUE_COUNT; c++)
        s->logp[residue][c] = (float)((double)logits[c] - most - log(sum));
    s->known[residue] = true;
}

/* Does the same as `look` with an encoder, which reads the query alone. */
static int look_alone(scoring *s, int64_t residue)
{
    float logits[ATTN_RESIDUE_COUNT] = {0};
    int64_t place = residue + 1;
    if (attn_encoder_logits(s->encoder, &s->tokens, &place, 1, logits) != ATTN_OK)
        return cli_failed(s->family.cli, s->family.path);
    keep_logits(s, residue, logits, ATTN_RESIDUE_COUNT);
    return CLI_OK;
}

/* Masks one residue of the query and stores the model's prediction for its position. */
static int look(scoring *s, int64_t residue)
{
    if (s->known[residue])
        return CLI_OK;
    if (s->encoder)
        return look_alone(s, residue);
    int64_t at = s->column[residue] + 1;
    int32_t there = s->family.tokens[at];
    attn_msa_result result;
    s->family.tokens[at] = ATTN_RESIDUE_MASK;
    attn_status status = attn_msa_run(s->msa, s->family.tokens, 1, s->family.rows, s->family.cols, &s->how, &result);
    s->family.tokens[at] = there;
    if (status != ATTN_OK)
        return cli_failed(s->family.cli, s->family.path);
    int64_t classes = attn_tensor_length(result.logits, 3);
    keep_logits(s, residue, (const float *)attn_tensor_data(result.logits) + at * classes, classes);
    return CLI_OK;
}

static double score_of(const scoring *s, const change *c)
{
    const float *p = s->logp[c->residue];
    return (double)p[attn_residue_id(c->to)] - (double)p[attn_residue_id(c->from)];
}

static int score_mutation(scoring *s, const char *mutation)
{
    double sum = 0;
    const char *at = mutation;
    while (*at) {
        change c = {0, 0, 0};
        int code = read_change(s, mutation, &at, &c);
        if (code == CLI_OK)
            code = look(s, c.residue);
        if (code != CLI_OK)
            return code;
        sum += score_of(s, &c);
    }
    fprintf(s->out, "%s\t%.6f\n", mutation, sum);
    return CLI_OK;
}

static int score_every(scoring *s)
{
    int64_t offset = cli_int(s->family.cli, "offset");
    for (int64_t r = 0; r < s->n; r++) {
        char from = s->query[r];
        cli_watch_work("residues", r, s->n);
        if (s->column[r] < 0)
            continue;
        int code = look(s, r);
        if (code != CLI_OK)
            return code;
        for (const char *to = amino_acids; *to; to++) {
            change c = {from, *to, r};
            if (from != *to)
                fprintf(s->out, "%c%lld%c\t%.6f\n", from, (long long)r + 1 + (long long)offset, *to, score_of(s, &c));
        }
    }
    return CLI_OK;
}

static int check_parts(const scoring *s, const char *whole)
{
    const char *at = whole;
    change c = {0, 0, 0}, earlier = c;
    int code = CLI_OK;
    while (code == CLI_OK && (*at || at == whole)) {
        const char *here = at, *before = whole;
        code = read_change(s, whole, &at, &c);
        while (code == CLI_OK && before < here) {
            (void)read_change(s, whole, &before, &earlier);
            if (earlier.residue == c.residue)
                code = cli_fail(CLI_BAD, "%s%.60s replaces residue %lld twice", s->place, whole,
                                (long long)c.residue + 1 + (long long)cli_int(s->family.cli, "offset"));
        }
    }
    return code;
}

/* -------------------------------------------------------------------------------------- files of mutations */

static int add_mutation(scoring *s, const char *text, size_t length, int64_t line)
{
    if ((s->nmutations & (s->nmutations + 1)) == 0) { /* there is room for one less than a power of two */
        listed_mutation *more = realloc(s->mutations, (size_t)(2 * s->nmutations + 1) * sizeof *more);
        if (!more)
            return cli_fail(CLI_FAILED, "out of memory");
        s->mutations = more;
    }
    char *copy = malloc(length + 1);
    if (!copy)
        return cli_fail(CLI_FAILED, "out of memory");
    memcpy(copy, text, length);
    copy[length] = 0;
    s->mutations[s->nmutations++] = (listed_mutation){copy, line};
    return CLI_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* Takes the next field of a table's line, without quotes and outer spaces. Returns false if there is no field left. */
static bool next_field(const char **line, size_t *left, char separator, const char **field, size_t *length)
{
    if (!*line)
        return false;
    const char *at = *line, *end = at + *left;
    bool quoted = false;
    while (at < end && (quoted || *at != separator))
        quoted ^= *at++ == '"';
    *field = *line;
    *length = (size_t)(at - *line);
    *left = at < end ? (size_t)(end - at) - 1 : 0;
    *line = at < end ? at + 1 : NULL;
    while (*length > 0 && is_space((*field)[*length - 1]))
        --*length;
    while (*length > 0 && is_space(**field)) {
        ++*field;
        --*length;
    }
    if (*length > 1 && **field == '"' && (*field)[*length - 1] == '"') {
        ++*field;
        *length -= 2;
    }
    return true;
}

static char separator_of(const char *line, size_t length)
{
    return memchr(line, '\t', length) ? '\t' : ',';
}

/* Returns the index of the column of mutations, or -1 if the line is no header with such a column. */
static int mutant_column(const char *line, size_t length)
{
    const char separator = separator_of(line, length), *field;
    size_t n;
    for (int column = 0; next_field(&line, &length, separator, &field, &n); column++)
        if ((n == 6 && strncasecmp(field, "mutant", n) == 0) || (n == 8 && strncasecmp(field, "mutation", n) == 0))
            return column;
    return -1;
}

/* If the file is a table, `column` is its column of mutations, otherwise it is -1. */
static int take_line(scoring *s, const char *path, const char *line, size_t length, int64_t number, int column)
{
    const char separator = separator_of(line, length), *field = line;
    size_t n = 0;
    for (int i = 0; i <= (column < 0 ? 0 : column); i++) {
        if (!next_field(&line, &length, separator, &field, &n))
            return cli_fail(CLI_BAD, "%s:%lld: the line has no field %d, the column \"mutant\" of the first line", path,
                            (long long)number, column + 1);
    }
    if (column < 0 && line)
        return cli_fail(CLI_BAD, "%s:%lld: the line has several fields, but the first line has no column \"mutant\"",
                        path, (long long)number);
    return add_mutation(s, field, n, number);
}

static int read_mutations(scoring *s, const char *path)
{
    const cli_call *cli = s->family.cli;
    attn_bytes bytes = {0};
    const char *line;
    size_t length, at = 0;
    int64_t number = 0;
    int column = -2; /* -2: no line was read */
    if (attn_file_read(&bytes, cli->context, path, 0) != ATTN_OK)
        return cli_failed(cli, NULL);
    int64_t before = s->nmutations;
    int code = CLI_OK;
    while (code == CLI_OK && attn__next_line(bytes.data, bytes.size, &at, &line, &length)) {
        number++;
        while (length > 0 && is_space(line[length - 1]))
            length--;
        if (length == 0)
            continue;
        bool first = column == -2;
        column = first ? mutant_column(line, length) : column;
        if (!first || column < 0)
            code = take_line(s, path, line, length, number, column);
    }
    attn_bytes_free(cli->context, &bytes);
    if (code == CLI_OK && s->nmutations == before)
        code = cli_fail(CLI_BAD, "%s: the file has no mutations", path);
    return code;
}

/* Collects the mutations of the command's words and of the file, and reads them before the first run of the model, so
 * that a spelling mistake is reported at once. */
static int check_all(scoring *s)
{
    const cli_call *cli = s->family.cli;
    const char *path = cli_text(cli, "mutations");
    int code = CLI_OK;
    for (int i = 1; i < cli->nwords && code == CLI_OK; i++)
        code = add_mutation(s, cli->words[i], strlen(cli->words[i]), 0);
    if (code == CLI_OK && *path)
        code = read_mutations(s, path);
    for (int64_t i = 0; i < s->nmutations && code == CLI_OK; i++) {
        if (s->mutations[i].line > 0)
            snprintf(s->place, sizeof s->place, "%.480s:%lld: ", path, (long long)s->mutations[i].line);
        code = check_parts(s, s->mutations[i].text);
    }
    return code;
}

static int score_all(scoring *s)
{
    const cli_call *cli = s->family.cli;
    attn_msa_cost plan;
    char planned[32];
    int code = check_all(s);
    if (code == CLI_OK && !s->encoder &&
        attn_msa_estimate(s->msa, 1, s->family.rows, s->family.cols, &s->how, &plan) != ATTN_OK)
        code = cli_failed(cli, s->family.path);
    if (code != CLI_OK)
        return code;
    if (!s->encoder)
        cli_note(cli, "about %s of memory", cli_bytes(cli_family_memory(&s->family, &plan), planned));
    fprintf(s->out, "mutation\tscore\n");
    for (int64_t i = 0; i < s->nmutations && code == CLI_OK; i++) {
        cli_watch_work("mutations", i, s->nmutations);
        code = score_mutation(s, s->mutations[i].text);
    }
    return code == CLI_OK && cli_flag(cli, "every") ? score_every(s) : code;
}

static int prepare(scoring *s)
{
    s->query = attn_alignment_query(s->family.all);
    s->n = (int64_t)strlen(s->query);
    s->column = calloc((size_t)s->n, sizeof *s->column);
    s->logp = malloc((size_t)s->n * sizeof *s->logp);
    s->known = calloc((size_t)s->n, sizeof *s->known);
    if (!s->column || !s->logp || !s->known)
        return cli_fail(CLI_FAILED, "out of memory");
    for (int64_t r = 0; r < s->n; r++)
        s->column[r] = s->encoder ? r : -1;
    if (s->encoder) /* which reads all residues of the query */
        return cli_encoder_protein(s->family.cli, s->encoder, s->family.path, s->query, &s->tokens);
    for (int64_t c = 0; c + 1 < s->family.cols; c++) {
        int64_t number = attn_alignment_number(s->family.all, c);
        if (number > 0)
            s->column[number - 1] = c;
    }
    return CLI_OK;
}

/* Checks that the output file can be written. Otherwise hours of computation would be lost if a folder is missing. */
static bool can_write(attn_context *context, const char *path)
{
    if (attn_file_exists(path))
        return access(path, W_OK) == 0;
    char *folder = attn__path_parent(context, path);
    bool can = folder && access(folder, W_OK) == 0;
    int reason = folder ? errno : ENOMEM;
    attn__free(context, folder);
    errno = reason;
    return can;
}

static int open_out(scoring *s)
{
    const char *path = cli_text(s->family.cli, "out");
    if (strcmp(path, "-") == 0) {
        s->out = stdout;
        return CLI_OK;
    }
    if (!can_write(s->family.cli->context, path))
        return cli_fail(CLI_BAD, "%s: cannot be written: %s", path, strerror(errno));
    s->out = open_memstream(&s->text, &s->size);
    return s->out ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
}

/* A file is written completely or not at all. main() checks whether standard output was written. */
static int close_out(scoring *s, int code)
{
    if (!s->out || s->out == stdout)
        return code;
    bool failed = ferror(s->out) != 0;
    failed |= fclose(s->out) != 0;
    if (code == CLI_OK && failed)
        code = cli_fail(CLI_FAILED, "out of memory");
    if (code == CLI_OK &&
        attn_file_write(s->family.cli->context, cli_text(s->family.cli, "out"), s->text, s->size) != ATTN_OK)
        code = cli_failed(s->family.cli, NULL);
    free(s->text);
    return code;
}

static int run(cli_call *cli)
{
    scoring s = {.how = {.logits = true}};
    if (cli->nwords < 2 && !*cli_text(cli, "mutations") && !cli_flag(cli, "every"))
        return cli_fail(CLI_BAD, "score needs a MUTATION, --mutations FILE or --every");
    attn_context_set_inference(cli->context, true);
    int code = cli_encoder_is(cli) ? cli_encoder_of_proteins(cli, &s.encoder) : cli_family_bounds(cli, &s.how);
    if (code == CLI_OK && !s.encoder)
        code = cli_family_model(cli, &s.msa);
    if (code == CLI_OK && s.encoder && !attn_encoder_about(s.encoder)->masked_head)
        code = cli_fail(CLI_BAD, "%s: the model has no head that predicts masked tokens", cli_text(cli, "model"));
    if (code == CLI_OK)
        code = s.encoder ? cli_family_read_query(&s.family, cli, cli->words[0])
                         : cli_family_read(&s.family, cli, cli->words[0]);
    if (code == CLI_OK)
        code = prepare(&s);
    if (code == CLI_OK)
        code = open_out(&s);
    if (code == CLI_OK)
        code = score_all(&s);
    code = close_out(&s, code);
    free(s.column);
    free(s.logp);
    free(s.known);
    for (int64_t i = 0; i < s.nmutations; i++)
        free(s.mutations[i].text);
    free(s.mutations);
    cli_family_free(&s.family);
    if (s.encoder)
        attn_encoder_text_free(s.encoder, &s.tokens);
    attn_encoder_destroy(s.encoder);
    attn_msa_destroy(s.msa);
    return code;
}

const cli_command cli_score = {
    "score", "judge mutations of a protein", usage, description, CLI_OPTIONS(options), NULL, examples, 1, -1, run,
};
