/* SPDX-License-Identifier: MIT
 *
 * Draws images of coloured shapes. It uses only operations that IEEE 754 rounds exactly (so no sine and no power),
 * because every machine must draw the same bits.
 */
#include "data/shapes.h"

#include "base/integers.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const attn__shape_names[ATTN__SHAPE_KINDS] = {"circle", "square", "triangle", "star", "ring", "cross"};

enum { CIRCLE, SQUARE, TRIANGLE, STAR, RING, CROSS };
enum { SIDE = ATTN__SHAPE_MOST_SIDE, PIXELS = SIDE * SIDE, SAMPLES = 3, TRIES = 30, NOBODY = 255 };

static double between(attn__rng *rng, double low, double high)
{
    return low + (high - low) * attn__rng_uniform(rng);
}

/* ------------------------------------------------------------------------------------------------ ground */

typedef struct colour {
    double c[3];
} colour;

static colour random_colour(attn__rng *rng)
{
    colour made;
    for (int c = 0; c < 3; c++)
        made.c[c] = between(rng, 20, 235);
    return made;
}

static double contrast(const colour *a, const colour *b)
{
    double sum = 0;
    for (int c = 0; c < 3; c++)
        sum += fabs(a->c[c] - b->c[c]);
    return sum;
}

enum { LATTICE = 64 };

/* Smooth random values from 0 to 1. They are interpolated from the values of a lattice, whose points have a distance
 * of `cell` pixels. */
typedef struct noise {
    double at[LATTICE * LATTICE], cell;
} noise;

static void make_noise(noise *made, attn__rng *rng, double cell)
{
    made->cell = cell;
    for (int i = 0; i < LATTICE * LATTICE; i++)
        made->at[i] = attn__rng_uniform(rng);
}

static double noise_at(const noise *n, int64_t x, int64_t y)
{
    double u = (double)x / n->cell, v = (double)y / n->cell;
    int64_t i = attn__min((int64_t)u, LATTICE - 2), j = attn__min((int64_t)v, LATTICE - 2);
    double s = u - (double)i, t = v - (double)j;
    const double *p = n->at + j * LATTICE + i;
    return (p[0] * (1 - s) + p[1] * s) * (1 - t) + (p[LATTICE] * (1 - s) + p[LATTICE + 1] * s) * t;
}

typedef struct scene {
    attn__rng rng;
    attn__shapes_image *image;
    colour ground[2];
    noise coarse, fine;
    /* for each pixel: the index of the object that is visible at it; NOBODY: the background is visible */
    unsigned char owner[PIXELS];
    /* for each object: the number of its visible pixels, and the number of all its pixels */
    int64_t seen[ATTN__SHAPE_MOST], whole[ATTN__SHAPE_MOST];
} scene;

static void put(scene *s, int64_t pixel, const colour *wanted, double share, double grain)
{
    for (int c = 0; c < 3; c++) {
        unsigned char *p = s->image->pixels + 3 * pixel + c;
        double value = *p * (1 - share) + (wanted->c[c] + grain) * share;
        *p = (unsigned char)attn__clamp((int64_t)(value + 0.5), 0, 255);
    }
}

static void draw_ground(scene *s)
{
    s->ground[0] = random_colour(&s->rng);
    s->ground[1] = s->ground[0];
    for (int c = 0; c < 3; c++)
        s->ground[1].c[c] = fmin(fmax(s->ground[0].c[c] + between(&s->rng, -90, 90), 0), 255);
    make_noise(&s->coarse, &s->rng, between(&s->rng, 8, 24));
    make_noise(&s->fine, &s->rng, between(&s->rng, 3, 6));
    for (int64_t y = 0; y < s->image->height; y++) {
        for (int64_t x = 0; x < s->image->width; x++) {
            double mix = 0.7 * noise_at(&s->coarse, x, y) + 0.3 * noise_at(&s->fine, x, y);
            colour here;
            for (int c = 0; c < 3; c++)
                here.c[c] = s->ground[0].c[c] * (1 - mix) + s->ground[1].c[c] * mix;
            put(s, y * s->image->width + x, &here, 1, between(&s->rng, -12, 12));
        }
    }
}

