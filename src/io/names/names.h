/* SPDX-License-Identifier: MIT
 *
 * names.h - what a names file says: rules that bring the tensors of a checkpoint under a model's own names.
 */
#ifndef ATTN_IO_NAMES_H
#define ATTN_IO_NAMES_H

#include "io/names/pattern.h"
#include "io/tensors/weights.h"

enum { ATTN__OPERATIONS = 8 };

typedef enum attn__operation_kind {
    ATTN__TRANSPOSE,
    ATTN__PART,    /* a of b, along `axis` */
    ATTN__ROWS,    /* a to b - 1; b = INT64_MAX: to the end */
    ATTN__JOIN,    /* a of b, along `axis`: always the last */
    ATTN__ADD,     /* a of b, summed: always the last */
    ATTN__RESHAPE, /* to `shape`; one length may be -1 */
    ATTN__SQUEEZE,
    ATTN__SCALE, /* by `factor` */
    ATTN__ZERO_ROW,
    ATTN__SAME /* one of several that may fill the target, all with the same numbers: always the last */
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
    char *target;            /* NULL: a rule that drops its tensors */
    attn__pattern *fallback; /* of the targets that may stay zeros; NULL: none */
    attn__operation operations[ATTN__OPERATIONS];
    int n;
} attn__rule;

/* The operation by which several tensors make one target; NULL: each makes its own. */
static inline const attn__operation *attn__rule_gathers(const attn__rule *rule)
{
    const attn__operation *last = rule->n > 0 ? &rule->operations[rule->n - 1] : NULL;
    return last && (last->kind == ATTN__JOIN || last->kind == ATTN__ADD || last->kind == ATTN__SAME) ? last : NULL;
}

/* A setting's value that is read from the tensors that the rules make. */
typedef enum attn__measure_kind {
    ATTN__SIZE,     /* the length of the target's axis */
    ATTN__COUNT_OF, /* how many numbers follow the target, from 0, in names of tensors */
    ATTN__WHEN      /* `value`, where the target is there */
} attn__measure_kind;
typedef struct attn__measure {
    attn__measure_kind kind;
    char *key, *target;
    char *value;
    int axis;
    int64_t add; /* to the length */
} attn__measure;

struct attn_name_map {
    attn_context *context;
    char *file; /* its name, for messages */
    char *architecture;
    attn_config *settings;
    attn__rule *rules;
    int n;
    attn__measure *measures;
    int nmeasures;
};

/* Sets what a text says: a whole number, true or false, a real number, or the text. */
attn_status attn__names_set(attn_config *settings, const char *key, const char *value);
/* The index of the rule that brings a tensor of this name anywhere, -1 if none does. */
int attn__names_rule(const attn_name_map *names, const char *name, bool wrapped);
/* Whether a rule brings a tensor of this name anywhere; `wrapped`: or without what a training put before it. */
bool attn__names_know(const attn_name_map *names, const char *name, bool wrapped);
/* The name behind the first of the wrappers that trainings put around a model (PyTorch's DDP and compile, Lightning, the
 * state_dict in a checkpoint); NULL: it begins with none. */
const char *attn__name_unwrapped(const char *name);
/* Whether this parameter may stay zeros. */
bool attn__names_default(const attn_name_map *names, const char *target);
/* The name that a rule makes of a match; false: too long, or not a number where one is counted. */
bool attn__rule_target(const attn__rule *rule, const char *name, const attn__span *groups,
                       char target[ATTN__NAME_MOST + 1]);
/* Applies the rule's operations to the array; made numbers live in the findings. */
attn_status attn__rule_operate(const attn__rule *rule, attn__findings *findings, attn__array *array);
/* Row-major reals of `shape` with room for `count` numbers, in the findings. */
attn_status attn__findings_reals(attn__findings *findings, attn__array *array);
/* Exchanges the arrays found for those that the rules make of them; `keep`: those that no rule takes keep their
 * names, else they are an error. */
attn_status attn__names_apply(const attn_name_map *names, attn__findings *findings, bool keep);
/* The built-in file of that name; false: there is none. */
bool attn__names_builtin_size(const char *name, const char **text, size_t *size);
attn_context *attn__weights_context(const attn_checkpoint *weights);

/* `name` is used in messages.  The caller destroys *names before the context; NULL on failure.  ATTN_ERROR_FORMAT,
 * with the line. */
attn_status attn_name_map_parse(attn_name_map **names, attn_context *context, const char *text, size_t size,
                                const char *name);

/* Properties of the model that the file states: NULL where it names no architecture; the settings of its lines `set`.
 * Both live as long as `names`. */
const char *attn_name_map_architecture(const attn_name_map *names);

const attn_config *attn_name_map_settings(const attn_name_map *names);

/* Adds to a config what a names file says of the model: what its lines `size KEY TARGET AXIS [ADD]`, `count KEY PREFIX`
 * and `when KEY=VALUE TARGET` read from the shapes of `weights`, which were opened with it, then its lines `set`;
 * keys that the config has stay.  ATTN_ERROR_MEMORY. */
attn_status attn_name_map_infer_config(const attn_name_map *names, const attn_checkpoint *weights, attn_config *config);

/* The i-th built-in names file, NULL past the last; attn_name_map_read takes its name for a path.
 * `text` (may be NULL) gets what is in it. */
const char *attn_name_map_builtin(int i, const char **text);

/* The built-in names file whose rules match the most tensors; *known (may be NULL) gets how many. *name is NULL if
 * no file matches any.  ATTN_ERROR_MEMORY. */
attn_status attn_name_map_detect(const char **name, const attn_checkpoint *weights, int64_t *known);

#endif
