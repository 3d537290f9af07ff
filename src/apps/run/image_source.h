/* SPDX-License-Identifier: MIT
 * image_source.h - labelled images from a folder, whatever kind of data it holds; videos from folders of frames or an
 * array. */
#ifndef ATTN_APPS_IMAGE_SOURCE_H
#define ATTN_APPS_IMAGE_SOURCE_H

#include "attn/config.h"
#include "attn/image.h"
#include "data/images.h"
#include "io/images/image.h"

/* The required form of the images.  Zero means: as they are, which must then be alike. */
typedef struct attn__image_wish {
    attn_image_shape shape;
    bool videos;                 /* folders are videos, whose pictures are frames; an array always has videos */
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

/* ------------------------------------------------------------------------------------------- one video */

/* Frames in their order. */
typedef struct attn__clip {
    attn_context *context;
    int64_t n;
    attn_image *frames;
    int64_t passed;     /* files in the folder whose ending is not a picture's */
    char *passed_first; /* the name of the first of them; NULL: there is none */
} attn__clip;
void attn__clip_free(attn__clip *clip);
/* The pictures of a folder in the order of their names, numbers in them compared as numbers.
 * `channels` 1 or 3: converted to that.  ATTN_ERROR_FORMAT: fewer than two pictures, or, unless `sized`, pictures of
 * different sizes or colours.  Free it on failure too. */
attn_status attn__clip_of_folder(attn__clip *clip, attn_context *context, const char *folder, int channels, bool sized);
/* Video `number`, from 0, of an array (frames, channels, height, width) or (videos, frames, channels, height, width) of
 * bytes or of real numbers from 0 to 1.  ATTN_ERROR_FORMAT: it is none of these, or has one frame. */
attn_status attn__clip_of_array(attn__clip *clip, attn_context *context, const attn_tensor *array, const char *name,
                                int64_t number);
/* One picture as the first frame of a video. */
attn_status attn__clip_of_picture(attn__clip *clip, attn_context *context, const char *path);
/* A folder or an array, as the path ends. */
attn_status attn__clip_read(attn__clip *clip, attn_context *context, const char *path, int64_t number);
bool attn__is_array(const char *path); /* its name ends in .npy */

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
/* Adds a picture or the frames of a video to *set, brought to the wish; the first one makes the set and its shape.
 * `first` names the file that did, for messages. */
attn_status attn__image_source_add(attn__image_source *source, attn_image_set **set, const attn__image_wish *wish,
                                   const attn__clip *clip, int32_t label, uint64_t key, const char *name,
                                   const char *first);

/* The three kinds; *found is false where the folder is of another. */
attn_status attn__read_idx(attn__image_source *source, const char *path, const attn__names *names,
                           const attn__image_wish *wish, bool *found);
attn_status attn__read_cifar(attn__image_source *source, const char *path, const attn__names *names,
                             const attn__image_wish *wish, bool *found);
attn_status attn__read_folders(attn__image_source *source, const char *path, const attn__names *names,
                               const attn__image_wish *wish, bool *found);
/* A .npy of videos. */
attn_status attn__read_array(attn__image_source *source, const char *path, const attn__image_wish *wish);

#endif
