/* SPDX-License-Identifier: MIT
 * attn detect: finds objects in pictures. */
#include "commands.h"
#include "drawing.h"
#include "failures.h"
#include "foreign.h"

#include "apps/detector/boxes_files.h"
#include "apps/detector/detector.h"
#include "apps/images/source.h"
#include "dist/join.h"
#include "io/file.h"
#include "plot/boxes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const formats[] = {"png", "svg", NULL};

static const cli_option options[] = {
    CLI_TEXT("model", 'm', "PATH", NULL,
             "a directory of attn train detect or of Hugging Face, or a checkpoint of DETR"),
    CLI_REAL("threshold", "0.7", 0, 1, "least score of the boxes that are printed or drawn"),
    CLI_WRITES(TEXT, "out", 'o', "DIR", "", "draw the boxes: one picture a file, in this directory"),
    CLI_CHOICE("format", formats, "png", "of the pictures drawn"),
    CLI_WRITES(TEXT, "coco", 0, "FILE", "", "write all boxes as COCO's results, whatever their score"),
    CLI_TEXT("data", 0, "FILE", "", "COCO's annotations: the ids of the pictures in --coco, by their names"),
    CLI_DETECTED_SIZE,
    CLI_TEXT("classes", 0, "FILE", "", "names of the model's classes, a line each"),
    CLI_NAMES_LONG,
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"IMAGE|FOLDER... --model PATH [--threshold 0.7] [-o DIR]", NULL};

static const char description[] =
    "Finds objects in PNG, JPEG, WebP, BMP and PNM pictures of any size with a DETR (Carion et al. 2020), and prints "
    "one line a box, the best first: file, name, score, and left, top, right and bottom in pixels, with tabs, or in "
    "columns on a terminal. A box may reach beyond its picture. A folder stands for all its pictures.\n"
    "\n"
    "A picture is resized as facebookresearch/detr does it (bilinear, anti-aliased): its short side to 800 pixels, "
    "or less where its long side would exceed 1333. With --size both bounds change in proportion.\n"
    "\n"
    "PATH is a directory that attn train detect made, one of Hugging Face's, or a .pth file of DETR's authors. Their "
    "classes are COCO's, whose names are built in. --json prints {\"file\", \"width\", \"height\", \"detections\"}, "
    "and for each detection its score, id, label and box. attn eval --coco FILE --data ANNOTATIONS evaluates what "
    "--coco writes. Started by mpirun, the pictures are spread over its processes, except with --json and --coco.";

static const char *const examples[] = {
    "attn detect shapes/valid --model shapes/model -o found",
    "attn detect street.jpg --model detr-r50.pth -o found",
    "attn detect val2017 --model shapes --coco results.json --data annotations.json",
    "attn detect *.png --model shapes --threshold 0.5 --json",
    NULL,
};

/* ------------------------------------------------------------------------------------------- the pictures */

/* Paths of all pictures; folders are replaced by the pictures in them. */
typedef struct files {
    char **paths;
    char **drawn; /* with --out: paths of the drawn pictures; NULL: none are drawn */
    int n;
} files;

/* Adds a path, which is owned by the list after this call. */
static int add_file(const cli_call *cli, files *f, char *path)
{
    char **grown = path ? attn__grow(cli->context, f->paths, f->n, sizeof *grown) : NULL;
    if (!grown) {
        attn__free(cli->context, path);
        return cli_failed(cli, NULL);
    }
    f->paths = grown;
    f->paths[f->n++] = path;
    return CLI_OK;
}

static int add_folder(const cli_call *cli, files *f, const char *folder)
{
    attn_entries entries = {0};
    int code = CLI_OK, before = f->n;
    if (attn_directory_list(&entries, cli->context, folder, false) != ATTN_OK)
        return cli_failed(cli, NULL);
    for (int64_t i = 0; i < entries.n && code == CLI_OK; i++)
        if (attn__is_image_name(entries.names[i]))
            code = add_file(cli, f, attn__join(cli->context, folder, entries.names[i]));
    attn_entries_free(cli->context, &entries);
    if (code == CLI_OK && f->n == before)
        return cli_fail(CLI_BAD, "%s: the folder has no pictures (PNG, JPEG, WebP, BMP or PNM files)", folder);
    return code;
}

