/* SPDX-License-Identifier: MIT
 *
 * attn contacts: predicts which residues of a protein touch, from an alignment of its family.
 */
#include "commands.h"
#include "embed_texts.h"
#include "failures.h"
#include "family.h"
#include "picture.h"

#include "attn/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_FAMILY_OPTIONS,
    CLI_ENCODER_LENGTH,
    CLI_WRITES(TEXT, "out", 'o', "DIR", ".", "the directory that gets the results"),
    CLI_TEXT(
        "structure", 's', "FILE", "",
        "PDB or mmCIF file to compare with, plain or gzip; none: no comparison; default: NAME.pdb or NAME.cif in the "
        "alignment's folder, if there is one"),
    CLI_TEXT("chain", 0, "NAME", "", "chain of the structure; default: the one that fits the query best"),
    CLI_FLAG("imputed_beta", 0,
             "place every C-beta by ideal geometry, as ESM measures; default: C-beta, C-alpha of glycine"),
    CLI_REAL("least", "0.01", 0, 1, "pairs with a lower probability are left out of the table"),
    CLI_INT("top", 0, "0", 0, 1e6, "pairs marked in the picture; 0: as many as there are residues"),
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"FILE... --model PATH [-o DIR]", NULL};

static const char description[] =
    "FILE is an alignment whose first sequence is the protein in question: a3m, FASTA, PIR, a2m, Stockholm or Clustal, "
    "plain or gzip. For each one DIR gets\n"
    "\n"
    "  NAME.contacts.npy  probabilities [residues, residues] that two C-betas are within 8 angstrom\n"
    "  NAME.contacts.tsv  pairs of residues at least 6 apart, the most probable first\n"
    "  NAME.contacts.png  the map, with the best pairs marked\n"
    "\n"
    "With ESM-2 (a .pt or a directory of Hugging Face) FILE is the protein alone, or an alignment of which only the first "
    "sequence is read. A protein longer than --max-length is computed in windows that overlap by half; pairs that no "
    "window has are NaN and not in the table.\n"
    "\n"
    "Residues are those of the first sequence, numbered from 1; its gaps are left out of the results. With a "
    "structure the table has distances, the picture shows what is true, and the share of right pairs among the best L, "
    "L/2 and L/5 is printed (L: residues with known places) for short (6 to 11 apart), medium (12 to 23) and long (24 "
    "and more) range.\n"
    "\n"
    "Started by mpirun, the files are spread over its processes.";

static const char *const examples[] = {
    "attn contacts family.a3m --model esm_msa1b_t12_100M_UR50S.pt",
    "attn contacts protein.fasta --model esm2_t33_650M_UR50D.pt",
    "attn contacts family.a3m.gz --model msa1b --memory 2G --structure 1abc.cif --chain B -o results",
    NULL,
};

typedef struct contacts {
    cli_family family;
    const char *query; /* letters of all residues of the query, which is the first sequence */
    int64_t n;
    float *p;         /* probabilities [n,n], NAN for residues without a column */
    float *distances; /* [n,n]; NULL: there is no structure */
    cli_structure structure;
    double precision[3][3];
    int64_t counted[3][3];
} contacts;

static const struct {
    const char *name;
    int64_t min, max;
} ranges[] = {{"short", 6, 12}, {"medium", 12, 24}, {"long", 24, 0}};
static const char *const parts[] = {"L", "L/2", "L/5"};
static const int64_t divisors[] = {1, 2, 5};

/* ------------------------------------------------------------------------------------------ the structure */

/* Finds the structure: the file of --structure, or else a file in the alignment's folder that is named like the
 * alignment. *path stays NULL if --structure is "none", or is not given and there is no such file. The caller frees it.
 * Returns an exit code. */
static int find_structure(const contacts *c, char **path)
{
    static const char *const endings[] = {".pdb", ".cif", ".ent", ".mmcif"};
    const cli_call *cli = c->family.cli;
    const char *given = cli_text(cli, "structure");
    char stem[256];
    if (given && strcmp(given, "none") == 0)
        return CLI_OK;
    if (given && *given)
        return (*path = strdup(given)) ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    int folder = (int)attn__path_folder(c->family.path);
    cli_family_stem(c->family.path, stem);
    for (size_t i = 0; i < 2 * sizeof endings / sizeof *endings; i++) {
        size_t size = (size_t)folder + strlen(stem) + strlen(endings[i / 2]) + sizeof ".gz";
        char *file = malloc(size);
        if (!file)
            return cli_fail(CLI_FAILED, "out of memory");
        snprintf(file, size, "%.*s%s%s%s", folder, c->family.path, stem, endings[i / 2], i % 2 ? ".gz" : "");
        if (attn_file_exists(file)) {
            *path = file;
            return CLI_OK;
        }
        free(file);
    }
    return CLI_OK;
}

