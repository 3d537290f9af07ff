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
    ATTN__PART,    /* part a of b, along `axis` */
    ATTN__ROWS,    /* rows a to b - 1; b = INT64_MAX: to the end */
    ATTN__JOIN,    /* slice a of b, along `axis`: always the last operation */
    ATTN__ADD,     /* term a of b, summed: always the last operation */
    ATTN__RESHAPE, /* reshape to `shape`; one length may be -1 */
    ATTN__SQUEEZE,
    ATTN__SCALE, /* multiply by `factor` */
    ATTN__ZERO_ROW,
    ATTN__SAME /* one of several sources of the target, all with the same numbers: always the last operation */
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
    attn__pattern *fallback; /* pattern of the targets that may stay zero; NULL: none */
    attn__operation operations[ATTN__OPERATIONS];
    int n;
} attn__rule;

/* Returns the operation by which several tensors make one target, or NULL if each tensor makes its own target. */
static inline const attn__operation *attn__rule_gathers(const attn__rule *rule)
{
    const attn__operation *last = rule->n > 0 ? &rule->operations[rule->n - 1] : NULL;
    return last && (last->kind == ATTN__JOIN || last->kind == ATTN__ADD || last->kind == ATTN__SAME) ? last : NULL;
}

/* A kind of setting whose value is read from the tensors that the rules make. */
typedef enum attn__measure_kind {
    ATTN__SIZE,     /* the length of the target's axis */
    ATTN__COUNT_OF, /* the count of numbers, from 0, that follow the target in names of tensors */
    ATTN__WHEN      /* `value`, if the target exists */
} attn__measure_kind;
typedef struct attn__measure {
    attn__measure_kind kind;
    char *key, *target;
    char *value;
    int axis;
    int64_t add; /* added to the length */
} attn__measure;

struct attn_name_map {
    attn_context *context;
    char *file; /* name of the file, for messages */
    char *architecture;
    attn_config *settings;
    attn__rule *rules;
    int n;
    attn__measure *measures;
    int nmeasures;
};

/* Sets a value from text: a whole number, true or false, a real number, or else the text itself. */
attn_status attn__names_set(attn_config *settings, const char *key, const char *value);
/* Returns the index of the rule that maps a tensor of this name to a target, or -1 if there is none. */
int attn__names_rule(const attn_name_map *names, const char *name, bool wrapped);
/* Returns whether a rule maps a tensor of this name to a target. With `wrapped`, the name may also have a prefix of a
 * training. */
bool attn__names_know(const attn_name_map *names, const char *name, bool wrapped);
/* Returns the name without its first wrapper prefix (PyTorch's DDP and compile, Lightning, the state_dict in a
 * checkpoint), or NULL if the name has no such prefix. */
const char *attn__name_unwrapped(const char *name);
/* Returns whether this parameter may stay zero. */
bool attn__names_default(const attn_name_map *names, const char *target);
/* Makes the name of a rule's target from a match. Returns false if the name is too long, or a counted group is no
 * number. */
bool attn__rule_target(const attn__rule *rule, const char *name, const attn__span *groups,
                       char target[ATTN__NAME_MOST + 1]);
/* Applies the rule's operations to the array; new numbers are stored in the findings. */
attn_status attn__rule_operate(const attn__rule *rule, attn__findings *findings, attn__array *array);
/* Allocates row-major reals with the array's shape in the findings. */
attn_status attn__findings_reals(attn__findings *findings, attn__array *array);
/* Replaces the found arrays by the arrays that the rules make. With `keep`, arrays without a rule keep their names;
 * otherwise such arrays are an error. */
attn_status attn__names_apply(const attn_name_map *names, attn__findings *findings, bool keep);
/* Gets the built-in file of this name. Returns false if there is none. */
bool attn__names_builtin_size(const char *name, const char **text, size_t *size);
attn_context *attn__weights_context(const attn_checkpoint *weights);

/* Parses a names file. `name` is used in messages. The caller destroys *names before the context; *names is NULL on
 * failure. ATTN_ERROR_FORMAT, with the line. */
attn_status attn_name_map_parse(attn_name_map **names, attn_context *context, const char *text, size_t size,
                                const char *name);

/* Returns the model's architecture in the file, or NULL if the file does not name it. attn_name_map_settings returns
 * the settings of the lines `set`. Both are valid as long as `names`. */
const char *attn_name_map_architecture(const attn_name_map *names);

const attn_config *attn_name_map_settings(const attn_name_map *names);

/* Adds the model's settings to a config. The lines `size KEY TARGET AXIS [ADD]`, `count KEY PREFIX` and `when KEY=VALUE
 * TARGET` read the shapes of `weights`, which were opened with the names file. Then the lines `set` are added. Existing
 * keys of the config stay. ATTN_ERROR_MEMORY. */
attn_status attn_name_map_infer_config(const attn_name_map *names, const attn_checkpoint *weights, attn_config *config);

/* Returns the i-th built-in names file, or NULL past the last. attn_name_map_read accepts its name as a path. `text`
 * (may be NULL) gets its contents. */
const char *attn_name_map_builtin(int i, const char **text);

/* Finds the built-in names file whose rules match the most tensors. *known (may be NULL) gets their number. *name is
 * NULL if no file matches any tensor. ATTN_ERROR_MEMORY. */
attn_status attn_name_map_detect(const char **name, const attn_checkpoint *weights, int64_t *known);

#endif
