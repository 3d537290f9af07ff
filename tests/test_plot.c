/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests pictures. They must have the form of their format and contain the data. Data that cannot be drawn must be
 * refused. `ATTN_PLOT_DIR=out build/tests/test_plot` keeps the pictures.
 */
#include "support/fixture.h"

#include "io/images/image.h"
#include "attn/plot.h"
#include "plot/boxes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const french[] = {"je", "suis", "chez", "moi", ".", "<eos>"};
static const char *const english[] = {
    "i'm", "home", "after", "an extraordinarily-long-token-that-must-be-cut-somewhere", ".", "<eos>"};

static void keep(const attn_bytes *picture, const char *name)
{
    const char *dir = getenv("ATTN_PLOT_DIR");
    if (!dir)
        return;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(picture->data, 1, picture->size, file);
    fclose(file);
}

static int64_t count(const attn_bytes *picture, const char *what)
{
    int64_t n = 0;
    for (size_t i = 0, m = strlen(what); i + m <= picture->size; i++)
        n += memcmp(picture->data + i, what, m) == 0;
    return n;
}

/* Makes two rows of four heads, of which the second row is causal. */
static attn_heatmaps example(attn_panel panels[8], float values[8][36], attn_panel_row rows[2])
{
    static const char *const titles[] = {"Head 1", "Head 2", "Head 3", "Head 4"};
    for (int p = 0; p < 8; p++) {
        for (int i = 0; i < 36; i++) {
            int r = i / 6, c = i % 6;
            values[p][i] = p >= 4 && c > r ? NAN : (float)exp(-0.5 * (r - c + p - 3) * (r - c + p - 3));
        }
        panels[p] = (attn_panel){titles[p % 4], 6, 6, values[p]};
    }
    rows[0] = (attn_panel_row){"Encoder-decoder attention, layer 1", french, english, NULL, NULL, 4, panels};
    rows[1] = (attn_panel_row){"Decoder self-attention, layer 1", french, french, NULL, NULL, 4, panels + 4};
    return (attn_heatmaps){.title = "i'm home . → je suis chez moi .", .n = 2, .rows = rows};
}

static void heatmaps_render_in_every_format(void **state)
{
    static const struct {
        const char *path, *magic;
    } formats[] = {{"maps.png", "\x89PNG"}, {"maps.svg", "<?xml"}, {"maps.PDF", "%PDF"}};
    attn_context *context = *state;
    attn_panel panels[8];
    attn_panel_row rows[2];
    float values[8][36];
    attn_heatmaps maps = example(panels, values, rows);
    for (size_t i = 0; i < 3; i++) {
        attn_plot_format format;
        attn_bytes picture;
        assert_int_equal(attn_plot_format_from_path(&format, context, formats[i].path), ATTN_OK);
        assert_int_equal(attn_heatmaps_render(&picture, context, &maps, format), ATTN_OK);
        assert_memory_equal(picture.data, formats[i].magic, strlen(formats[i].magic));
        keep(&picture, formats[i].path);
        attn_bytes_free(context, &picture);
    }
}

/* Reads the width and height in points from the first element of an SVG. */
static void size_of(const attn_bytes *svg, double *width, double *height)
{
    const char *w = strstr((const char *)svg->data, "width=\"");
    const char *h = strstr((const char *)svg->data, "height=\"");
    assert_non_null(w);
    assert_non_null(h);
    *width = strtod(w + strlen("width=\""), NULL);
    *height = strtod(h + strlen("height=\""), NULL);
}

/* 24 layers of 4 heads must fill several columns of a page, which contains every panel. */
static void many_layers_fold_into_columns(void **state)
{
    attn_context *context = *state;
    attn_panel panels[8];
    attn_panel_row rows[24];
    float values[8][36];
    attn_heatmaps maps = example(panels, values, rows);
    attn_bytes picture;
    double width, height, narrow, low;
    assert_int_equal(attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG), ATTN_OK);
    size_of(&picture, &narrow, &low);
    attn_bytes_free(context, &picture);
    for (int i = 2; i < 24; i++)
        rows[i] = rows[i % 2];
    maps.n = 24;
    assert_int_equal(attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG), ATTN_OK);
    size_of(&picture, &width, &height);
    assert_true(height <= 1.3 * width);
    assert_true(width * height > 8 * narrow * low && width * height < 20 * narrow * low);
    attn_bytes_free(context, &picture);
    maps.n = 2;
    assert_int_equal(attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG), ATTN_OK);
    size_of(&picture, &width, &height);
    assert_true(width == narrow && height == low);
    attn_bytes_free(context, &picture);
}

/* The second half of the rows is taller. Two columns must be just high enough for all rows. */
static void page_has_no_needless_columns(void **state)
{
    attn_context *context = *state;
    attn_panel panels[8], tall[4];
    attn_panel_row rows[6];
    float values[8][36], more[10 * 6] = {0};
    attn_heatmaps maps = example(panels, values, rows);
    for (int i = 0; i < 4; i++)
        tall[i] = (attn_panel){.values = more, .rows = 10, .cols = 6};
    for (int i = 1; i < 6; i++) {
        rows[i] = rows[0];
        if (i >= 2)
            rows[i].panels = tall, rows[i].row_labels = NULL;
    }
    attn_bytes picture;
    double one, height, width, low;
    assert_int_equal(attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG), ATTN_OK);
    size_of(&picture, &one, &low);
    attn_bytes_free(context, &picture);
    maps.n = 6;
    assert_int_equal(attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG), ATTN_OK);
    size_of(&picture, &width, &height);
    attn_bytes_free(context, &picture);
    assert_true(width > 1.5 * one && width < 2.5 * one);
}

