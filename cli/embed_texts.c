/* SPDX-License-Identifier: MIT */
#include "embed_texts.h"

#include "apps/encoder/encoder.h"
#include "base/context.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Texts that are read before they are computed, so that texts of similar length are computed together. */
enum { AHEAD = 4096, AHEAD_BYTES = 4 << 20, NPY_HEADER = 128 };
enum { PART = 1 << 16 }; /* bytes that are read at once to count texts */

const char *const cli_embed_pools[] = {"own", "mean", "cls", "max", "last", "none", NULL};

/* ------------------------------------------------------------------------------------------------ reading */

typedef struct record {
    char *text, *name; /* name: of a protein in FASTA; NULL: none */
    size_t length;
    int64_t line;
} record;

/* Reads the texts of the files, one after another. */
typedef struct reader {
    const cli_call *cli;
    int word; /* number of the file that is read */
    FILE *file;
    const char *path;
    char *line, *pending; /* pending: the name of the next protein */
    size_t capacity;
    int64_t number, pending_line;
    bool protein, fasta, ended;
} reader;

static int open_next(reader *r)
{
    if (r->file && r->file != stdin)
        fclose(r->file);
    r->file = NULL;
    if (r->ended || (r->cli->nwords == 0 ? r->word > 0 : r->word >= r->cli->nwords)) {
        r->ended = true;
        return CLI_OK;
    }
    r->path = r->cli->nwords == 0 ? "-" : r->cli->words[r->word];
    r->word++;
    r->number = 0;
    r->fasta = false;
    bool standard = strcmp(r->path, "-") == 0;
    r->file = standard ? stdin : fopen(r->path, "rb");
    if (standard)
        r->path = "standard input";
    return r->file ? CLI_OK : cli_fail(CLI_BAD, "%s: cannot be read: %s", r->path, strerror(errno));
}

/* Reads a line without its end. *n is -1 at the end of all files. *fresh tells whether it is the first of its file. */
static int read_line(reader *r, ssize_t *n)
{
    *n = -1;
    for (;;) {
        if (!r->file) {
            int code = open_next(r);
            if (code != CLI_OK || r->ended)
                return code;
        }
        errno = 0;
        ssize_t length = getline(&r->line, &r->capacity, r->file);
        if (length >= 0) {
            r->number++;
            while (length > 0 && (r->line[length - 1] == '\n' || r->line[length - 1] == '\r'))
                r->line[--length] = 0;
            size_t mark = r->number == 1 && length >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
            memmove(r->line, r->line + mark, (size_t)length - mark + 1);
            *n = length - (ssize_t)mark;
            return CLI_OK;
        }
        if (ferror(r->file))
            return cli_fail(CLI_FAILED, "%s: cannot be read: %s", r->path, errno ? strerror(errno) : "an error");
        if (r->file != stdin)
            fclose(r->file);
        r->file = NULL;
        if (r->pending) /* the last protein of the file ends here */
            return CLI_OK;
    }
}

static bool keep(char **to, const char *text, size_t length)
{
    *to = malloc(length + 1);
    if (*to) {
        memcpy(*to, text, length);
        (*to)[length] = 0;
    }
    return *to != NULL;
}

/* Reads the next protein of a file in FASTA, whose header is pending. */
static int next_protein(reader *r, record *next)
{
    *next = (record){.name = r->pending, .line = r->pending_line};
    r->pending = NULL;
    if (!keep(&next->text, "", 0))
        return cli_fail(CLI_FAILED, "out of memory");
    for (;;) {
        ssize_t n;
        r->pending = next->name; /* so that the end of the file is the end of the protein */
        int code = read_line(r, &n);
        r->pending = NULL;
        if (code != CLI_OK || n < 0)
            return code;
        if (r->line[0] == '>') {
            size_t name = strcspn(r->line + 1, " \t");
            r->pending_line = r->number;
            return keep(&r->pending, r->line + 1, name) ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
        }
        char *longer = realloc(next->text, next->length + (size_t)n + 1);
        if (!longer)
            return cli_fail(CLI_FAILED, "out of memory");
        memcpy(longer + next->length, r->line, (size_t)n + 1);
        next->text = longer;
        next->length += (size_t)n;
    }
}

