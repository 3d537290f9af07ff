/* SPDX-License-Identifier: MIT
 *
 * names.h - the contents of a names file: rules that map the tensors of a checkpoint to a model's own names. */
#ifndef ATTN_IO_NAMES_H
#define ATTN_IO_NAMES_H

#include "io/names/pattern.h"
#include "io/tensors/weights.h"

enum { ATTN__OPERATIONS = 8 };

typedef enum attn__operation_kind {
    ATTN__TRANSPOSE,
    ATTN__PART,    /* take equal part a of b along `axis` */
    ATTN__ROWS,    /* take rows a to b - 1; if b is INT64_MAX, take rows a to the last */
    ATTN__JOIN,    /* use this tensor as slice a of b of the target, along `axis`; always the last operation */
    ATTN__ADD,     /* add this tensor, as term a of b, to the target; always the last operation */
    ATTN__RESHAPE, /* change the shape to `shape`, in which one length may be -1 */
    ATTN__SQUEEZE,
    ATTN__SCALE,
    ATTN__ZERO_ROW,
    /* this tensor is one of several tensors of which the target is made, and which must be equal; always the last
     * operation */
    ATTN__SAME
} attn__operation_kind;

typedef struct attn__operation {
    attn__operation_kind kind;
    int64_t a, b;
    int axis, rank;
    double factor;
    int64_t shape[ATTN_MAX_RANK];
} attn__operation;

typedef struct attn__rule {
    int line;
    attn__pattern *pattern;
    char *target; /* NULL: the rule drops its tensors */
    /* pattern of the targets that may stay zero if the checkpoint does not have them; NULL: there are none */
    attn__pattern *fallback;
    attn__operation operations[ATTN__OPERATIONS];
    int n;
} attn__rule;

/* Returns the rule's operation if several tensors together make one target (join, add, same). Returns NULL if each
 * tensor makes a target of its own. */
static inline const attn__operation *attn__rule_gathers(const attn__rule *rule)
{
    const attn__operation *last = rule->n > 0 ? &rule->operations[rule->n - 1] : NULL;
    return last && (last->kind == ATTN__JOIN || last->kind == ATTN__ADD || last->kind == ATTN__SAME) ? last : NULL;
}

/* The ways to determine a setting from the tensors that the rules make. */
typedef enum attn__measure_kind {
    ATTN__SIZE, /* the setting is the length of one axis of the target */
    /* the setting is a count, such as the number of layers: one more than the largest number that follows `target` in
     * the names of tensors */
    ATTN__COUNT_OF,
    ATTN__WHEN /* the setting is `value` if the target exists */
} attn__measure_kind;
typedef struct attn__measure {
    attn__measure_kind kind;
    char *key, *target;
    char *value;
    int axis;
    int64_t add; /* number that is added to the length */
} attn__measure;

struct attn_name_map {
    attn_context *context;
    char *file;
    char *architecture;
    attn_config *settings;
    attn__rule *rules;
    int n;
    attn__measure *measures;
    int nmeasures;
};

/* Sets a setting to the value of a text: an integer, true or false, or a real. Any other text is the value itself. */
attn_status attn__names_set(attn_config *settings, const char *key, const char *value);
/* Returns the index of the rule that maps a tensor of this name to a target, or -1 if there is none. If `wrapped` is
 * true, a rule may also match the name without its prefixes. */
int attn__names_rule(const attn_name_map *names, const char *name, bool wrapped);
/* Returns whether a rule maps a tensor of this name to a target. If `wrapped` is true, the name may also have a
 * prefix that a training has added. */
bool attn__names_know(const attn_name_map *names, const char *name, bool wrapped);
/* Returns the name without its first prefix, or NULL if it has none of these prefixes: of PyTorch's DDP and compile, of
 * Lightning, or of a checkpoint that holds the weights as state_dict. */
const char *attn__name_unwrapped(const char *name);
bool attn__names_default(const attn_name_map *names, const char *target);
/* Makes the name of a rule's target from a tensor's name and the groups of its match. Returns NULL, or what is wrong
 * with the name: it is empty or too long, or a group to which a number is added is not a number. */
const char *attn__rule_target(const attn__rule *rule, const char *name, const attn__span *groups,
                              char target[ATTN__NAME_MOST + 1]);
/* Memory for new elements is allocated in the findings. */
attn_status attn__rule_operate(const attn__rule *rule, attn__findings *findings, attn__array *array);
/* Allocates memory in the findings for the array's elements, which become reals in row-major order. The elements are
 * not set. */
attn_status attn__findings_reals(attn__findings *findings, attn__array *array);
/* Replaces the arrays of the findings by the arrays that the rules make from them. If `keep` is true, arrays without
 * a rule keep their names. Otherwise an array without a rule is an error. */
attn_status attn__names_apply(const attn_name_map *names, attn__findings *findings, bool keep);
/* Returns false if there is no file of this name. */
bool attn__names_builtin_size(const char *name, const char **text, size_t *size);
attn_context *attn__weights_context(const attn_checkpoint *weights);

/* `name` is used in messages. The caller must destroy *names before the context. On failure *names is NULL.
 * ATTN_ERROR_FORMAT: the text is invalid; the message gives the line. */
attn_status attn_name_map_parse(attn_name_map **names, attn_context *context, const char *text, size_t size,
                                const char *name);

/* Returns the architecture that the names file specifies, or NULL if it specifies none. attn_name_map_settings
 * returns the settings of the file's lines `set`. Both results are valid as long as `names`. */
const char *attn_name_map_architecture(const attn_name_map *names);

const attn_config *attn_name_map_settings(const attn_name_map *names);

/* Adds the model's settings to a config. `weights` must have been opened with this names file. The lines `size KEY
 * TARGET AXIS [ADD]`, `count KEY PREFIX` and `when KEY=VALUE TARGET` of the file determine settings from the shapes of
 * `weights`. Then the settings of the lines `set` are added. Keys that the config already has are not changed. May
 * return ATTN_ERROR_MEMORY. */
attn_status attn_name_map_infer_config(const attn_name_map *names, const attn_checkpoint *weights, attn_config *config);

/* Returns the name of the i-th built-in names file, or NULL if i is past the last one. attn_name_map_read accepts
 * this name as a path. *text gets the contents of the file; `text` may be NULL. */
const char *attn_name_map_builtin(int i, const char **text);

/* Finds the built-in names file whose rules match the most tensors. If no file matches any tensor, *name is NULL.
 * *known becomes the number of matched tensors, and *rules the share of the file's rules that match a tensor; both
 * pointers may be NULL. May return ATTN_ERROR_MEMORY. */
attn_status attn_name_map_detect(const char **name, const attn_checkpoint *weights, int64_t *known, double *rules);

#endif
