/* SPDX-License-Identifier: MIT
 *
 * proteins.h - multiple sequence alignments and protein structures: reading, selection of sequences, residue ids, and
 * distances between residues.
 *
 *     attn_file_read(&file, context, "family.a3m.gz", 0);
 *     attn_alignment_parse(&all, context, file.data, file.size, "family.a3m.gz", NULL);
 *     attn_alignment_select(&some, all, &(attn_selection){.depth = 128, .how = ATTN_SELECT_DIVERSE});
 *     attn_alignment_tokens(some, tokens);            // ids of the MSA Transformer, [rows, 1 + columns]
 *
 * R is the number of rows (sequences, of which the first is the query), and L the number of columns. Readers take
 * (text, length, name). Any number of threads may read an object at once. */
#ifndef ATTN_DATA_PROTEINS_H
#define ATTN_DATA_PROTEINS_H

#include "attn/attn.h"

/* ------------------------------------------------------------------------------------------ alignments */

/* How each file format marks columns, and insertions between two columns:
 *   A3M:       lower-case letters, '.' and '*' are insertions and are removed. All rows must then be equally long
 *              (HH-suite, Remmert et al. 2012, doi:10.1038/nmeth.1818). HH-suite's extra records (ss_pred, ss_conf,
 *              ss_dssp, ss_prob, sa_*, aa_*, *_consensus) are skipped.
 *   FASTA:     rows are equally long in the file. '.' and '~' are gaps. Lower-case letters are read as upper case. A
 *              '*' after a row's last residue is a stop and counts as a gap; before that, '*' is X. Columns at the end
 *              that hold only stops and gaps are removed.
 *   A2M:       rows are equally long in the file. The columns are those in which the query has no '.'. Lower-case
 *              letters in them are read as upper case. So insertions relative to the query are removed (SAM, HH-suite),
 *              and EVcouplings' columns of low coverage, which are in lower case, stay.
 *   STOCKHOLM: blocks of "name sequence". The columns are those that the line "#=GC RF" marks (HMMER), or without such
 *              a line those in which the query has a residue. A second alignment, or a name twice in a block, is an
 *              error.
 *   CLUSTAL:   a line that names a program (CLUSTAL, MUSCLE, PROBCONS, Kalign, MSAPROBS, Biopython, ...), then blocks
 *              of "name sequence". The columns are as in FASTA.
 * NUL bytes at the end of the text, as in ffindex databases, are ignored. */
typedef enum attn_alignment_format {
    /* the format is recognized by the content; if several formats fit, by .a3m or .a2m in the name */
    ATTN_ALIGNMENT_ANY = 0,
    ATTN_ALIGNMENT_A3M,
    ATTN_ALIGNMENT_FASTA,
    ATTN_ALIGNMENT_A2M,
    ATTN_ALIGNMENT_STOCKHOLM,
    ATTN_ALIGNMENT_CLUSTAL
} attn_alignment_format;

/* A field that is zero has its default. */
typedef struct attn_alignment_options {
    attn_alignment_format format;
    bool query_columns; /* true: keep only the columns in which the query has a residue */
    int64_t max_rows;   /* maximum number of rows to read; 0: all */
} attn_alignment_options;

typedef struct attn_alignment attn_alignment;

/* `options` may be NULL. `text` is not needed after the call. ATTN_ERROR_FORMAT: the format is unknown, there is no
 * sequence, a sequence is empty, rows differ in length, or a character is not allowed. Allowed are only letters, '-'
 * and the marks of attn_alignment_format. The message begins with `name:line:`. ATTN_ERROR_MEMORY: there is no
 * memory. */
attn_status attn_alignment_parse(attn_alignment **alignment, attn_context *context, const char *text, size_t size,
                                 const char *name, const attn_alignment_options *options);
/* Returns whether a text begins like an alignment whose format is recognized by the content. */
bool attn_alignment_is(const char *text, size_t size);
/* Returns the length of the ending of an alignment's file name, such as ".a3m" or ".A3M.gz", or 0 if it has none. */
size_t attn_alignment_ending(const char *name);
void attn_alignment_destroy(attn_alignment *alignment); /* NULL is allowed */
/* returns the format of the file that was read */
attn_alignment_format attn_alignment_origin(const attn_alignment *alignment);
int64_t attn_alignment_rows(const attn_alignment *alignment);
int64_t attn_alignment_columns(const attn_alignment *alignment);
/* Returns the header of row i, without '>'. It is valid as long as the alignment. */
const char *attn_alignment_name(const attn_alignment *alignment, int64_t i);
/* Returns a row: L characters, 'A' to 'Z' and '-', then a 0. */
const char *attn_alignment_row(const attn_alignment *alignment, int64_t i);
/* Returns all residues of the query in capitals, then a 0. Some of these residues may be in no column of the alignment:
 * residues in lower case in an a3m file, and residues that Stockholm's #=GC RF does not mark. */
const char *attn_alignment_query(const attn_alignment *alignment);
/* Returns the index of the query's residue in a column, counted from 1, or 0 if the query has a gap there. */
int64_t attn_alignment_number(const attn_alignment *alignment, int64_t column);