/* *found is false at the end. */
static int next_record(reader *r, record *next, bool *found)
{
    ssize_t n;
    *found = false;
    for (;;) {
        if (r->pending) {
            *found = true;
            return next_protein(r, next);
        }
        int code = read_line(r, &n);
        if (code != CLI_OK || n < 0)
            return code;
        if (r->protein && r->line[0] == '>') {
            r->pending_line = r->number;
            if (!keep(&r->pending, r->line + 1, strcspn(r->line + 1, " \t")))
                return cli_fail(CLI_FAILED, "out of memory");
            continue;
        }
        if (r->protein && r->line[strspn(r->line, " \t")] == 0) /* an empty line between proteins */
            continue;
        *next = (record){.length = (size_t)n, .line = r->number};
        *found = true;
        return keep(&next->text, r->line, (size_t)n) ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    }
}

/* ------------------------------------------------------------------------------------------------ counting */

int64_t cli_count_texts(int file, bool proteins)
{
    struct stat about;
    int64_t at = lseek(file, 0, SEEK_CUR), lines = 0, headers = 0;
    bool first = true, filled = false; /* first: the next byte begins a line; filled: the line has more than spaces */
    char *bytes = malloc(PART);
    ssize_t n = -1;
    if (bytes && at >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode))
        while ((n = pread(file, bytes, PART, at)) > 0) {
            at += n;
            for (ssize_t i = 0; i < n; i++) {
                bool ends = bytes[i] == '\n';
                headers += first && bytes[i] == '>';
                filled = filled || (!ends && (!proteins || !strchr(" \t\r", bytes[i])));
                lines += ends && (filled || !proteins);
                filled = filled && !ends;
                first = ends;
            }
        }
    free(bytes);
    return n < 0 ? -1 : proteins && headers > 0 ? headers : lines + (proteins ? filled : !first);
}

/* Returns -1 if a file is a pipe or cannot be read. */
static int64_t count_all(const cli_call *cli, bool proteins)
{
    int64_t all = 0;
    for (int i = 0; i < (cli->nwords > 0 ? cli->nwords : 1); i++) {
        struct stat about;
        bool standard = cli->nwords == 0 || strcmp(cli->words[i], "-") == 0;
        bool regular = standard || (stat(cli->words[i], &about) == 0 && S_ISREG(about.st_mode)); /* else not opened */
        int file = standard ? STDIN_FILENO : regular ? open(cli->words[i], O_RDONLY | O_CLOEXEC) : -1;
        int64_t texts = file >= 0 ? cli_count_texts(file, proteins) : -1;
        if (file >= 0 && !standard)
            close(file);
        if (texts < 0)
            return -1;
        all += texts;
    }
    return all;
}

/* ------------------------------------------------------------------------------------------------ the job */

typedef struct ranked {
    double score;
    int64_t number;
    char *text;
} ranked;

typedef struct job {
    const cli_call *cli;
    attn_encoder *encoder;
    attn_encoder_options how;
    int64_t dim, texts, rows, cut, windowed; /* windowed: proteins that are longer than a window */
    int64_t all, together;                   /* all texts, -1: unknown; those that are computed now */
    record records[AHEAD];
    attn_encoder_text tokens[AHEAD];
    attn__output out, offsets, names; /* files that are written; unused ones have no context */
    char offsets_path[4096], names_path[4096];
    float *query; /* of --similar; NULL: none */
    ranked *best; /* the `nbest` best texts so far, the best first */
    int64_t nbest, top;
} job;

