/* SPDX-License-Identifier: MIT
 *
 * identify.h - what a path to a model is. attn__identify looks at the path once; loaders, trainings and the command
 * read its answer: a file or a directory, in whose form, of which architecture, for which product, and what is beside
 * the weights.
 */
#ifndef ATTN_APPS_IDENTIFY_H
#define ATTN_APPS_IDENTIFY_H

#include "attn/io.h"
#include "attn/models.h"
#include "base/path.h"

typedef enum attn__form {
    ATTN__FORM_NONE = 0,     /* there is no such path */
    ATTN__FORM_FILE,         /* a file, which may hold weights */
    ATTN__FORM_OWN,          /* a directory of attn: its config.json names an architecture of attn */
    ATTN__FORM_HUGGING_FACE, /* a directory whose config.json has a model_type, and no "architecture" */
    ATTN__FORM_MARIAN,       /* a directory in Marian's own form: decoder.yml, and no config.json */
    ATTN__FORM_CTRANSLATE2,  /* a directory of CTranslate2 */
    ATTN__FORM_BERGAMOT,     /* a directory of bergamot (Firefox Translations) */
    ATTN__FORM_OTHER         /* any other directory, such as timm's */
} attn__form;

/* What a model is for. */
typedef enum attn__application {
    ATTN__PRODUCT_NONE = 0, /* none of the products, or not known */
    ATTN__PRODUCT_TRANSLATOR,
    ATTN__PRODUCT_CLASSIFIER,
    ATTN__PRODUCT_DETECTOR,
    ATTN__PRODUCT_GENERATOR,
    ATTN__PRODUCT_MSA,
    ATTN__PRODUCT_ENCODER
} attn__application;

typedef struct attn__identity {
    attn_context *context;
    const char *path; /* the caller's, which must outlive this struct */
    attn__form form;
    attn__application product;
    bool directory;
    bool adapter;              /* the directory has a low-rank adapter, which functions that read weights merge */
    bool weights;              /* the directory has a file of weights */
    const char *tokenizer;     /* name of the directory's tokenizer file (tokenizer_files.h); NULL: there is none */
    char settings[ATTN__PATH]; /* path of the settings, for messages: config.json or decoder.yml; the path of a file */
    attn_config *config;       /* config.json; NULL: the path is a file, or config.json is missing or cannot be read */
    char named[64];            /* "architecture" of config.json; "": there is none */
    char type[64];             /* "model_type" of config.json; "": there is none */
    const attn_architecture *architecture; /* attn's architecture `named`; NULL: there is none */
    const char *names; /* built-in names file of the encoder that config.json describes; NULL: there is none */
    /* set by attn__identify_tensors */
    attn_checkpoint *tensors; /* the weights with their own names; NULL: not opened */
    attn_config *saved;       /* settings that are stored with the weights, such as the arguments of a training */
    const char *tensor_names; /* built-in names file that matches the most names of tensors; NULL: none does */
    bool vit;                 /* the tensors are those of a Vision Transformer of Hugging Face or timm */
} attn__identity;

/* Reads config.json and lists the directory, but reads no weights. Free the result with attn__identity_end, even on
 * failure. A path that does not exist, or whose config.json cannot be read, is no error: loading reports it.
 * ATTN_ERROR_MEMORY. ATTN_ERROR_ARGUMENT: the path is too long. */
attn_status attn__identify(attn__identity *identity, attn_context *context, const char *path);
/* Opens the weights, unless they are open, and finds which model the names of their tensors belong to. A file, and a
 * directory whose config.json does not tell the product, get the product of this model. Returns the statuses of
 * attn_checkpoint_open. */
attn_status attn__identify_tensors(attn__identity *identity);
/* The same, but weights that cannot be read are no error: loading reports it. ATTN_ERROR_MEMORY. */
attn_status attn__identify_weights(attn__identity *identity);
void attn__identity_end(attn__identity *identity);

/* Writes the path from which the weights of a directory are read, to a buffer of ATTN__PATH bytes: model.safetensors,
 * or the directory itself if it has an adapter. */
attn_status attn__identity_weights(const attn__identity *identity, char *path);
/* Takes config.json from the identity. If it could not be read, reads it again, and so fails with the reason. The
 * caller destroys *config. */
attn_status attn__identity_config(attn__identity *identity, attn_config **config);
/* Reads the JSON file `name` beside the weights: in the directory, or in the folder of the file. *config stays
 * unchanged if there is no such file. `beside`, of ATTN__PATH bytes, gets the path, for messages. */
attn_status attn__settings_beside(attn_config **config, attn_context *context, const char *path, const char *name,
                                  char *beside);

/* Returns the product of the models of an architecture. All that are not listed are classifiers. */
attn__application attn__product_of(const char *architecture);
/* Checks that the settings in the file `settings` are those of a model for the product. ATTN_ERROR_UNSUPPORTED: they
 * are of another model; the message names its architecture, and what attn does with it. ATTN_ERROR_FORMAT: they name no
 * architecture. Settings of classifiers may name any that is of no other product, or none. */
attn_status attn__product_check(attn_context *context, const char *settings, const attn_config *config,
                                attn__application product);

/* Fails if the path is a model of translation, or of another kind of text, in a form that attn does not load.
 * ATTN_ERROR_UNSUPPORTED: the message names the program, and what attn loads. */
attn_status attn__identity_translates(const attn__identity *identity);
/* Fails because settings name no architecture of attn. If they are of Hugging Face, the error names their model_type
 * and the types that attn loads. */
attn_status attn__foreign_type_refuse(attn_context *context, const char *settings, const attn_config *config);

#endif
