/* SPDX-License-Identifier: MIT
 *
 * Draws text on a canvas. A character that the default font lacks is drawn in another font. */
#include "plot/canvas.h"

#include "base/utf8.h"

#include <fontconfig/fontconfig.h>
#include <stdio.h>
#include <string.h>

static const char USUAL[] = "DejaVu Sans";

void attn__font_metrics(cairo_t *cr)
{
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_get_font_options(cr, options);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_set_font_options(cr, options);
    cairo_font_options_destroy(options);
}

cairo_t *attn__measuring(void)
{
    cairo_surface_t *surface = cairo_recording_surface_create(CAIRO_CONTENT_COLOR, NULL);
    cairo_t *cr = cairo_create(surface);
    cairo_surface_destroy(surface);
    attn__font_metrics(cr);
    return cr;
}

void attn__font(cairo_t *cr, double size, bool bold)
{
    cairo_select_font_face(cr, USUAL, CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, size);
}

/* Reports whether the selected font has all characters of a text. If the text is not UTF-8, returns true, so that
 * drawing reports the error. If cairo refuses the text, because it contains a noncharacter such as U+FFFE, returns
 * false. */
static bool has_all(cairo_t *cr, const char *text, size_t length)
{
    cairo_glyph_t *glyphs = NULL;
    int n = 0;
    bool all = true;
    if (cairo_scaled_font_text_to_glyphs(cairo_get_scaled_font(cr), 0, 0, text, (int)length, &glyphs, &n, NULL, NULL,
                                         NULL) != CAIRO_STATUS_SUCCESS)
        return attn__utf8_first_invalid(text, length) != SIZE_MAX;
    for (int i = 0; i < n; i++)
        all = all && glyphs[i].index != 0;
    cairo_glyph_free(glyphs);
    return all;
}

/* Returns the number of bytes of the text's first character, and sets *code to its code point. The text must be valid
 * UTF-8. */
static size_t first_character(const char *text, unsigned *code)
{
    unsigned char lead = (unsigned char)text[0];
    size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    *code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (!text[i])
            return i;
        *code = *code << 6 | ((unsigned char)text[i] & 0x3Fu);
    }
    return length;
}

/* Selects a font family that has the character. Families are tried in fontconfig's order. Returns false if no family
 * has the character. */
static bool choose_family(cairo_t *cr, unsigned code, cairo_font_weight_t weight)
{
    FcCharSet *wish = FcCharSetCreate(), *has = NULL;
    FcPattern *pattern = FcPatternCreate(), *found = NULL;
    FcChar8 *family = NULL;
    FcResult result = FcResultNoMatch;
    if (wish && pattern && FcCharSetAddChar(wish, code) && FcPatternAddCharSet(pattern, FC_CHARSET, wish) &&
        FcPatternAddString(pattern, FC_FAMILY, (const FcChar8 *)USUAL) &&
        FcConfigSubstitute(NULL, pattern, FcMatchPattern)) {
        FcDefaultSubstitute(pattern);
        found = FcFontMatch(NULL, pattern, &result);
    }
    bool chosen = found && FcPatternGetCharSet(found, FC_CHARSET, 0, &has) == FcResultMatch && has &&
                  FcCharSetHasChar(has, code) && FcPatternGetString(found, FC_FAMILY, 0, &family) == FcResultMatch;
    if (chosen)
        cairo_select_font_face(cr, (const char *)family, CAIRO_FONT_SLANT_NORMAL, weight);
    if (found)
        FcPatternDestroy(found);
    if (pattern)
        FcPatternDestroy(pattern);
    if (wish)
        FcCharSetDestroy(wish);
    return chosen;
}

static double advance_of(cairo_t *cr, const char *text, bool draw)
{
    cairo_text_extents_t extents;
    cairo_text_extents(cr, text, &extents);
    if (draw)
        cairo_show_text(cr, text);
    return extents.x_advance;
}

/* Draws one character that the default font `usual` lacks, and then selects `usual` again. */
static double put_rare(cairo_t *cr, const char *text, size_t length, unsigned code, cairo_font_face_t *usual, bool draw)
{
    char shown[16];
    cairo_font_weight_t weight = cairo_toy_font_face_get_weight(usual);
    memcpy(shown, text, length); /* NOLINT: at most 4 bytes; the next line adds the zero */
    shown[length] = '\0';
    if (!choose_family(cr, code, weight) || !has_all(cr, shown, length)) {
        cairo_set_font_face(cr, usual);
        snprintf(shown, sizeof shown, " U+%04X ", code);
    }
    double width = advance_of(cr, shown, draw);
    cairo_set_font_face(cr, usual);
    return width;
}

/* Measures a text character by character and returns its width. If `draw` is true, also draws the text at the
 * current point. */
static double put_text(cairo_t *cr, const char *text, bool draw)
{
    size_t whole = strlen(text);
    if (has_all(cr, text, whole))
        return advance_of(cr, text, draw);
    cairo_font_face_t *usual = cairo_font_face_reference(cairo_get_font_face(cr));
    double width = 0;
    while (*text) {
        unsigned code;
        size_t length = first_character(text, &code);
        char one[8] = {0};
        memcpy(one, text, length);
        width += has_all(cr, one, length) ? advance_of(cr, one, draw) : put_rare(cr, text, length, code, usual, draw);
        text += length;
    }
    cairo_font_face_destroy(usual);
    return width;
}

double attn__text_width(cairo_t *cr, const char *text)
{
    return put_text(cr, text, false);
}

void attn__text(cairo_t *cr, double x, double y, const char *text, attn__anchor anchor, double angle)
{
    double width = anchor == ATTN_LEFT ? 0 : attn__text_width(cr, text);
    cairo_save(cr);
    cairo_translate(cr, x, y);
    cairo_rotate(cr, angle);
    cairo_move_to(cr, anchor == ATTN_RIGHT ? -width : anchor == ATTN_CENTRE ? -width / 2 : 0, 0);
    put_text(cr, text, true);
    cairo_restore(cr);
}