static void draw_first_label(attn_bytes *picture, attn_context *context, const char *label)
{
    attn_panel panels[8];
    attn_panel_row rows[2];
    float values[8][36];
    const char *labels[6] = {label, "b", "c", "d", "e", "f"};
    attn_heatmaps maps = example(panels, values, rows);
    maps.n = 1;
    rows[0].row_labels = labels;
    rows[0].col_labels = french;
    assert_int_equal(attn_heatmaps_render(picture, context, &maps, ATTN_PLOT_PNG), ATTN_OK);
}

/* The private character U+10FFFD is in no font. It is drawn as its code point, because all missing characters would
 * look the same otherwise. */
static void glyphs_of_no_font_are_drawn_as_code_points(void **state)
{
    attn_context *context = *state;
    attn_bytes one, another, spelt;
    draw_first_label(&one, context, "\xF4\x8F\xBF\xBD");
    draw_first_label(&another, context, "\xF4\x8F\xBF\xBC");
    draw_first_label(&spelt, context, " U+10FFFD ");
    assert_true(one.size != another.size || memcmp(one.data, another.data, one.size) != 0);
    assert_int_equal(one.size, spelt.size);
    assert_memory_equal(one.data, spelt.data, one.size);
    attn_bytes_free(context, &one);
    attn_bytes_free(context, &another);
    attn_bytes_free(context, &spelt);
}

/* U+FFFE is valid in UTF-8, but cairo rejects it. */
static void noncharacters_are_drawn_as_code_points(void **state)
{
    attn_context *context = *state;
    attn_bytes one, spelt;
    draw_first_label(&one, context, "a\xEF\xBF\xBE");
    draw_first_label(&spelt, context, "a U+FFFE ");
    assert_int_equal(one.size, spelt.size);
    assert_memory_equal(one.data, spelt.data, one.size);
    attn_bytes_free(context, &one);
    attn_bytes_free(context, &spelt);
}

/* The page must contain the data of the picture: two maps of one layer, with four heads each, and their weights. */
static void heatmaps_render_as_a_page(void **state)
{
    attn_context *context = *state;
    attn_panel panels[8];
    attn_panel_row rows[2];
    float values[8][36];
    attn_heatmaps maps = example(panels, values, rows);
    attn_plot_format format;
    attn_bytes page;
    assert_int_equal(attn_plot_format_from_path(&format, context, "a.HTML"), ATTN_OK);
    maps.title = "a </script> \"b\"";
    assert_int_equal(attn_heatmaps_render(&page, context, &maps, format), ATTN_OK);
    assert_memory_equal(page.data, "<!doctype html>", 15);
    assert_int_equal(count(&page, "\"title\":\"a \\u003c/script> \\u0022b\\u0022\""), 1);
    assert_int_equal(count(&page, "\"layers\":1,\"heads\":4,\"rows\":6,\"cols\":6"), 2);
    assert_int_equal(count(&page, "\"name\":\"Encoder-decoder attention\""), 1);
    assert_int_equal(count(&page, "id=\"w1-0\">"), 1);
    /* The heading is not "Keys", because that would mean the keys of attention. */
    assert_int_equal(count(&page, "<summary>Keyboard</summary>"), 1);
    /* The page has no address except names of namespaces. */
    assert_int_equal(count(&page, "http://"), count(&page, "http://www.w3.org/2000/svg"));
    keep(&page, "maps.html");
    attn_bytes_free(context, &page);
    rows[1].title = "Encoder-decoder attention, layer 2";
    rows[1].row_labels = rows[0].row_labels;
    rows[1].col_labels = rows[0].col_labels;
    assert_int_equal(attn_heatmaps_render(&page, context, &maps, format), ATTN_OK);
    assert_int_equal(count(&page, "\"layers\":2,\"heads\":4,\"rows\":6,\"cols\":6"), 1);
    attn_bytes_free(context, &page);
    attn_curves curves = {.n = 0};
    assert_true(attn_curves_render(&page, context, &curves, ATTN_PLOT_HTML) != ATTN_OK);
}

