/* SPDX-License-Identifier: MIT
 * image_source.h - labelled images from a folder, whatever kind of data it holds. */
#ifndef ATTN_APPS_IMAGE_SOURCE_H
#define ATTN_APPS_IMAGE_SOURCE_H

#include "attn/config.h"
#include "attn/image.h"
#include "data/images.h"
#include "io/images/image.h"

/* The required form of the images.  Zero means: as they are, which must then be alike. */
typedef struct attn__image_wish {
    attn_image_shape shape;
    attn__image_fitting fitting; /* by which they are brought to another size */
    const char *const *classes;  /* names that the folder must have, in this order; NULL: any */
    int64_t nclasses;            /* labels must be less; 0: any */
    bool unlabelled;             /* labels mean nothing: pictures need no class folders */
} attn__image_wish;

typedef struct attn__image_source {
    attn_context *context;
    attn_image_set *train, *test; /* test: NULL where the data is not divided */
    char **classes;
    int64_t nclasses;
    int64_t
        passed_over; /* files in class folders whose ending is not a picture's, and folders next to train/ that are not
                      * read */
    char *passed_first; /* the first of them; NULL: there is none */
} attn__image_source;

/* Every error names the file. */
attn_status attn__image_source_read(attn__image_source *source, attn_context *context, const char *path,
                                    const attn__image_wish *wish);
void attn__image_source_free(attn__image_source *source);
/* Divides it into parts as `settings` (a training's, or config.json) say by "seed", "valid" and "test", each NULL-able
 * and to be destroyed before the source is freed.  A test part of the data's own is taken whole; the share counts where
 * there is none. */
attn_status attn__image_source_split(const attn__image_source *source, const attn_config *settings,
                                     attn_image_set **train, attn_image_set **valid, attn_image_set **test);
/* All of its images, those of a test part of its own too.  To be destroyed before the source is freed. */
attn_status attn__image_source_whole(const attn__image_source *source, attn_image_set **whole);

/* ----------------------------------------------------------------------- between the files of this reader */

/* Names in a folder, sorted; those that begin with a dot are not there, nor is __MACOSX. */
typedef struct attn__names {
    char **names;
    int64_t n;
} attn__names;
attn_status attn__names_read(attn__names *names, attn_context *context, const char *folder);
void attn__names_free(attn__names *names, attn_context *context);

/* Whether a file's name ends as that of an image does. */
bool attn__is_image_name(const char *name);
/* "folder/name", the caller's; NULL without memory. */
char *attn__join(attn_context *context, const char *folder, const char *name);
attn_status attn__class_add(attn__image_source *source, const char *name, size_t length);
/* Adds an image to *set, brought to the wish; the first one makes the set and its shape.  `first` names the file that
 * did, for messages. */
attn_status attn__image_source_add(attn__image_source *source, attn_image_set **set, const attn__image_wish *wish,
                                   attn_image *image, int32_t label, uint64_t key, const char *name, const char *first);

/* The three kinds; *found is false where the folder is of another. */
attn_status attn__read_idx(attn__image_source *source, const char *path, const attn__names *names,
                           const attn__image_wish *wish, bool *found);
attn_status attn__read_cifar(attn__image_source *source, const char *path, const attn__names *names,
                             const attn__image_wish *wish, bool *found);
attn_status attn__read_folders(attn__image_source *source, const char *path, const attn__names *names,
                               const attn__image_wish *wish, bool *found);

#endif