/* Returns the length of the longest common start of two paths that ends with a slash. */
static size_t common_folder(const char *a, const char *b)
{
    size_t length = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        length = a[i] == '/' ? i + 1 : length;
    return length;
}

/* Names the drawn pictures. The folders in which the pictures differ are kept below --out: cam1/1.png and cam2/1.png
 * become OUT/cam1/1.png and OUT/cam2/1.png. Claims all of them. */
static int name_drawn(const cli_call *cli, files *f)
{
    const char *out = cli_text(cli, "out"), *format = cli_text(cli, "format");
    attn_context *context = cli->context;
    char **whole = attn__alloc_zero(context, attn__size_mul((size_t)f->n, sizeof *whole));
    f->drawn = attn__alloc_zero(context, attn__size_mul((size_t)f->n, sizeof *f->drawn));
    attn_status status = whole && f->drawn ? ATTN_OK : ATTN_ERROR_MEMORY;
    const char *first = NULL;
    size_t common = 0;
    for (int i = 0; i < f->n && status == ATTN_OK; i++) {
        char *path = whole[i] = cli_path_below_root(cli, f->paths[i]);
        if (!path) {
            status = ATTN_ERROR_MEMORY;
        } else {
            size_t own = first ? common_folder(first, path) : attn__path_folder(path);
            common = !first || own < common ? own : common;
            first = first ? first : path;
        }
    }
    int code = status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    for (int i = 0; i < f->n && status == ATTN_OK && code == CLI_OK; i++) {
        const char *name = whole[i] + common;
        size_t length = attn__path_stem(name);
        size_t size = strlen(out) + length + strlen(format) + 3;
        f->drawn[i] = attn__alloc(context, size);
        if (f->drawn[i])
            snprintf(f->drawn[i], size, "%s/%.*s.%s", out, (int)length, name, format);
        code = f->drawn[i] ? cli_claim(cli, f->drawn[i], f->paths[i]) : cli_failed(cli, NULL);
    }
    for (int i = 0; whole && i < f->n; i++)
        attn__free(context, whole[i]);
    attn__free(context, whole);
    return code;
}

static int collect(const cli_call *cli, files *f)
{
    int code = CLI_OK;
    for (int i = 0; i < cli->nwords && code == CLI_OK; i++)
        code = attn__is_directory(cli->words[i]) ? add_folder(cli, f, cli->words[i])
                                                 : add_file(cli, f, attn__strdup(cli->context, cli->words[i]));
    for (int i = 0; i < f->n && code == CLI_OK; i++)
        code = cli_reads(cli, f->paths[i]);
    return code == CLI_OK && cli_given(cli, "out") ? name_drawn(cli, f) : code;
}

static void free_files(const cli_call *cli, files *f)
{
    for (int i = 0; i < f->n; i++) {
        attn__free(cli->context, f->paths[i]);
        attn__free(cli->context, f->drawn ? f->drawn[i] : NULL);
    }
    attn__free(cli->context, f->paths);
    attn__free(cli->context, f->drawn);
}

/* ------------------------------------------------------------------------------------------------ a picture */

typedef struct search {
    const cli_call *cli;
    attn_detector *detector;
    const files *files;
    attn_detection *found; /* detections of one picture, room for one per object query */
    int64_t queries;
    attn_json *json; /* JSON output; NULL: plain text */
    const attn__box_set *known;
    attn__detection *results;
    int64_t nresults;
} search;

static int64_t above(const search *s, double threshold)
{
    int64_t n = 0;
    while (n < s->queries && s->found[n].score >= threshold)
        n++;
    return n;
}