/* Draws three kinds of maps over a picture of 2 x 2 dots. */
static void explorer_page_holds_every_map(void **state)
{
    static const unsigned char png[] = {
        0x89, 'P',  'N',  'G',  13,  10,  26,  10,   0,    0,    0,    13,  'I',  'H',  'D',  'R',  0,
        0,    0,    1,    0,    0,   0,   1,   8,    0,    0,    0,    0,   0x3a, 0x7e, 0x9b, 0x55, 0,
        0,    0,    10,   'I',  'D', 'A', 'T', 0x78, 0x9c, 0x63, 0x68, 0,   0,    0,    0x82, 0,    0x81,
        0x77, 0xcd, 0x72, 0xb6, 0,   0,   0,   0,    'I',  'E',  'N',  'D', 0xae, 0x42, 0x60, 0x82};
    attn_context *context = *state;
    /* In the first map, query q of the 12 cells attends to tap k of its window with the weight k / 36. In the second
     * map, a token and 4 cells attend to each other. The third map is a cross. */
    float window[2][12 * 9], tokens[5 * 5], cross[12 * 7];
    for (int i = 0; i < 12 * 9; i++)
        window[0][i] = window[1][i] = (float)(i % 9) / 36;
    for (int i = 0; i < 25; i++)
        tokens[i] = i / 5 == i % 5 ? 0.6f : 0.1f;
    for (int i = 0; i < 12 * 7; i++)
        cross[i] = i % 7 == 1 ? 0.9f : i % 7 == 6 ? 0.8f : 0.05f;
    const float *all[] = {window[0], window[1], tokens, cross};
    attn_explorer_map maps[] = {
        {.name = "Windows",
         .layers = 1,
         .heads = 2,
         .rows = 12,
         .cols = 9,
         .weights = all,
         .first_layer = 3,
         .key_rows = 3,
         .key_cols = 3,
         .where = ATTN_KEYS_WINDOW},
        {.name = "Tokens",
         .layers = 1,
         .heads = 1,
         .rows = 5,
         .cols = 5,
         .weights = all + 2,
         .query_rows = 2,
         .query_cols = 2,
         .before = "class token"},
        {.name = "Cross", .layers = 1, .heads = 1, .rows = 12, .cols = 7, .weights = all + 3, .where = ATTN_KEYS_CROSS},
    };
    attn_explorer explorer = {.title = "picture",
                              .n = 3,
                              .maps = maps,
                              .png = png,
                              .png_size = sizeof png,
                              .width = 1,
                              .height = 1,
                              .grid_rows = 3,
                              .grid_cols = 4};
    attn_bytes page;
    assert_ok(context, attn_explorer_render(&page, context, &explorer));
    assert_int_equal(count(&page, "\"grid\":[3,4,3,3],\"where\":\"window\""), 1);
    assert_int_equal(count(&page, "\"grid\":[2,2,2,2],\"where\":\"places\",\"before\":\"class token\""), 1);
    assert_int_equal(count(&page, "\"grid\":[3,4,3,4],\"where\":\"cross\""), 1);
    assert_int_equal(count(&page, "\"first\":3"), 1);
    keep(&page, "picture.html");
    attn_bytes_free(context, &page);
    maps[0].cols = 8;
    assert_refused(context, attn_explorer_render(&page, context, &explorer), ATTN_ERROR_ARGUMENT,
                   "a map has 8 columns; its grids need 9, one for each key");
}

/* The text has the largest weight, even of a map without positive weights. The query has a white and a blue frame. */
static void boxes_are_drawn_in_the_picture(void **state)
{
    enum { WIDTH = 96, HEIGHT = 64 };
    attn_context *context = *state;
    static unsigned char pixels[WIDTH * HEIGHT * 3];
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
        pixels[i] = (unsigned char)(i / 3 % WIDTH * 2 + i % 3 * 20);
    const attn__drawn_box items[] = {{10.5, 20, 60, 58, "teddy bear", 0.987, 1},
                                     {-5, -5, 30, 30, "<b> & é", 0.5, 2},
                                     {50, 40, 200, 90, "outside", NAN, -3},
                                     {70, 1, 80, 12, NULL, NAN, 13}};
    const attn__drawn_boxes boxes = {WIDTH, HEIGHT, 3, pixels, 4, items};
    attn_bytes picture;
    assert_ok(context, attn__boxes_render(&picture, context, &boxes, ATTN_PLOT_PNG));
    keep(&picture, "boxes.png");
    assert_memory_equal(picture.data, "\x89PNG", 4);
    attn_bytes_free(context, &picture);
    assert_ok(context, attn__boxes_render(&picture, context, &boxes, ATTN_PLOT_SVG));
    keep(&picture, "boxes.svg");
    assert_true(count(&picture, "data:image/png") == 1);
    attn_bytes_free(context, &picture);
    assert_refused(context, attn__boxes_render(&picture, context, &boxes, ATTN_PLOT_HTML), ATTN_ERROR_UNSUPPORTED,
                   "cannot be written as a page");
    const attn__drawn_boxes none = {.width = 0, .height = 3, .channels = 1};
    assert_refused(context, attn__boxes_render(&picture, context, &none, ATTN_PLOT_PNG), ATTN_ERROR_ARGUMENT,
                   "0 x 3 pixels");
}