/* ------------------------------------------------------------------------------------ choosing sequences */

typedef enum attn_select {
    /* greedy: repeatedly chooses the row with the largest mean Hamming distance to the rows chosen so far, and the
     * first row if several are equal; chooses the same rows as the notebook of facebookresearch/esm */
    ATTN_SELECT_DIVERSE = 0,
    ATTN_SELECT_FIRST,
    ATTN_SELECT_RANDOM, /* drawn at random by the seed; all rows are equally likely */
    /* drawn at random by the seed, with the weights of attn_alignment_weights at identity 0.8. Many copies of one
     * sequence are together drawn about as often as one copy. */
    ATTN_SELECT_WEIGHTED
} attn_select;

typedef struct attn_selection {
    /* number of rows to choose, including the query, which is always chosen; 0 or more than R: all rows */
    int64_t depth;
    attn_select how;
    uint64_t seed;
} attn_selection;

/* Creates an alignment that consists of the chosen rows, in their original order. ATTN_ERROR_ARGUMENT: `depth` is
 * negative. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_alignment_select(attn_alignment **chosen, const attn_alignment *all, const attn_selection *selection);

/* ------------------------------------------------------------------------------------- weights of sequences */

/* Computes weights[R]. The weight of row i is 1 / n, where n is the number of rows that agree with row i in at least
 * the share `identity` of all columns (0 means 0.8). Gaps count like residues, and row i itself is counted. The sum of
 * the weights is the effective number of sequences, Neff (direct coupling analysis, Morcos et al. 2011,
 * doi:10.1073/pnas.1111471108). Each pair of rows is compared until it differs too much. This takes at most R^2 L / 2
 * comparisons of residues, and about a quarter of that if rows are dissimilar. All threads of the context are used. The
 * result does not depend on the number of threads. The function needs 4 bytes of memory per row. ATTN_ERROR_ARGUMENT:
 * `identity` is not in (0, 1]. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_alignment_weights(const attn_alignment *alignment, double identity, double *weights);
/* Computes weights[R], position-based weights (Henikoff and Henikoff 1994, doi:10.1016/0022-2836(94)90032-9). In a
 * column with k kinds of residues, a row whose residue occurs in n rows gets 1 / (k n). The weight of a row is the mean
 * of these values over the columns in which the row has one of the twenty amino acids. Weights are scaled so that their
 * mean over all rows is 1. Gaps and ambiguous letters are left out, and a row without any residue has weight 0. The
 * mean per residue (as in HMMER) does not penalize a fragment for being short. The time is proportional to R L, and the
 * memory to L. May return ATTN_ERROR_MEMORY.
 */
attn_status attn_alignment_position_weights(const attn_alignment *alignment, double *weights);

/* ------------------------------------------------------------------------------------------- residue ids */

/* The 33 symbols of the ESM models (Rives et al. 2021, doi:10.1073/pnas.2016239118). */
enum {
    ATTN_RESIDUE_COUNT = 33,
    ATTN_RESIDUE_CLS = 0,
    ATTN_RESIDUE_PAD = 1,
    ATTN_RESIDUE_EOS = 2,
    ATTN_RESIDUE_UNKNOWN = 3,
    ATTN_RESIDUE_GAP = 30,
    ATTN_RESIDUE_MASK = 32
};
/* Returns the id of a letter, of '-' or of '.'. Returns -1 if the character is no residue. 'J' (leucine or
 * isoleucine) has no id of its own and is read as X. */
int32_t attn_residue_id(char residue);
/* Returns the symbol of an id, such as "A" or "<mask>". Returns NULL if the id has no symbol. */
const char *attn_residue_symbol(int32_t id);
/* Writes tokens [R, 1 + L]. Each row begins with <cls>, followed by its columns. */
void attn_alignment_tokens(const attn_alignment *alignment, int32_t *tokens);

typedef struct attn_masking {
    double share; /* 0: 0.15 */
    uint64_t seed, stream;
} attn_masking;
/* Chooses residues to hide for masked language modelling (Devlin et al. 2018, arXiv:1810.04805). Each residue or gap is
 * chosen with probability `share`. 80 % of the chosen residues become <mask>, 10 % become a random amino acid (of the
 * twenty) or gap, and 10 % stay. labels[i] becomes the id of residue i if the residue is chosen, otherwise -1. <cls>
 * and <pad> are never chosen. The choice depends only on (seed, stream, place), where the place is the index i. Returns
 * the number of chosen residues. */
int64_t attn_mask_residues(const attn_masking *masking, int64_t n, int32_t *tokens, int32_t *labels);

/* -------------------------------------------------------------------------------------------- structures */

typedef struct attn_residue {
    char letter;    /* one-letter code of the residue; 'X' if it has none */
    char insertion; /* the PDB's insertion code; ' ' if there is none */
    int64_t number; /* the residue's number in the file */
    bool has_n, has_ca, has_c, has_cb;
    double n[3], ca[3], c[3], cb[3]; /* angstrom */
} attn_residue;