static int take_ids(job *j, const char *path, const record *text, attn_encoder_text *to)
{
    const char *at = text->text;
    *to =
        (attn_encoder_text){.ids = attn__alloc(j->cli->context, attn__size_mul(text->length / 2 + 1, sizeof(int32_t)))};
    if (!to->ids)
        return cli_failed(j->cli, NULL);
    for (;;) {
        char *end;
        at += strspn(at, " \t");
        if (!*at)
            break;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ' ' && *end != '\t') || errno || id < 0 || id >= j->encoder->info.vocabulary)
            return cli_fail(CLI_BAD, "%s:%lld: \"%.*s\" is not a token's id; expected 0 to %lld", path,
                            (long long)text->line, (int)(strcspn(at, " \t") < 20 ? strcspn(at, " \t") : 20), at,
                            (long long)j->encoder->info.vocabulary - 1);
        to->ids[to->n++] = (int32_t)id;
        at = end;
    }
    int64_t most = j->encoder->info.max_length;
    to->cut = to->n > most && !j->encoder->info.protein;
    to->n = to->cut ? most : to->n;
    return to->n > 0 ? CLI_OK : cli_fail(CLI_BAD, "%s:%lld: the line has no ids", path, (long long)text->line);
}

static int split(job *j, const char *path, const record *text, attn_encoder_text *to)
{
    char where[4200];
    if (cli_flag(j->cli, "ids"))
        return take_ids(j, path, text, to);
    if (attn_encoder_tokens(j->encoder, text->text, text->length, to) == ATTN_OK)
        return CLI_OK;
    snprintf(where, sizeof where, "%.4000s:%lld", path, (long long)text->line);
    return cli_failed(j->cli, where);
}

/* ------------------------------------------------------------------------------------------------ results */

static int print_json(const job *j, int64_t i, const float *x, int64_t rows)
{
    attn_json json;
    double *numbers = malloc((size_t)j->dim * sizeof *numbers);
    if (!numbers)
        return cli_fail(CLI_FAILED, "out of memory");
    attn_json_begin(&json, j->cli->context, false);
    attn_json_object(&json, NULL);
    attn_json_int(&json, "text", j->texts + i + 1);
    if (j->records[i].name)
        attn_json_text(&json, "name", j->records[i].name);
    if (j->tokens[i].cut)
        attn_json_bool(&json, "cut", true);
    bool many = j->how.pool == ATTN_POOL_NONE;
    if (many)
        attn_json_array(&json, "vectors");
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < j->dim; d++)
            numbers[d] = (double)x[r * j->dim + d];
        attn_config_value value = {.type = ATTN_CONFIG_TYPE_REALS, .n = j->dim, .reals = numbers};
        attn_json_value(&json, many ? NULL : "vector", &value);
    }
    if (many)
        attn_json_end(&json);
    attn_json_end(&json);
    free(numbers);
    return cli_print_json(j->cli, &json);
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / (sqrt(aa) * sqrt(bb)) : 0;
}

/* Inserts a text into the list of the best. Of equal ones, the first stays before the later ones. */
static int rank(job *j, int64_t i, const float *x)
{
    ranked own = {cosine(j->query, x, j->dim), j->texts + i + 1, NULL};
    if (j->nbest == j->top && own.score <= j->best[j->nbest - 1].score)
        return CLI_OK;
    const record *text = &j->records[i];
    const char *shown = text->name ? text->name : text->text;
    if (!keep(&own.text, shown, strlen(shown)))
        return cli_fail(CLI_FAILED, "out of memory");
    int64_t at = j->nbest < j->top ? j->nbest++ : j->nbest - 1;
    free(j->best[at].text);
    for (; at > 0 && j->best[at - 1].score < own.score; at--)
        j->best[at] = j->best[at - 1];
    j->best[at] = own;
    return CLI_OK;
}