/* Without boxes, each pixel of the picture is a square of the drawing. */
static void the_picture_of_boxes_has_its_colours(void **state)
{
    enum { WIDTH = 8, HEIGHT = 6, EACH = 30 };
    attn_context *context = *state;
    static unsigned char pixels[WIDTH * HEIGHT * 3];
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
        pixels[i] = (unsigned char)(i * 37);
    for (int channels = 1; channels <= 3; channels += 2) {
        const attn__drawn_boxes boxes = {WIDTH, HEIGHT, channels, pixels, 0, NULL};
        attn_bytes picture;
        attn_image drawn;
        assert_ok(context, attn__boxes_render(&picture, context, &boxes, ATTN_PLOT_PNG));
        assert_ok(context, attn_image_parse(&drawn, context, picture.data, picture.size, "boxes",
                                            &(attn_image_options){.channels = 3}));
        int64_t each = drawn.width / WIDTH;
        assert_true(each >= EACH && drawn.width == each * WIDTH && drawn.height == each * HEIGHT);
        for (int64_t i = 0; i < WIDTH * HEIGHT * 3; i++) {
            int64_t pixel = i / 3, row = pixel / WIDTH, at = (row * each + each / 2) * drawn.width;
            at += pixel % WIDTH * each + each / 2;
            assert_int_equal(drawn.pixels[3 * at + i % 3], pixels[channels == 3 ? i : pixel]);
        }
        attn_image_free(context, &drawn);
        attn_bytes_free(context, &picture);
    }
}

static void overlays_render(void **state)
{
    attn_context *context = *state;
    static const unsigned char grey[4] = {0, 80, 160, 255};
    static const float weights[6] = {0, 0.25f, 0.125f, NAN, 0, 0.0625f};
    attn_overlay panels[] = {
        {.title = "layer 1",
         .width = 2,
         .height = 2,
         .channels = 1,
         .pixels = grey,
         .rows = 2,
         .cols = 3,
         .weights = weights,
         .query_row = 1,
         .query_col = 1,
         .query_rows = 4,
         .query_cols = 4},
        {.title = "none",
         .width = 2,
         .height = 2,
         .channels = 1,
         .pixels = grey,
         .rows = 1,
         .cols = 1,
         .query_row = -1},
    };
    attn_bytes picture;
    const attn_overlays overlays = {.title = "overlays", .n = 2, .items = panels};
    assert_int_equal(attn_overlays_render(&picture, context, &overlays, ATTN_PLOT_SVG), ATTN_OK);
    /* The frame is a quarter of 168 points wide, and begins one cell from the left. It follows the grid of queries
     * and not that of the map. A white frame surrounds it. */
    assert_int_equal(count(&picture, "M 42 42 L 84 42 L 84 84 L 42 84 Z"), 1);
    assert_int_equal(count(&picture, "M 40.75 40.75 L 85.25 40.75 L 85.25 85.25 L 40.75 85.25 Z"), 1);
    attn_bytes_free(context, &picture);
    assert_int_equal(attn_overlays_render(&picture, context, &overlays, ATTN_PLOT_PNG), ATTN_OK);
    keep(&picture, "overlays.png");
    attn_bytes_free(context, &picture);
    panels[0].rows = 0;
    assert_int_equal(attn_overlays_render(&picture, context, &overlays, ATTN_PLOT_PNG), ATTN_ERROR_ARGUMENT);
}

/* A glyph of a text in an SVG, whose position is in points. */
typedef struct glyph {
    double x, y;
} glyph;

enum { GLYPHS = 4096 };

/* Copies a picture to a text that ends with a zero. The caller frees it. */
static char *text_of(const attn_bytes *svg)
{
    char *text = malloc(svg->size + 1);
    assert_non_null(text);
    memcpy(text, svg->data, svg->size);
    text[svg->size] = '\0';
    return text;
}

static int64_t glyphs_of(const attn_bytes *svg, glyph *glyphs)
{
    int64_t n = 0;
    char *text = text_of(svg), *at = text;
    while ((at = strstr(at, "<use ")) != NULL && n < GLYPHS) {
        const char *x = strstr(at, " x=\""), *y = strstr(at, " y=\"");
        assert_true(x && y);
        glyphs[n++] = (glyph){strtod(x + 4, NULL), strtod(y + 4, NULL)};
        at++;
    }
    free(text);
    return n;
}

static int64_t letters_of(const char *text)
{
    int64_t n = 0;
    for (const char *c = text; *c; c++)
        n += *c != ' ';
    return n;
}

/* Every glyph must be in the picture, with the width of a letter to its right or above it. */
static void assert_text_is_inside(const attn_bytes *svg, int64_t least)
{
    static glyph glyphs[GLYPHS];
    double width, height;
    size_of(svg, &width, &height);
    int64_t n = glyphs_of(svg, glyphs);
    assert_true(n >= least);
    for (int64_t i = 0; i < n; i++) {
        assert_true(glyphs[i].x >= 1 && glyphs[i].x <= width - 3);
        assert_true(glyphs[i].y >= 5 && glyphs[i].y <= height - 1);
    }
}

static const char LONG[] = "A sentence that has so many words that no small picture can hold it in one line";

static attn_status render_long_heatmaps(attn_bytes *picture, attn_context *context)
{
    static const float values[4] = {0.1f, 0.2f, 0.3f, 0.4f};
    attn_panel panels[2] = {{LONG, 1, 4, values}, {LONG, 2, 2, values}};
    attn_panel_row row = {.title = LONG, .row_name = LONG, .col_name = LONG, .n = 2, .panels = panels};
    attn_heatmaps maps = {.title = LONG, .n = 1, .rows = &row};
    return attn_heatmaps_render(picture, context, &maps, ATTN_PLOT_SVG);
}