/* ------------------------------------------------------------------------------------------------ shapes */

/* A shape: its centre, the radius of its circumscribed circle, and its direction as (cosine, sine). */
typedef struct shape {
    int kind;
    double x, y, radius, cosine, sine;
    colour fill;
} shape;

/* Returns for how many of n lines the point (u, v) is on the inner side. The lines have the same distance from the
 * centre, and their normals divide the circle evenly. */
static int inside_lines(double u, double v, const double normals[][2], int n, double distance)
{
    int inside = 0;
    for (int i = 0; i < n; i++)
        inside += normals[i][0] * u + normals[i][1] * v <= distance;
    return inside;
}

static bool covers(const shape *s, double x, double y)
{
    static const double three[][2] = {{0, 1}, {0.8660254037844386, -0.5}, {-0.8660254037844386, -0.5}};
    static const double five[][2] = {{0, 1},
                                     {0.9510565162951535, 0.30901699437494745},
                                     {0.5877852522924731, -0.8090169943749475},
                                     {-0.5877852522924731, -0.8090169943749475},
                                     {-0.9510565162951535, 0.30901699437494745}};
    double dx = (x - s->x) / s->radius, dy = (y - s->y) / s->radius;
    double u = s->cosine * dx + s->sine * dy, v = s->cosine * dy - s->sine * dx, square = u * u + v * v;
    switch (s->kind) {
    case CIRCLE:
        return square <= 1;
    case SQUARE:
        return fabs(u) <= 0.7071 && fabs(v) <= 0.7071;
    case TRIANGLE:
        return inside_lines(u, v, three, 3, 0.5) == 3;
    case STAR: /* the star contains the points that are outside of at most one line of the pentagram */
        return inside_lines(u, v, five, 5, 0.30901699437494745) >= 4 && square <= 1;
    case RING:
        return square <= 1 && square >= 0.36;
    default:
        return (fabs(u) <= 0.3 && fabs(v) <= 0.95) || (fabs(v) <= 0.3 && fabs(u) <= 0.95);
    }
}

/* Returns how many of the SAMPLES^2 sample points of a pixel are inside the shape. */
static int coverage(const shape *s, int64_t x, int64_t y)
{
    int n = 0;
    for (int j = 0; j < SAMPLES; j++)
        for (int i = 0; i < SAMPLES; i++)
            n += covers(s, (double)x + (i + 0.5) / SAMPLES, (double)y + (j + 0.5) / SAMPLES);
    return n;
}

static bool owns(int covered)
{
    return 2 * covered > SAMPLES * SAMPLES;
}

/* A range of pixels that contains the shape, clipped to the image. */
typedef struct part {
    int64_t left, top, right, bottom;
} part;

static part part_of(const scene *s, const shape *one)
{
    part p = {(int64_t)floor(one->x - one->radius), (int64_t)floor(one->y - one->radius),
              (int64_t)floor(one->x + one->radius) + 1, (int64_t)floor(one->y + one->radius) + 1};
    return (part){attn__max(p.left, 0), attn__max(p.top, 0), attn__min(p.right, s->image->width),
                  attn__min(p.bottom, s->image->height)};
}

static shape random_shape(scene *s)
{
    shape one = {.kind = (int)attn__rng_below(&s->rng, ATTN__SHAPE_KINDS)};
    double most = 0.36 * (double)attn__min(s->image->width, s->image->height), share = attn__rng_uniform(&s->rng);
    one.radius = 6 + (most - 6) * share * share; /* the square makes small shapes more frequent than large ones */
    one.x = between(&s->rng, 0.8 * one.radius, (double)s->image->width - 0.8 * one.radius);
    one.y = between(&s->rng, 0.8 * one.radius, (double)s->image->height - 0.8 * one.radius);
    double t = between(&s->rng, -1, 1), square = t * t;
    one.cosine = (1 - square) / (1 + square);
    one.sine = 2 * t / (1 + square);
    do {
        one.fill = random_colour(&s->rng);
    } while (contrast(&one.fill, s->ground) < 150 || contrast(&one.fill, s->ground + 1) < 150);
    return one;
}