typedef struct attn_structure attn_structure; /* chains of residues, read from a file */

/* Returns whether this library can read structures. It was then built with gemmi. */
bool attn_structures_available(void);
/* Reads PDB or mmCIF text (recognized by the content) with gemmi. Only the first model is used, and of alternative
 * locations the one with the highest occupancy. Modified residues count as their parent residues, also in HETATM
 * records: if they have a place in the file's sequence (_entity_poly_seq), if MODRES names them, if they are known and
 * SEQRES has them or is absent, or if a peptide bond binds them to a residue of the chain. Nucleotides are ignored.
 * Sequences (SEQRES, _entity_poly_seq) are read too. If `chain` is NULL, every chain that has residues is read.
 * ATTN_ERROR_FORMAT: the file is invalid; the message begins with `name:`. ATTN_ERROR_NOT_FOUND: there is no such
 * chain; the message lists the chains. ATTN_ERROR_MEMORY: there is no memory. ATTN_ERROR_UNSUPPORTED: the library was
 * built without gemmi. */
attn_status attn_structure_parse(attn_structure **structure, attn_context *context, const char *text, size_t size,
                                 const char *name, const char *chain);
void attn_structure_destroy(attn_structure *structure); /* NULL is allowed */
/* Returns the number of residues of all chains, which are stored one chain after the other. */
int64_t attn_structure_size(const attn_structure *structure);
/* Returns residue i, 0 <= i < size. attn_structure_chain returns the name of the residue's chain. Both results are
 * valid as long as the structure. */
const attn_residue *attn_structure_residue(const attn_structure *structure, int64_t i);
const char *attn_structure_chain(const attn_structure *structure, int64_t i);

/* The quality of the best match of a chain with the query. */
typedef struct attn_structure_match {
    const char *chain; /* name of the chain; valid as long as the structure */
    /* number of query residues that are aligned to residues of the chain, whether their coordinates are known or not */
    int64_t aligned;
    double identity; /* share of the aligned residues that are equal in both sequences */
    double coverage; /* share of all residues of the query that are aligned */
} attn_structure_match;

/* Finds the residue of each column. to[c] becomes the index of the residue of column c in the structure. It becomes -1
 * if the query has a gap, or if the residue is not aligned or absent from the file. The query is locally aligned with
 * each chain (Smith and Waterman 1981, with the affine gaps of Gotoh 1982). Scores are those of BLOSUM62. A gap costs
 * 11, plus 1 per residue. Gaps cost less where the chain is broken. The chain with the highest score is used. If scores
 * are equal, the chain with the most known coordinates is used. If both are equal, the first chain is used. The chain's
 * sequence is the file's SEQRES or entity sequence, so absent residues stay absent. Without such a sequence, the jump
 * in residue numbers at a break gives the number of absent residues. `query` has L characters with gaps. *match gets
 * the quality of the match; `match` may be NULL. ATTN_ERROR_FORMAT: the structure is of another protein, because less
 * than half of the shorter sequence is aligned, less than half of the aligned part is identical, or more than 0.01
 * equally good alignments are expected by chance. ATTN_ERROR_MEMORY: there is no memory. Time and memory are
 * proportional to L times the length of the longest chain. */
attn_status attn_structure_map(const attn_structure *structure, const char *query, int64_t columns, int64_t *to,
                               attn_structure_match *match);

typedef enum attn_cbeta {
    ATTN_CBETA_ATOM = 0, /* position of C-beta, or of C-alpha if the residue has no C-beta (glycine), as in CASP */
    /* position of an ideal C-beta, computed from N, C-alpha and C for every residue, as in ESM's notebook */
    ATTN_CBETA_IMPUTED
} attn_cbeta;
/* Computes the distances [L,L] in angstrom between the residues `to` of the columns. A distance is NAN if one of the
 * two residues is missing. */
void attn_structure_distances(const attn_structure *structure, const int64_t *to, int64_t columns, attn_cbeta beta,
                              float *distances);

/* Selects which pairs of residues (i, j) are judged. These are the `count` pairs with the highest scores among the
 * pairs with min_separation <= j - i < max_separation. */
typedef struct attn_contact_range {
    int64_t min_separation;
    int64_t max_separation; /* 0: no limit */
    int64_t count;
    double cutoff; /* residues closer than this distance in angstrom are in contact; 0: 8 */
} attn_contact_range;

/* Computes which fraction of the judged pairs are true contacts. The judged pairs are the pairs of resolved residues in
 * the range with the highest scores. Pairs with equal scores are ordered by i, then by j. If there are fewer pairs than
 * `count`, all of them are judged. *counted gets the number of judged pairs; `counted` may be NULL. scores and
 * distances are [L,L], and only elements with i < j are read. The fraction is NAN if no pair is resolved. May return
 * ATTN_ERROR_MEMORY. */
attn_status attn_contact_precision(attn_context *context, const float *scores, const float *distances, int64_t columns,
                                   const attn_contact_range *range, double *precision, int64_t *counted);

#endif