static attn_status render_long_overlay(attn_bytes *picture, attn_context *context)
{
    static const unsigned char grey[4] = {0, 80, 160, 255};
    static const float weights[4] = {1, 0, 0, 0};
    attn_overlay panel = {.title = LONG, .width = 2, .height = 2, .channels = 1, .pixels = grey, .rows = 2, .cols = 2};
    panel.weights = weights;
    attn_overlays overlays = {.title = LONG, .n = 1, .items = &panel};
    return attn_overlays_render(picture, context, &overlays, ATTN_PLOT_SVG);
}

static attn_status render_long_curves(attn_bytes *picture, attn_context *context)
{
    static const double x[3] = {0, 1000000, 2000000}, y[3] = {3, 1, 2};
    static const char *const panels[] = {LONG};
    attn_curve lines[] = {{.name = LONG, .n = 3, .x = x, .y = y}, {.name = "short", .n = 3, .x = x, .y = x}};
    attn_curves curves = {.title = LONG, .x_name = LONG, .y_name = LONG, .n = 2, .curves = lines};
    curves.panel_names = panels, curves.width = 240, curves.height = 160;
    return attn_curves_render(picture, context, &curves, ATTN_PLOT_SVG);
}

static attn_status render_long_contacts(attn_bytes *picture, attn_context *context)
{
    static const float probabilities[4] = {0, 0.5f, 0.5f, 0};
    char title[sizeof LONG * 2];
    snprintf(title, sizeof title, "%s %s", LONG, LONG);
    attn_contact_map map = {.title = title, .n = 2, .probabilities = probabilities};
    return attn_contact_map_render(picture, context, &map, ATTN_PLOT_SVG);
}

static attn_status render_long_box(attn_bytes *picture, attn_context *context)
{
    static const unsigned char pixels[6 * 4];
    attn__drawn_box box = {.left = 1, .top = 1, .right = 5, .bottom = 3, .label = LONG, .score = 0.875};
    attn__drawn_boxes boxes = {.width = 6, .height = 4, .channels = 1, .pixels = pixels, .n = 1, .items = &box};
    return attn__boxes_render(picture, context, &boxes, ATTN_PLOT_SVG);
}

/* Titles must be complete; only the label of a box is cut. */
static void long_texts_are_inside_the_picture(void **state)
{
    attn_context *context = *state;
    static const struct {
        attn_status (*render)(attn_bytes *picture, attn_context *context);
        int64_t texts;
    } cases[] = {{render_long_heatmaps, 6},
                 {render_long_overlay, 2},
                 {render_long_curves, 5},
                 {render_long_contacts, 2},
                 {render_long_box, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_bytes picture;
        assert_ok(context, cases[i].render(&picture, context));
        char name[32];
        snprintf(name, sizeof name, "long%zu.svg", i);
        keep(&picture, name);
        assert_text_is_inside(&picture, cases[i].texts * letters_of(LONG) + 4);
        attn_bytes_free(context, &picture);
    }
}

static attn_bytes draw_map(attn_context *context, int64_t rows, int64_t cols, const char *const *labels)
{
    static float values[200 * 100];
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = (float)(i % 7);
    attn_panel panel = {NULL, rows, cols, values};
    attn_panel_row row = {.row_labels = labels, .col_labels = labels, .n = 1, .panels = &panel};
    attn_heatmaps maps = {.n = 1, .rows = &row};
    attn_bytes picture;
    assert_ok(context, attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG));
    return picture;
}

/* Each position has its number if there is room. Otherwise round numbers are drawn, which must not touch. */
static void maps_without_labels_have_numbers_on_both_axes(void **state)
{
    attn_context *context = *state;
    static const char *const none[] = {"", "", "", ""};
    static glyph glyphs[GLYPHS];
    attn_bytes numbered = draw_map(context, 3, 4, NULL), bare = draw_map(context, 3, 4, none);
    assert_int_equal(glyphs_of(&numbered, glyphs) - glyphs_of(&bare, glyphs), 3 + 4);
    attn_bytes_free(context, &numbered);
    attn_bytes_free(context, &bare);
    numbered = draw_map(context, 200, 100, NULL);
    int64_t n = glyphs_of(&numbered, glyphs), lines = 0, columns = 0;
    for (int64_t i = 1; i < n; i++) {
        lines += glyphs[i].x < glyphs[i - 1].x && glyphs[i].y > glyphs[i - 1].y + 8;
        columns += glyphs[i].y == glyphs[i - 1].y && glyphs[i].x > glyphs[i - 1].x + 12;
    }
    assert_true(lines >= 8 && columns >= 3);
    attn_bytes_free(context, &numbered);
}

typedef struct frame {
    double left, top, right, bottom;
} frame;

/* Reads the frames in an SVG, which are rectangles without filling. */
static int64_t frames_of(const attn_bytes *svg, frame *frames, int64_t most)
{
    int64_t n = 0;
    char *text = text_of(svg), *at = text;
    while ((at = strstr(at, "<path ")) != NULL && n < most) {
        char *end = strchr(at, '>'), *d = strstr(at, " d=\""), *fill = strstr(at, "fill");
        frame f;
        assert_non_null(end);
        if (d && d < end && fill && fill < end && strstr(fill, "none") && strstr(fill, "none") < fill + 8 &&
            sscanf(d, " d=\"M %lf %lf L %lf %*f L %*f %lf", &f.left, &f.top, &f.right, &f.bottom) == 4 &&
            f.bottom > f.top + 1)
            frames[n++] = f;
        at = end;
    }
    free(text);
    return n;
}