/* Prints the boxes of a picture: in aligned columns on a terminal, otherwise with tabs. */
static void print_one(const search *s, const char *path, int64_t n)
{
    const char *const *names = s->detector->classes.names;
    bool aligned = isatty(STDOUT_FILENO);
    int width = 0;
    for (int64_t i = 0; aligned && i < n; i++) {
        int own = cli_width(names[s->found[i].label]);
        width = own > width ? own : width;
    }
    for (int64_t i = 0; i < n; i++) {
        const attn_detection *f = &s->found[i];
        const char *name = names[f->label];
        if (aligned)
            cli_print("%s  %s%*s  %.4f %8.2f %8.2f %8.2f %8.2f\n", path, name, width - cli_width(name), "", f->score,
                      f->left, f->top, f->right, f->bottom);
        else
            cli_print("%s\t%s\t%.4f\t%.2f\t%.2f\t%.2f\t%.2f\n", path, name, f->score, f->left, f->top, f->right,
                      f->bottom);
    }
}

static void json_one(const search *s, const char *path, const attn_image *image, int64_t n)
{
    attn_json *json = s->json;
    attn_json_object(json, NULL);
    attn_json_text(json, "file", path);
    attn_json_int(json, "width", image->width);
    attn_json_int(json, "height", image->height);
    attn_json_array(json, "detections");
    for (int64_t i = 0; i < n; i++) {
        const attn_detection *f = &s->found[i];
        attn_json_object(json, NULL);
        attn_json_real(json, "score", f->score);
        attn_json_int(json, "id", s->detector->classes.ids[f->label]);
        attn_json_text(json, "label", s->detector->classes.names[f->label]);
        attn_json_object(json, "box");
        attn_json_real(json, "xmin", f->left);
        attn_json_real(json, "ymin", f->top);
        attn_json_real(json, "xmax", f->right);
        attn_json_real(json, "ymax", f->bottom);
        attn_json_end(json);
        attn_json_end(json);
    }
    attn_json_end(json);
    attn_json_end(json);
}

/* Makes the folder, which may be one of several below --out. */
static attn_status write_drawn(const cli_call *cli, const char *to, const attn_bytes *picture)
{
    char *folder = attn__path_parent(cli->context, to);
    if (!folder)
        return ATTN_ERROR_MEMORY;
    attn_status status = attn_directory_create(cli->context, folder);
    attn__free(cli->context, folder);
    return status == ATTN_OK ? attn_file_write(cli->context, to, picture->data, picture->size) : status;
}