static int print_ranked(const job *j)
{
    for (int64_t i = 0; i < j->nbest; i++) {
        attn_json json;
        int code = CLI_OK;
        if (!j->cli->json) {
            cli_print("%.6f\t%lld\t%s\n", j->best[i].score, (long long)j->best[i].number, j->best[i].text);
            continue;
        }
        attn_json_begin(&json, j->cli->context, false);
        attn_json_object(&json, NULL);
        attn_json_real(&json, "score", j->best[i].score);
        attn_json_int(&json, "number", j->best[i].number);
        attn_json_text(&json, "text", j->best[i].text);
        attn_json_end(&json);
        code = cli_print_json(j->cli, &json);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

static int put(job *j, int64_t n, const float *vectors)
{
    int64_t row = 0;
    int code = CLI_OK;
    for (int64_t i = 0; i < n && code == CLI_OK; i++) {
        int64_t rows = attn_encoder_rows(j->encoder, &j->tokens[i], &j->how), bound = j->rows + row + rows;
        if (j->query)
            code = rank(j, i, vectors + row * j->dim);
        else if (j->cli->json && !j->out.context)
            code = print_json(j, i, vectors + row * j->dim, rows);
        row += rows;
        if (j->offsets.context)
            attn__output_write(&j->offsets, &bound, sizeof bound);
        if (j->names.context) {
            const char *name = j->records[i].name ? j->records[i].name : "";
            attn__output_write(&j->names, name, strlen(name));
            attn__output_write(&j->names, "\n", 1);
        }
    }
    if (j->out.context)
        attn__output_write(&j->out, vectors, (size_t)(row * j->dim) * sizeof *vectors);
    j->rows += row;
    j->texts += n;
    return code == CLI_OK && j->out.status != ATTN_OK ? cli_failed(j->cli, NULL) : code;
}

/* ------------------------------------------------------------------------------------------------ .npy files */

/* Writes a header of NPY_HEADER bytes: format version 1 for `rows` rows, or plain numbers if columns is 0. */
static void npy_header(char header[NPY_HEADER], const char *type, int64_t rows, int64_t columns)
{
    char shape[64], text[NPY_HEADER];
    if (columns > 0)
        snprintf(shape, sizeof shape, "(%" PRId64 ", %" PRId64 ")", rows, columns);
    else
        snprintf(shape, sizeof shape, "(%" PRId64 ",)", rows);
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    memset(header, ' ', NPY_HEADER);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* NOLINT: bytes, not a text; 0x76 bytes follow */
    memcpy(header + 10, text, (size_t)n);            /* NOLINT: a newline follows, not a 0 */
    header[NPY_HEADER - 1] = '\n';
}

static int begin_array(const job *j, attn__output *out, const char *path)
{
    char header[NPY_HEADER];
    if (attn__output_begin(out, j->cli->context, path) != ATTN_OK)
        return cli_failed(j->cli, NULL);
    if (lseek(out->descriptor, 0, SEEK_CUR) < 0)
        return cli_fail(
            CLI_BAD,
            "%s: a .npy file cannot be written to a pipe, because it begins with the number of rows; use --json", path);
    npy_header(header, "<f4", 0, 0);
    attn__output_write(out, header, sizeof header);
    return CLI_OK;
}

/* Writes the header, whose length is known now, and completes the file. */
static int end_array(const job *j, attn__output *out, const char *type, int64_t rows, int64_t columns, int code)
{
    char header[NPY_HEADER];
    if (!out->context)
        return code;
    npy_header(header, type, rows, columns);
    if (code == CLI_OK && out->status == ATTN_OK && pwrite(out->descriptor, header, sizeof header, 0) != NPY_HEADER)
        code = cli_fail(CLI_FAILED, "%s: cannot be written: %s", out->path, strerror(errno));
    if (code != CLI_OK && out->status == ATTN_OK)
        out->status = ATTN_ERROR_IO; /* no file is kept */
    attn_status status = attn__output_end(out);
    return code == CLI_OK && status != ATTN_OK ? cli_failed(j->cli, NULL) : code;
}

/* Makes NAME.npy to NAME.ENDING. */
static int beside(const char *path, const char *ending, char out[4096])
{
    size_t n = strlen(path);
    n -= n > 4 && strcmp(path + n - 4, ".npy") == 0 ? 4 : 0;
    return snprintf(out, 4096, "%.*s.%s", (int)n, path, ending) < 4096
               ? CLI_OK
               : cli_fail(CLI_BAD, "%s: the path is too long; at most 4095 bytes are supported", path);
}

static int begin_files(job *j, bool named)
{
    const char *path = cli_given(j->cli, "out") ? cli_text(j->cli, "out") : "vectors.npy";
    if (j->query || (j->cli->json && !cli_given(j->cli, "out")))
        return CLI_OK;
    int code = cli_given(j->cli, "out") ? CLI_OK : cli_claim(j->cli, path, NULL);
    if (code == CLI_OK)
        code = begin_array(j, &j->out, path);
    if (code == CLI_OK && j->how.pool == ATTN_POOL_NONE) {
        code = beside(path, "offsets.npy", j->offsets_path);
        if (code == CLI_OK)
            code = cli_claim(j->cli, j->offsets_path, NULL);
        if (code == CLI_OK)
            code = begin_array(j, &j->offsets, j->offsets_path);
        int64_t zero = 0;
        if (code == CLI_OK)
            attn__output_write(&j->offsets, &zero, sizeof zero);
    }
    if (code == CLI_OK && named) {
        code = beside(path, "names.txt", j->names_path);
        if (code == CLI_OK)
            code = cli_claim(j->cli, j->names_path, NULL);
        if (code == CLI_OK && attn__output_begin(&j->names, j->cli->context, j->names_path) != ATTN_OK)
            code = cli_failed(j->cli, NULL);
    }
    return code;
}

static int end_files(job *j, int code)
{
    bool written = j->out.context != NULL;
    const char *path = j->out.path;
    code = end_array(j, &j->offsets, "<i8", j->texts + 1, 0, code);
    if (j->names.context) {
        if (code != CLI_OK && j->names.status == ATTN_OK)
            j->names.status = ATTN_ERROR_IO;
        if (attn__output_end(&j->names) != ATTN_OK && code == CLI_OK)
            code = cli_failed(j->cli, NULL);
    }
    code = end_array(j, &j->out, "<f4", j->rows, j->dim, code);
    if (code != CLI_OK || !written)
        return code;
    if (j->cli->json) {
        attn_json json;
        int64_t shape[] = {j->rows, j->dim};
        attn_config_value value = {.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = shape};
        attn_json_begin(&json, j->cli->context, false);
        attn_json_object(&json, NULL);
        attn_json_text(&json, "array", path);
        attn_json_value(&json, "shape", &value);
        attn_json_int(&json, "texts", j->texts);
        attn_json_int(&json, "cut", j->cut);
        attn_json_end(&json);
        return cli_print_json(j->cli, &json);
    }
    cli_print("%s: %lld x %lld\n", path, (long long)j->rows, (long long)j->dim);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ all texts */

/* Reports how many of all texts are computed. `done` of `total` windows of those that are computed now are. */
static void show(void *user, int64_t done, int64_t total)
{
    const job *j = user;
    int64_t texts = j->texts + (total > 0 ? j->together * done / total : 0);
    cli_watch_work("texts", texts, j->all < 0 || texts <= j->all ? j->all : -1);
}

static int compute(job *j, int64_t n)
{
    int64_t rows = 0;
    j->together = n;
    for (int64_t i = 0; i < n; i++)
        rows += attn_encoder_rows(j->encoder, &j->tokens[i], &j->how);
    float *vectors = attn__alloc(j->cli->context, attn__size_mul((size_t)(rows * j->dim), sizeof *vectors));
    if (!vectors)
        return cli_failed(j->cli, NULL);
    int code = attn_encoder_run(j->encoder, j->tokens, n, &j->how, vectors) == ATTN_OK ? put(j, n, vectors)
                                                                                       : cli_failed(j->cli, NULL);
    attn__free(j->cli->context, vectors);
    return code;
}

/* Reads the next texts and computes them. *n is their number, 0 at the end. */
static int step(job *j, reader *r, int64_t *n)
{
    size_t bytes = 0;
    bool found = true;
    int code = CLI_OK;
    *n = 0;
    while (code == CLI_OK && *n < AHEAD && bytes < AHEAD_BYTES) {
        record *next = &j->records[*n];
        const char *path = r->path; /* of the protein, whose file may have ended */
        code = next_record(r, next, &found);
        if (code != CLI_OK || !found)
            break;
        path = r->path ? r->path : path;
        code = split(j, path, next, &j->tokens[*n]);
        bytes += next->length;
        j->cut += j->tokens[*n].cut;
        j->windowed += j->encoder->info.protein && j->tokens[*n].n > j->encoder->info.max_length;
        ++*n;
    }
    if (code == CLI_OK && *n > 0 && j->texts == 0)
        code = begin_files(j, j->records[0].name != NULL);
    if (code == CLI_OK && *n > 0)
        code = compute(j, *n);
    for (int64_t i = 0; i < *n; i++) {
        free(j->records[i].text);
        free(j->records[i].name);
        attn_encoder_text_free(j->encoder, &j->tokens[i]);
    }
    return code;
}

static int set_prompt(const cli_call *cli, attn_encoder *encoder, const char *option)
{
    const char *name = cli_text(cli, "prompt_name");
    if (!cli_given(cli, option) && !*name)
        return CLI_OK;
    if (attn_encoder_prompt(encoder, cli_given(cli, option) ? cli_text(cli, option) : NULL, *name ? name : NULL) ==
        ATTN_OK)
        return CLI_OK;
    return cli_failed(cli, NULL);
}

static int read_query(job *j)
{
    const char *text = cli_text(j->cli, "similar");
    record query = {.text = (char *)(uintptr_t)text, .length = strlen(text), .line = 1};
    attn_encoder_text tokens = {0};
    if (!cli_given(j->cli, "similar"))
        return CLI_OK;
    if (j->how.pool == ATTN_POOL_NONE)
        return cli_fail(CLI_BAD, "--similar needs one vector for each text, but --pool none gives several");
    j->top = cli_int(j->cli, "top");
    j->best = calloc((size_t)j->top, sizeof *j->best);
    j->query = malloc((size_t)j->dim * sizeof *j->query);
    if (!j->best || !j->query)
        return cli_fail(CLI_FAILED, "out of memory");
    int code = set_prompt(j->cli, j->encoder, cli_given(j->cli, "query_prompt") ? "query_prompt" : "prompt");
    if (code == CLI_OK)
        code = split(j, "--similar", &query, &tokens);
    if (code == CLI_OK && attn_encoder_run(j->encoder, &tokens, 1, &j->how, j->query) != ATTN_OK)
        code = cli_failed(j->cli, "--similar");
    attn_encoder_text_free(j->encoder, &tokens);
    return code;
}

static void tell(const job *j)
{
    const attn_encoder_info *info = attn_encoder_about(j->encoder);
    if (!info->pooled && !info->protein && j->how.pool == ATTN_POOL_OWN)
        cli_note(
            j->cli,
            "note: the directory has no modules.json that says how tokens are pooled; this is their mean (--pool)");
    if (j->cut > 0)
        cli_note(j->cli, "note: %lld of %lld texts had more than %lld tokens and were cut (--max-length)",
                 (long long)j->cut, (long long)j->texts, (long long)info->max_length);
    if (j->windowed > 0)
        cli_note(j->cli,
                 "note: %lld of %lld proteins had more than %lld residues and were computed in windows of that length "
                 "that overlap by half (--max-length)",
                 (long long)j->windowed, (long long)j->texts, (long long)info->max_length - 2);
}

static int embed(job *j)
{
    reader r = {.cli = j->cli, .protein = j->encoder->info.protein && !cli_flag(j->cli, "ids")};
    int64_t n = 1;
    int code = read_query(j);
    if (code == CLI_OK)
        code = set_prompt(j->cli, j->encoder, "prompt");
    j->all = count_all(j->cli, r.protein);
    cli_watch_show(show, j);
    show(j, 0, 0);
    while (code == CLI_OK && n > 0)
        code = step(j, &r, &n);
    cli_watch_show(NULL, NULL);
    cli_watch_work(NULL, 0, 0);
    if (r.file && r.file != stdin)
        fclose(r.file);
    free(r.line);
    free(r.pending);
    if (code == CLI_OK && j->texts == 0 && !j->query)
        code = begin_files(j, false); /* an array without rows */
    code = end_files(j, code);
    if (code == CLI_OK && j->query)
        code = print_ranked(j);
    if (code == CLI_OK)
        tell(j);
    return code;
}

int cli_encoder_load(const cli_call *cli, attn_encoder **encoder)
{
    const char *names = cli_text(cli, "names"), *regression = cli_text(cli, "regression");
    attn_encoder_load_options how = {.names = names && *names ? names : NULL,
                                     .regression = regression && *regression ? regression : NULL,
                                     .max_length = cli_int(cli, "max_length")};
    return attn_encoder_load(encoder, cli->context, cli_text(cli, "model"), &how) == ATTN_OK ? CLI_OK
                                                                                             : cli_failed(cli, NULL);
}

int cli_embed_refuse(const cli_call *cli, const char *const *names, const char *whose, const char *kind)
{
    char spelled[64];
    for (; *names; names++)
        if (cli_given(cli, *names))
            return cli_fail(CLI_BAD, "--%s is an option of %s; %s is %s",
                            cli_option_spell(&(cli_option){.key.name = *names}, spelled), whose, cli_text(cli, "model"),
                            kind);
    return CLI_OK;
}

/* Refuses options that only models of alignments have. */
static int refuse_others(const cli_call *cli)
{
    static const char *const others[] = {"what", "layer", "depth", "select", "memory", "esm_compat", NULL};
    return cli_embed_refuse(cli, others, "models of alignments", "an encoder");
}

bool cli_encoder_is(const cli_call *cli)
{
    return attn__encoder_is_at(cli->context, cli_text(cli, "model"));
}

int cli_encoder_of_proteins(const cli_call *cli, attn_encoder **encoder)
{
    int code = refuse_others(cli);
    if (code == CLI_OK)
        code = cli_encoder_load(cli, encoder);
    if (code == CLI_OK && !attn_encoder_about(*encoder)->protein)
        code =
            cli_fail(CLI_BAD, "%s: the model is an encoder of texts; expected one of proteins", cli_text(cli, "model"));
    return code;
}

int cli_encoder_protein(const cli_call *cli, const attn_encoder *encoder, const char *path, const char *query,
                        attn_encoder_text *tokens)
{
    if (attn_encoder_tokens(encoder, query, strlen(query), tokens) != ATTN_OK)
        return cli_failed(cli, path);
    int64_t most = attn_encoder_about(encoder)->max_length;
    if (tokens->n > most)
        cli_note(cli, "note: %s: %lld residues, computed in windows of %lld that overlap by half (--max-length)", path,
                 (long long)tokens->n - 2, (long long)most - 2);
    return CLI_OK;
}

int cli_embed_texts(const cli_call *cli)
{
    int pool = 0, code = refuse_others(cli);
    if (code != CLI_OK)
        return code;
    if (cli_flag(cli, "normalize") && cli_flag(cli, "unnormalized"))
        return cli_fail(CLI_BAD, "--normalize and --unnormalized cannot be used together");
    if (cli_given(cli, "similar") && cli_given(cli, "out"))
        return cli_fail(CLI_BAD, "--similar writes no file; leave out --out");
    job *j = calloc(1, sizeof *j);
    if (!j)
        return cli_fail(CLI_FAILED, "out of memory");
    j->cli = cli;
    while (strcmp(cli_embed_pools[pool], cli_text(cli, "pool")) != 0)
        pool++;
    code = cli_encoder_load(cli, &j->encoder);
    if (code == CLI_OK) {
        const attn_encoder_info *info = attn_encoder_about(j->encoder);
        j->dim = info->dim;
        j->how = (attn_encoder_options){.pool = (attn_pool)pool,
                                        .normalize = cli_flag(cli, "normalize")      ? ATTN_NORMALIZE_YES
                                                     : cli_flag(cli, "unnormalized") ? ATTN_NORMALIZE_NO
                                                                                     : ATTN_NORMALIZE_OWN,
                                        .max_tokens = cli_int(cli, "batch")};
        code = embed(j);
    }
    attn_encoder_destroy(j->encoder);
    for (int64_t i = 0; i < j->nbest; i++)
        free(j->best[i].text);
    free(j->best);
    free(j->query);
    free(j);
    return code;
}