/* The picture must end soon after the scale, also below a long title. The first frame is the panel, the last one the
 * scale. */
static void scale_is_beside_its_panel_and_as_high(void **state)
{
    attn_context *context = *state;
    float values[24];
    for (int i = 0; i < 24; i++)
        values[i] = (float)i;
    attn_panel panel = {NULL, 6, 4, values};
    attn_panel_row row = {.title = "Encoder-decoder attention, layer 1", .n = 1, .panels = &panel};
    attn_heatmaps maps = {.title = LONG, .n = 1, .rows = &row};
    attn_bytes picture;
    frame frames[3];
    double width, height;
    assert_ok(context, attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG));
    size_of(&picture, &width, &height);
    assert_int_equal(frames_of(&picture, frames, 3), 2);
    assert_true(frames[1].top == frames[0].top && frames[1].bottom == frames[0].bottom);
    assert_true(frames[1].left > frames[0].right && frames[1].left < frames[0].right + 20);
    assert_true(frames[1].right > width / 2);
    attn_bytes_free(context, &picture);
}

/* Draws lines, dashes and dots in two panels, which the SVG must contain. */
static void curves_render(void **state)
{
    static const char *const magic[] = {"\x89PNG", "<?xml", "%PDF"}, *const panels[] = {"one", "two"};
    attn_context *context = *state;
    double x[30], train[30], valid[30];
    for (int i = 0; i < 30; i++) {
        x[i] = i + 1;
        train[i] = 4 * exp(-i / 8.0) + 0.1;
        valid[i] = i == 5 ? NAN : 3.8 * exp(-i / 9.0) + 0.6;
    }
    attn_curve lines[] = {{.name = "training", .n = 30, .x = x, .y = train},
                          {.name = "validation", .n = 30, .x = x, .y = valid, .style = ATTN_CURVE_DASHES},
                          {.name = "training", .n = 30, .x = x, .y = valid, .style = ATTN_CURVE_DOTS, .panel = 1}};
    attn_curves curves = {.title = "Loss",
                          .x_name = "epoch",
                          .y_name = "nats per token",
                          .n = 3,
                          .curves = lines,
                          .panels = 2,
                          .panel_names = panels,
                          .log_y = true};
    attn_bytes picture;
    double width, height;
    for (int format = 0; format < 3; format++) {
        assert_ok(context, attn_curves_render(&picture, context, &curves, (attn_plot_format)format));
        assert_memory_equal(picture.data, magic[format], strlen(magic[format]));
        keep(&picture, ((const char *const[]){"curves.png", "curves.svg", "curves.pdf"})[format]);
        if (format == ATTN_PLOT_SVG) {
            assert_true(count(&picture, "dasharray") == 2);
            size_of(&picture, &width, &height);
            assert_true(width > 2 * 200 && height == 250);
            /* each letter of the title is one glyph */
            assert_int_equal(count(&picture, "\" y=\"18\"/>"), strlen(curves.title));
            assert_int_equal(count(&picture, "\" y=\"240\"/>"), strlen(curves.x_name));
            assert_int_equal(count(&picture, "\" x=\"14\" y="), strlen(curves.y_name));
        }
        attn_bytes_free(context, &picture);
    }
    curves.width = 700, curves.height = 150;
    assert_ok(context, attn_curves_render(&picture, context, &curves, ATTN_PLOT_SVG));
    size_of(&picture, &width, &height);
    assert_true(width == 700 && height == 150);
    attn_bytes_free(context, &picture);
}

/* On a logarithmic axis from 1 to 100, 10 must be in the middle. */
static void logarithmic_axes_are(void **state)
{
    attn_context *context = *state;
    double x[3][2] = {{1, 100}, {1, 10}, {10, 100}}, y[2] = {5, 5};
    attn_curve lines[3];
    double length[3];
    for (int i = 0; i < 3; i++) {
        lines[i] = (attn_curve){.n = 2, .x = x[i], .y = y};
        attn_curve both[] = {{.n = 2, .x = x[0], .y = y, .style = ATTN_CURVE_DASHES}, lines[i]};
        attn_bytes svg;
        assert_ok(context, attn_curves_render(&svg, context, &(attn_curves){.n = 2, .curves = both, .log_x = true},
                                              ATTN_PLOT_SVG));
        const char *last = NULL;
        for (const char *at = (const char *)svg.data; at && at < (const char *)svg.data + svg.size; at++)
            if ((size_t)((const char *)svg.data + svg.size - at) > 4 && memcmp(at, "d=\"M ", 5) == 0)
                last = at + 5;
        double from = 0, to = 0;
        assert_non_null(last);
        assert_int_equal(sscanf(last, "%lf %*f L %lf", &from, &to), 2);
        length[i] = to - from;
        attn_bytes_free(context, &svg);
    }
    assert_true(length[0] > 300 && fabs(length[1] - length[2]) < 0.01 && fabs(length[0] - 2 * length[1]) < 0.01);
}