static int draw_one(const search *s, const char *to, const attn_image *image, int64_t n)
{
    const cli_call *cli = s->cli;
    attn__drawn_box *boxes = calloc((size_t)n + 1, sizeof *boxes);
    const char *format = cli_text(cli, "format");
    attn_bytes picture = {0};
    if (!boxes)
        return cli_fail(CLI_FAILED, "out of memory");
    for (int64_t i = 0; i < n; i++) {
        const attn_detection *f = &s->found[i];
        boxes[i] = (attn__drawn_box){f->left,  f->top,  f->right, f->bottom, s->detector->classes.names[f->label],
                                     f->score, f->label};
    }
    attn__drawn_boxes all = {image->width, image->height, image->channels, image->pixels, n, boxes};
    attn_status status = attn__boxes_render(&picture, cli->context, &all,
                                            strcmp(format, formats[1]) == 0 ? ATTN_PLOT_SVG : ATTN_PLOT_PNG);
    if (status == ATTN_OK)
        status = write_drawn(cli, to, &picture);
    attn_bytes_free(cli->context, &picture);
    free(boxes);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* Returns the number of components, from the last one on, in which two paths agree. */
static int common_end(const char *a, const char *b)
{
    const char *x = a + strlen(a), *y = b + strlen(b);
    int n = 0;
    while (x > a && y > b && x[-1] == y[-1]) {
        x--;
        y--;
        n += *x == '/';
    }
    return n + ((x == a || x[-1] == '/') && (y == b || y[-1] == '/') && *x != '/');
}

/* Finds the id of a picture in the data set of --data: that of the file whose path agrees with the picture's in the
 * most components from the end. */
static int known_id(const search *s, const char *path, int64_t *id)
{
    const char *found = NULL, *second = NULL;
    int most = 0;
    for (int64_t i = 0; i < s->known->nimages; i++) {
        const char *file = s->known->images[i].file;
        int n = file ? common_end(file, path) : 0;
        if (n == 0 || n < most)
            continue;
        second = n == most ? file : NULL;
        if (n > most) {
            most = n;
            found = file;
            *id = s->known->images[i].id;
        }
    }
    if (!found)
        return cli_fail(CLI_BAD, "%s: the annotations %s list no picture of this name", path, cli_text(s->cli, "data"));
    return second ? cli_fail(CLI_BAD, "%s: the annotations %s list two pictures that match this path: %s and %s", path,
                             cli_text(s->cli, "data"), found, second)
                  : CLI_OK;
}

/* Without --data the file name, without its ending, is the id. */
static int image_id(const search *s, const char *path, int64_t *id)
{
    const char *base = attn__path_last(path);
    size_t digits = strspn(base, "0123456789");
    if (s->known)
        return known_id(s, path, id);
    *id = strtoll(base, NULL, 10);
    return digits > 0 && digits <= 18 && base[digits] == '.' && !strchr(base + digits + 1, '.')
               ? CLI_OK
               : cli_fail(
                     CLI_BAD,
                     "%s: COCO's results need an image id, but the file's name is not a number; give --data with the "
                     "annotations that list the image",
                     path);
}

static int keep_results(search *s, const char *path)
{
    int64_t id = 0;
    int code = image_id(s, path, &id);
    for (int64_t i = 0; i < s->nresults && code == CLI_OK; i += s->queries)
        if (s->results[i].image == id)
            code = cli_fail(CLI_BAD, "%s: another picture has the same id, %lld", path, (long long)id);
    if (code != CLI_OK)
        return code;
    attn__detection *grown = realloc(s->results, (size_t)(s->nresults + s->queries) * sizeof *grown);
    if (!grown)
        return cli_fail(CLI_FAILED, "out of memory");
    s->results = grown;
    for (int64_t i = 0; i < s->queries; i++) {
        const attn_detection *f = &s->found[i];
        s->results[s->nresults++] = (attn__detection){.box = {f->left, f->top, f->right - f->left, f->bottom - f->top},
                                                      .score = f->score,
                                                      .image = id,
                                                      .category = s->detector->classes.ids[f->label]};
    }
    return CLI_OK;
}

static int detect_one(void *user, int i)
{
    search *s = user;
    const cli_call *cli = s->cli;
    const char *path = s->files->paths[i];
    attn_image image = {0};
    attn_status status = attn_image_read(&image, cli->context, path, NULL);
    if (status == ATTN_OK)
        status = attn_detector_detect(s->detector, &image, s->found);
    int code = status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    int64_t n = code == CLI_OK ? above(s, cli_real(cli, "threshold")) : 0;
    if (code == CLI_OK && cli_given(cli, "coco"))
        code = keep_results(s, path);
    if (code == CLI_OK && s->files->drawn)
        code = draw_one(s, s->files->drawn[i], &image, n);
    if (code == CLI_OK && s->json)
        json_one(s, path, &image, n);
    else if (code == CLI_OK && !cli_given(cli, "coco"))
        print_one(s, path, n);
    enum { FEW = 10 }; /* with more pictures the notes would hide the boxes */
    if (code == CLI_OK && n == 0 && s->queries > 0 && s->files->n <= FEW && !cli_given(cli, "coco"))
        cli_note(cli, "%s: no box has a score of %g; the best is %.4f (%s)", path, cli_real(cli, "threshold"),
                 s->found[0].score, s->detector->classes.names[s->found[0].label]);
    attn_image_free(cli->context, &image);
    return code;
}

/* ------------------------------------------------------------------------------------------------- all of them */

/* Detects objects in this process only, because the output is a single JSON array. */
static int detect_here(search *s)
{
    cli_failures failures = {.cli = s->cli, .things = "files"};
    int code = CLI_OK;
    for (int i = 0; i < s->files->n && code == CLI_OK; i++) {
        cli_watch_work("files", i, s->files->n);
        code = cli_failures_note(&failures, detect_one(s, i), s->files->paths[i]);
    }
    if (code == CLI_OK && cli_given(s->cli, "coco") &&
        attn__coco_results_write(s->cli->context, cli_text(s->cli, "coco"), s->results, s->nresults) != ATTN_OK)
        code = cli_failed(s->cli, NULL);
    if (s->json)
        attn_json_end(s->json);
    if (code == CLI_OK && s->json)
        code = cli_print_json(s->cli, s->json);
    else if (s->json)
        attn_json_free(s->json);
    return code == CLI_OK ? cli_failures_end(&failures) : code;
}

static int detect_all(search *s)
{
    const cli_call *cli = s->cli;
    attn_json json;
    if (!cli->json && !cli_given(cli, "coco"))
        return cli_spread(cli, s->files->n, (const char *const *)s->files->paths, detect_one, s);
    if (attn_ranks_rank(cli->context) != 0)
        return CLI_OK;
    if (cli->json) {
        attn_json_begin(&json, cli->context, true);
        attn_json_array(&json, NULL);
        s->json = &json;
    }
    int code = detect_here(s);
    s->json = NULL;
    return code;
}

static int load_and_detect(cli_call *cli, const files *f)
{
    const char *classes = cli_text(cli, "classes"), *data = cli_text(cli, "data"), *out = cli_text(cli, "out");
    attn_detector *detector = NULL;
    attn__box_set *known = NULL;
    if (data[0] && !cli_given(cli, "coco"))
        return cli_fail(CLI_BAD, "--data gives the ids of the pictures in COCO's results, and needs --coco FILE");
    if (cli_given(cli, "format") && !out[0])
        return cli_fail(CLI_BAD, "--format is the format of the pictures in --out DIR, and needs --out");
    const attn_detector_options how = {
        .names = cli_names(cli), .class_names = classes[0] ? classes : NULL, .size = cli_int(cli, "size")};
    attn_status status = attn_detector_load(&detector, cli->context, cli_text(cli, "model"), &how);
    if (status == ATTN_OK && data[0])
        status = attn__boxes_read(&known, cli->context, data, "val", NULL);
    if (status == ATTN_OK && out[0])
        status = attn_directory_create(cli->context, out);
    int code = cli_ranks_agree(cli, status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL));
    if (code == CLI_OK) {
        search s = {.cli = cli, .detector = detector, .files = f, .known = known};
        s.queries = attn_detector_queries(detector);
        s.found = calloc((size_t)s.queries, sizeof *s.found);
        code = s.found ? detect_all(&s) : cli_fail(CLI_FAILED, "out of memory");
        if (code == CLI_OK && out[0] && attn_ranks_rank(cli->context) == 0)
            cli_note(cli, f->n == 1 ? "the boxes are drawn in %s" : "the boxes are drawn in %s, a picture a file",
                     f->n == 1 ? f->drawn[0] : out);
        free(s.found);
        free(s.results);
    }
    attn__box_set_destroy(known);
    attn_detector_destroy(detector);
    return code;
}

static int run(cli_call *cli)
{
    files f = {0};
    attn_context_set_inference(cli->context, true);
    int code = cli_ranks_join(cli);
    if (code == CLI_OK)
        code = collect(cli, &f);
    code = cli_ranks_leave(cli, code == CLI_OK ? load_and_detect(cli, &f) : code);
    free_files(cli, &f);
    return code;
}

const cli_command cli_detect = {
    "detect", "find objects in pictures", usage, description, CLI_OPTIONS(options), NULL, examples, 1, -1, run,
};