/* Converts a map from [columns, columns] to [residues, residues] of the query. A residue without a column gets NAN. */
static float *by_residues(const contacts *c, const float *map)
{
    const attn_alignment *a = c->family.all;
    int64_t columns = attn_alignment_columns(a);
    float *to = malloc((size_t)(c->n * c->n) * sizeof *to);
    for (int64_t i = 0; to && i < c->n * c->n; i++)
        to[i] = NAN;
    for (int64_t i = 0; to && i < columns; i++) {
        int64_t row = attn_alignment_number(a, i) - 1;
        for (int64_t j = 0; row >= 0 && j < columns; j++) {
            int64_t column = attn_alignment_number(a, j) - 1;
            if (column >= 0)
                to[row * c->n + column] = map[i * columns + j];
        }
    }
    return to;
}

static attn_status measure(contacts *c)
{
    attn_status status = ATTN_OK;
    for (int r = 0; r < 3 && status == ATTN_OK; r++) {
        for (int d = 0; d < 3 && status == ATTN_OK; d++) {
            attn_contact_range range = {.min_separation = ranges[r].min, .max_separation = ranges[r].max};
            range.count = c->structure.resolved / divisors[d] > 1 ? c->structure.resolved / divisors[d] : 1;
            double precision = 0;
            int64_t counted = 0;
            status =
                attn_contact_precision(c->family.cli->context, c->p, c->distances, c->n, &range, &precision, &counted);
            c->precision[r][d] = precision;
            c->counted[r][d] = counted;
        }
    }
    return status;
}

static int compare_with_structure(contacts *c)
{
    const cli_call *cli = c->family.cli;
    const char *chain = cli_text(cli, "chain");
    attn_cbeta beta = cli_flag(cli, "imputed_beta") ? ATTN_CBETA_IMPUTED : ATTN_CBETA_ATOM;
    char *path = NULL;
    bool required = *cli_text(cli, "structure") || *chain;
    int code = find_structure(c, &path);
    if (path)
        code = cli_family_measure(&c->family, path, required, *chain ? chain : NULL, beta, &c->structure);
    free(path);
    if (code != CLI_OK || !c->structure.distances)
        return code;
    c->distances = by_residues(c, c->structure.distances);
    if (!c->distances)
        return cli_fail(CLI_FAILED, "%s: out of memory", c->family.path);
    return measure(c) == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* --------------------------------------------------------------------------------------------- the results */

typedef struct line {
    float p;
    int64_t i, j;
} line;

static int more_probable(const void *left, const void *right)
{
    const line *a = left, *b = right;
    if (a->p != b->p)
        return a->p < b->p ? 1 : -1;
    return a->i != b->i ? (a->i > b->i) - (a->i < b->i) : (a->j > b->j) - (a->j < b->j);
}

static int64_t collect(const contacts *c, line *lines)
{
    double least = cli_real(c->family.cli, "least");
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t j = i + 6; j < c->n; j++)
            if ((double)c->p[i * c->n + j] >= least)
                lines[n++] = (line){c->p[i * c->n + j], i, j};
    }
    qsort(lines, (size_t)n, sizeof *lines, more_probable);
    return n;
}

static int print_line(const contacts *c, const line *at, char *out, size_t size)
{
    int64_t apart = at->j - at->i;
    int range = apart < 12 ? 0 : apart < 24 ? 1 : 2;
    int n = snprintf(out, size, "%lld\t%lld\t%c\t%c\t%lld\t%s\t%.6f", (long long)at->i + 1, (long long)at->j + 1,
                     c->query[at->i], c->query[at->j], (long long)apart, ranges[range].name, (double)at->p);
    if (!c->distances)
        return n + snprintf(out + n, size - (size_t)n, "\n");
    double distance = (double)c->distances[at->i * c->n + at->j];
    if (isnan(distance))
        return n + snprintf(out + n, size - (size_t)n, "\t\t\n");
    return n + snprintf(out + n, size - (size_t)n, "\t%.2f\t%d\n", distance, distance < 8);
}