static void wrong_curves_are_refused(void **state)
{
    attn_context *context = *state;
    const double x[3] = {0, 1, 2}, y[3] = {-1, NAN, 3}, none[3] = {NAN, INFINITY, -INFINITY},
                 far[3] = {-1e308, 1e308, 0};
    attn_curve many[9];
    char names[9][4];
    for (int i = 0; i < 9; i++) {
        snprintf(names[i], sizeof names[i], "c%d", i);
        many[i] = (attn_curve){.name = names[i], .n = 3, .x = x, .y = y};
    }
    attn_curve empty = {.x = x, .y = y}, nothing = {.n = 3, .x = x, .y = none}, style = many[0], panel = many[0];
    attn_curve wide = {.n = 3, .x = far, .y = x}, text = {.name = "\xff", .n = 3, .x = x, .y = y};
    style.style = (attn_curve_style)7;
    panel.panel = 2;
    const struct {
        attn_curves curves;
        const char *says;
    } cases[] = {
        {{.n = 0, .curves = many}, "0 curves are given; 1 to"},
        {{.n = 9, .curves = many}, "found 9 different names; at most 8"},
        {{.n = 1, .curves = &empty}, "no curve has a point with finite x and y"},
        {{.n = 1, .curves = &nothing}, "no curve has a point with finite x and y"},
        {{.n = 1, .curves = &style}, "the style of a curve"},
        {{.n = 1, .curves = &panel, .panels = 2}, "is 2, counted from 0, but the picture has 2 panels"},
        {{.n = 1, .curves = many, .panels = 33}, "panels is 33; 1 to"},
        {{.n = 1, .curves = many, .width = 50}, "50 x 0 points"},
        {{.n = 1, .curves = many, .log_y = true}, "y of point 1 of \"c0\" is -1"},
        {{.n = 1, .curves = many, .log_x = true}, "x of point 1 of \"c0\" is 0"},
        {{.n = 1, .curves = &wide}, "is too large a range for an axis"},
        {{.n = 1, .curves = &text}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_bytes picture;
        assert_refused(context, attn_curves_render(&picture, context, &cases[i].curves, ATTN_PLOT_SVG),
                       ATTN_ERROR_ARGUMENT, cases[i].says);
        attn_context_clear_error(context);
    }
}

/* Each choice of colours gives a different picture. A heatmap on a page refuses negative values
 * and accepts NaN. */
static void heatmaps_have_the_colours_chosen(void **state)
{
    attn_context *context = *state;
    float values[] = {-2, 0, 1};
    attn_panel panel = {.rows = 1, .cols = 3, .values = values};
    attn_panel_row row = {.n = 1, .panels = &panel};
    attn_bytes pictures[ATTN_COLOURS_DIVERGING + 1];
    for (int colours = 0; colours <= ATTN_COLOURS_DIVERGING; colours++) {
        attn_heatmaps maps = {.n = 1, .rows = &row, .colours = (attn_colours)colours};
        assert_ok(context, attn_heatmaps_render(&pictures[colours], context, &maps, ATTN_PLOT_PNG));
        keep(&pictures[colours],
             ((const char *const[]){"heat.png", "blues.png", "reds.png", "diverging.png"})[colours]);
    }
    for (int i = 1; i <= ATTN_COLOURS_DIVERGING; i++) {
        for (int j = 0; j < i; j++)
            assert_true(pictures[i].size != pictures[j].size ||
                        memcmp(pictures[i].data, pictures[j].data, pictures[i].size) != 0);
    }
    for (int i = 0; i <= ATTN_COLOURS_DIVERGING; i++)
        attn_bytes_free(context, &pictures[i]);
    attn_heatmaps wrong = {.n = 1, .rows = &row, .colours = (attn_colours)9};
    attn_bytes picture;
    assert_refused(context, attn_heatmaps_render(&picture, context, &wrong, ATTN_PLOT_SVG), ATTN_ERROR_ARGUMENT,
                   "the colours of heatmaps");
    attn_context_clear_error(context);
    wrong.colours = ATTN_COLOURS_BLUES;
    assert_refused(context, attn_heatmaps_render(&picture, context, &wrong, ATTN_PLOT_HTML), ATTN_ERROR_ARGUMENT,
                   "the weight is -2; a page shows only finite weights of at least 0");
    attn_context_clear_error(context);
    values[0] = NAN;
    assert_ok(context, attn_heatmaps_render(&picture, context, &wrong, ATTN_PLOT_HTML));
    assert_int_equal(count(&picture, "\"colours\":\"blues\""), 1);
    attn_bytes_free(context, &picture);
}

/* Counts the crosses, whose lines have a width of their own. Versions of cairo before and after 1.18 write the width
 * differently. */
static int64_t crosses(const attn_bytes *picture)
{
    return count(picture, "stroke-width:0.9;") + count(picture, "stroke-width=\"0.9\"");
}

/* Five residues are in a line with distances of 3. The best pairs of residues at least two apart are (0,2) and
 * (0,4), of which only (0,2) is a contact. One more cross adds two lines. */
static void contacts_render(void **state)
{
    attn_context *context = *state;
    float probabilities[25], distances[25];
    for (int i = 0; i < 25; i++) {
        probabilities[i] = 0.1f;
        distances[i] = 3.0f * (float)abs(i / 5 - i % 5);
    }
    probabilities[2] = 0.9f;
    probabilities[4] = 0.8f;
    attn_contact_map map = {.title = "contacts",
                            .n = 5,
                            .probabilities = probabilities,
                            .distances = distances,
                            .top = 1,
                            .min_separation = 2};
    attn_bytes one, two;
    assert_int_equal(attn_contact_map_render(&one, context, &map, ATTN_PLOT_SVG), ATTN_OK);
    map.top = 2;
    assert_int_equal(attn_contact_map_render(&two, context, &map, ATTN_PLOT_SVG), ATTN_OK);
    assert_int_equal(crosses(&one), 0);
    assert_int_equal(crosses(&two), 1);
    keep(&two, "contacts.svg");
    attn_bytes_free(context, &one);
    attn_bytes_free(context, &two);
    map.n = 0;
    assert_int_equal(attn_contact_map_render(&one, context, &map, ATTN_PLOT_PNG), ATTN_ERROR_ARGUMENT);
    map.n = 4097;
    assert_int_equal(attn_contact_map_render(&one, context, &map, ATTN_PLOT_PNG), ATTN_ERROR_ARGUMENT);
}

static void wrong_pictures_are_refused(void **state)
{
    attn_context *context = *state;
    attn_bytes picture;
    attn_plot_format format;
    assert_refused(context, attn_plot_format_from_path(&format, context, "maps.gif"), ATTN_ERROR_ARGUMENT, "maps.gif");
    attn_heatmaps none = {0};
    assert_int_equal(attn_heatmaps_render(&picture, context, &none, ATTN_PLOT_SVG), ATTN_ERROR_ARGUMENT);
    float one = 1;
    attn_panel panel = {NULL, 1, 5000, &one};
    attn_panel_row row = {.n = 1, .panels = &panel};
    attn_context_clear_error(context);
    assert_refused(context,
                   attn_heatmaps_render(&picture, context, &(attn_heatmaps){.n = 1, .rows = &row}, ATTN_PLOT_SVG),
                   ATTN_ERROR_ARGUMENT, "5000");
    attn_context_clear_error(context);
    panel = (attn_panel){"\xff\xfe", 1, 1, &one};
    assert_int_equal(attn_heatmaps_render(&picture, context, &(attn_heatmaps){.n = 1, .rows = &row}, ATTN_PLOT_SVG),
                     ATTN_ERROR_ARGUMENT);
}

/* Memory that is not zero by chance. */
static void *alloc_filled(void *user, size_t size, size_t align)
{
    (void)user;
    void *memory = aligned_alloc(align, (size + align - 1) / align * align);
    return memory ? memset(memory, 'x', size) : NULL;
}

static void release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

static void a_zero_byte_follows_every_picture(void **state)
{
    (void)state;
    attn_context *context;
    attn_context_options options = {.allocator = {alloc_filled, release, NULL}};
    assert_int_equal(attn_context_create(&context, &options), ATTN_OK);
    float one = 1;
    attn_panel panel = {NULL, 1, 1, &one};
    attn_panel_row row = {.n = 1, .panels = &panel};
    for (int format = ATTN_PLOT_PNG; format <= ATTN_PLOT_HTML; format++) {
        attn_bytes picture;
        assert_int_equal(
            attn_heatmaps_render(&picture, context, &(attn_heatmaps){.n = 1, .rows = &row}, (attn_plot_format)format),
            ATTN_OK);
        assert_int_equal(picture.data[picture.size], 0);
        attn_bytes_free(context, &picture);
    }
    attn_context_destroy(context);
}

RUN_TESTS(TEST(a_zero_byte_follows_every_picture), TEST_WITH_CONTEXT(heatmaps_render_in_every_format),
          TEST_WITH_CONTEXT(many_layers_fold_into_columns), TEST_WITH_CONTEXT(page_has_no_needless_columns),
          TEST_WITH_CONTEXT(glyphs_of_no_font_are_drawn_as_code_points),
          TEST_WITH_CONTEXT(noncharacters_are_drawn_as_code_points), TEST_WITH_CONTEXT(heatmaps_render_as_a_page),
          TEST_WITH_CONTEXT(explorer_page_holds_every_map), TEST_WITH_CONTEXT(overlays_render),
          TEST_WITH_CONTEXT(long_texts_are_inside_the_picture),
          TEST_WITH_CONTEXT(maps_without_labels_have_numbers_on_both_axes),
          TEST_WITH_CONTEXT(scale_is_beside_its_panel_and_as_high), TEST_WITH_CONTEXT(boxes_are_drawn_in_the_picture),
          TEST_WITH_CONTEXT(the_picture_of_boxes_has_its_colours), TEST_WITH_CONTEXT(curves_render),
          TEST_WITH_CONTEXT(logarithmic_axes_are), TEST_WITH_CONTEXT(wrong_curves_are_refused),
          TEST_WITH_CONTEXT(heatmaps_have_the_colours_chosen), TEST_WITH_CONTEXT(contacts_render),
          TEST_WITH_CONTEXT(wrong_pictures_are_refused))