/* Counts the pixels of a new shape. If the shape would hide more than half of another shape, or if more than half of
 * it is outside of the image, returns false and leaves the counts unchanged. */
static bool place(scene *s, const shape *one, unsigned char index)
{
    part p = part_of(s, one);
    int64_t whole = 0, seen = 0, hidden[ATTN__SHAPE_MOST] = {0};
    for (int64_t y = (int64_t)floor(one->y - one->radius); y <= (int64_t)floor(one->y + one->radius); y++) {
        for (int64_t x = (int64_t)floor(one->x - one->radius); x <= (int64_t)floor(one->x + one->radius); x++) {
            bool owned = owns(coverage(one, x, y)), inside = x >= p.left && x < p.right && y >= p.top && y < p.bottom;
            whole += owned;
            seen += owned && inside;
            if (owned && inside && s->owner[y * s->image->width + x] != NOBODY)
                hidden[s->owner[y * s->image->width + x]]++;
        }
    }
    for (int i = 0; i < index; i++)
        if (2 * (s->seen[i] - hidden[i]) < s->whole[i])
            return false;
    if (2 * seen < whole)
        return false;
    for (int i = 0; i < index; i++)
        s->seen[i] -= hidden[i];
    s->seen[index] = seen;
    s->whole[index] = whole;
    return true;
}

static void draw_shape(scene *s, const shape *one, unsigned char index)
{
    part p = part_of(s, one);
    double slope = between(&s->rng, -0.5, 0.5);
    for (int64_t y = p.top; y < p.bottom; y++) {
        for (int64_t x = p.left; x < p.right; x++) {
            int covered = coverage(one, x, y);
            int64_t pixel = y * s->image->width + x;
            double grain = between(&s->rng, -8, 8) + slope * 40 * ((double)y - one->y) / one->radius;
            put(s, pixel, &one->fill, (double)covered / (SAMPLES * SAMPLES), grain);
            if (owns(covered))
                s->owner[pixel] = index;
        }
    }
}

/* ------------------------------------------------------------------------------------------------ boxes */

static void measure_boxes(scene *s)
{
    part boxes[ATTN__SHAPE_MOST];
    for (int i = 0; i < ATTN__SHAPE_MOST; i++)
        boxes[i] = (part){SIDE, SIDE, 0, 0};
    for (int64_t i = 0; i < s->image->width * s->image->height; i++) {
        int64_t x = i % s->image->width, y = i / s->image->width;
        if (s->owner[i] == NOBODY)
            continue;
        part *b = boxes + s->owner[i];
        *b = (part){attn__min(b->left, x), attn__min(b->top, y), attn__max(b->right, x + 1),
                    attn__max(b->bottom, y + 1)};
    }
    for (int64_t i = 0; i < s->image->nobjects; i++) {
        const part *b = boxes + i;
        s->image->objects[i].box =
            (attn__box){(double)b->left, (double)b->top, (double)(b->right - b->left), (double)(b->bottom - b->top)};
        s->image->objects[i].area = (double)s->seen[i];
    }
}

static int64_t random_side(attn__rng *rng)
{
    return ATTN__SHAPE_LEAST_SIDE + (int64_t)attn__rng_below(rng, ATTN__SHAPE_MOST_SIDE - ATTN__SHAPE_LEAST_SIDE + 1);
}

void attn__shapes_draw(attn__shapes_image *image, uint64_t seed, uint64_t index)
{
    scene s = {.rng = {.seed = seed, .stream = index}, .image = image};
    memset(image, 0, sizeof *image);
    memset(s.owner, NOBODY, sizeof s.owner);
    image->width = random_side(&s.rng);
    image->height = random_side(&s.rng);
    draw_ground(&s);
    int64_t wanted = 1 + (int64_t)attn__rng_below(&s.rng, ATTN__SHAPE_MOST);
    for (int tries = 0; tries < TRIES && image->nobjects < wanted; tries++) {
        shape one = random_shape(&s);
        unsigned char number = (unsigned char)image->nobjects;
        if (!place(&s, &one, number))
            continue;
        draw_shape(&s, &one, number);
        image->objects[image->nobjects++].category = one.kind + 1;
    }
    measure_boxes(&s);
}