static int write_table(const contacts *c, const char *path)
{
    const cli_call *cli = c->family.cli;
    enum { WIDTH = 160 };
    line *lines = malloc((size_t)(c->n * c->n) * sizeof *lines);
    int64_t n = lines ? collect(c, lines) : 0;
    char *text = malloc((size_t)(n + 2) * WIDTH);
    if (!lines || !text) {
        free(lines);
        free(text);
        return cli_fail(CLI_FAILED, "%s: out of memory", path);
    }
    size_t used = (size_t)snprintf(text, 2 * WIDTH, "i\tj\tresidue_i\tresidue_j\tseparation\trange\tprobability%s\n",
                                   c->distances ? "\tdistance\tcontact" : "");
    for (int64_t k = 0; k < n; k++)
        used += (size_t)print_line(c, &lines[k], text + used, WIDTH);
    attn_status status = attn_file_write(cli->context, path, text, used);
    free(lines);
    free(text);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

static int write_picture(const contacts *c, const char *path)
{
    const cli_call *cli = c->family.cli;
    char title[320], stem[256];
    attn_bytes picture;
    snprintf(title, sizeof title, "%.200s: contacts of %lld residues", cli_family_stem(c->family.path, stem),
             (long long)c->n);
    attn_contact_map map = {
        .title = title, .n = c->n, .probabilities = c->p, .distances = c->distances, .top = cli_int(cli, "top")};
    attn_status status = attn_contact_map_render(&picture, cli->context, &map, ATTN_PLOT_PNG);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    attn_bytes_free(cli->context, &picture);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

static int write_array(const contacts *c, const char *path)
{
    const cli_call *cli = c->family.cli;
    attn_tensor *array;
    attn_status status = attn_tensor_create(&array, cli->context, ATTN_F32, 2, (int64_t[]){c->n, c->n});
    if (status == ATTN_OK) {
        memcpy(attn_tensor_data(array), c->p, (size_t)(c->n * c->n) * sizeof *c->p);
        status = attn_npy_write(array, cli->context, path);
    }
    attn_tensor_destroy(array);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

static const char *const endings[] = {"contacts.npy", "contacts.tsv", "contacts.png", NULL};

static int write_all(const contacts *c, char paths[3][ATTN__PATH])
{
    static int (*const writers[])(const contacts *, const char *) = {write_array, write_table, write_picture};
    const cli_call *cli = c->family.cli;
    const char *directory = cli_text(cli, "out");
    if (attn_directory_create(cli->context, directory) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    paths[2][0] = '\0';
    for (int i = 0; i < (cli_draws_pictures(cli) ? 3 : 2) && code == CLI_OK; i++) {
        code = cli_family_path(&c->family, directory, endings[i], paths[i]);
        if (code == CLI_OK)
            code = writers[i](c, paths[i]);
    }
    return code;
}

/* -------------------------------------------------------------------------------------------------- telling */

static void print_precision(const contacts *c)
{
    printf("  precision   %8s %8s %8s\n", parts[0], parts[1], parts[2]);
    for (int r = 0; r < 3; r++) {
        printf("  %-11s", ranges[r].name);
        for (int d = 0; d < 3; d++)
            if (isnan(c->precision[r][d]))
                printf(" %8s", "-");
            else
                printf(" %8.3f", c->precision[r][d]);
        puts("");
    }
}

static int print_json(const contacts *c, char paths[3][ATTN__PATH])
{
    attn_json json;
    attn_json_begin(&json, c->family.cli->context, false);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "alignment", c->family.path);
    attn_json_int(&json, "residues", c->n);
    attn_json_int(&json, "sequences", c->family.rows);
    attn_json_int(&json, "sequences_in_file", attn_alignment_rows(c->family.all));
    if (c->family.effective > 0)
        attn_json_real(&json, "effective_sequences", c->family.effective);
    attn_json_text(&json, "map", paths[0]);
    attn_json_text(&json, "table", paths[1]);
    if (*paths[2])
        attn_json_text(&json, "picture", paths[2]);
    if (c->distances) {
        cli_structure_json(&json, &c->structure);
        attn_json_object(&json, "precision");
        for (int r = 0; r < 3; r++) {
            attn_json_object(&json, ranges[r].name);
            for (int d = 0; d < 3; d++)
                attn_json_real(&json, parts[d], c->precision[r][d]);
            attn_json_end(&json);
        }
        attn_json_end(&json);
    }
    attn_json_end(&json);
    return cli_print_json(c->family.cli, &json);
}

/* Refuses probabilities that are equal for all pairs, because pairs could not be sorted by them. */
static int check_signal(const contacts *c)
{
    float least = 1, most = 0;
    for (int64_t i = 0; i < c->n; i++) {
        for (int64_t j = i + 6; j < c->n; j++) {
            float p = c->p[i * c->n + j];
            least = p < least ? p : least;
            most = p > most ? p : most;
        }
    }
    if (c->n <= 7 || most - least > 1e-6f * most)
        return CLI_OK;
    return cli_fail(
        CLI_BAD,
        "%s: every pair has the same probability, %.4g; either the model's contact regression uses no attention map "
        "(then fit a new one: attn train contacts with a larger --strength or more structures), or the alignment has "
        "no information",
        c->family.path, (double)most);
}

static int report(const contacts *c)
{
    char paths[3][ATTN__PATH] = {"", "", ""};
    int code = write_all(c, paths);
    if (code != CLI_OK)
        return code;
    if (c->family.cli->json)
        return print_json(c, paths);
    for (int i = 0; i < 3 && *paths[i]; i++)
        cli_print("%s\n", paths[i]);
    if (c->distances)
        print_precision(c);
    return CLI_OK;
}

typedef struct prediction {
    const cli_call *cli;
    attn_msa *msa;
    attn_encoder *encoder; /* NULL: the model is `msa` */
    attn_msa_options how;
} prediction;

/* Reads an alignment and predicts the contacts of its query. */
static int predict_family(const prediction *p, const char *path, contacts *c)
{
    attn_msa_result result;
    int code = cli_family_read(&c->family, p->cli, path);
    if (code == CLI_OK)
        code = cli_family_run(&c->family, p->msa, &p->how, &result);
    if (code != CLI_OK)
        return code;
    c->query = attn_alignment_query(c->family.all);
    c->n = (int64_t)strlen(c->query);
    c->p = by_residues(c, attn_tensor_data(result.contacts));
    return c->p ? CLI_OK : cli_fail(CLI_FAILED, "%s: out of memory", path);
}

/* Reads a protein, the first sequence of a file, and predicts its contacts without an alignment. */
static int predict_protein(const prediction *p, const char *path, contacts *c)
{
    attn_encoder_text tokens = {0};
    int code = cli_family_read_query(&c->family, p->cli, path);
    if (code != CLI_OK)
        return code;
    c->query = attn_alignment_query(c->family.all);
    c->n = (int64_t)strlen(c->query);
    c->p = malloc((size_t)(c->n * c->n) * sizeof *c->p);
    code = c->p ? cli_encoder_protein(p->cli, p->encoder, path, c->query, &tokens)
                : cli_fail(CLI_FAILED, "%s: out of memory", path);
    if (code == CLI_OK && attn_encoder_contacts(p->encoder, &tokens, c->p) != ATTN_OK)
        code = cli_failed(p->cli, path);
    attn_encoder_text_free(p->encoder, &tokens);
    return code;
}

static int predict(const prediction *p, const char *path)
{
    contacts c = {.n = 0};
    int code = p->encoder ? predict_protein(p, path, &c) : predict_family(p, path, &c);
    if (code == CLI_OK)
        code = compare_with_structure(&c);
    if (code == CLI_OK)
        code = check_signal(&c);
    if (code == CLI_OK)
        code = report(&c);
    free(c.p);
    free(c.distances);
    free(c.structure.distances);
    cli_family_free(&c.family);
    return code;
}

static int predict_one(void *user, int i)
{
    const prediction *p = user;
    return predict(p, p->cli->words[i]);
}

static int predict_all(cli_call *cli)
{
    prediction p = {.cli = cli, .how = {.contacts = true}};
    /* All ranks make the same decision here, so they all return. */
    if (cli->nwords > 1 && cli_given(cli, "structure"))
        return cli_fail(
            CLI_BAD,
            "--structure applies to one alignment, but %d are given; for several, put a file NAME.pdb beside "
            "each NAME.a3m",
            cli->nwords);
    int code = cli_family_claim(cli, endings);
    if (code == CLI_OK && cli_encoder_is(cli))
        code = cli_encoder_of_proteins(cli, &p.encoder);
    else if (code == CLI_OK)
        code = cli_family_bounds(cli, &p.how);
    if (code == CLI_OK && !p.encoder)
        code = cli_family_model(cli, &p.msa);
    code = cli_ranks_agree(cli, code);
    if (code == CLI_OK && !cli_draws_pictures(cli))
        cli_note(cli, "no picture is drawn, because this build of attn was made without cairo");
    if (code == CLI_OK)
        code = cli_spread(cli, cli->nwords, cli->words, predict_one, &p);
    attn_msa_destroy(p.msa);
    attn_encoder_destroy(p.encoder);
    return code;
}

static int run(cli_call *cli)
{
    attn_context_set_inference(cli->context, true);
    int code = cli_ranks_join(cli);
    return cli_ranks_leave(cli, code == CLI_OK ? predict_all(cli) : code);
}

const cli_command cli_contacts = {
    "contacts",
    "predict which residues of a protein touch",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    -1,
    run,
};
