/* The numbers of folds.c, for what gives them out. */
#ifndef STATEFLOW_FOLDS_H
#define STATEFLOW_FOLDS_H

#include "newest.h"
#include "numbers.h"

#define UNKNOWN (-1) /* for the kind of a number that is on disk, or nowhere */
#define IS_CHANGED 1 /* since the last commit */
#define IS_OPENED 2  /* a window of which there was nothing, and that was not told yet */
#define IS_ASKED 4

typedef struct {
    sf_number number;
    uint8_t flags;
} folded;

typedef struct {
    uint32_t index;
    folded before;
} undone;

typedef struct {
    sf_newest *young, *old;
    int operation, format, of_windows;
    int kinds;      /* a bit for each kind of number that may be kept */
    int skips_none; /* else a None refuses its batch */
    int64_t known_from, young_latest, old_latest;
    int64_t opened;
    uint32_t *changed; /* entries of `young` */
    size_t changed_count, changed_max;
    size_t sorted_count; /* so many of them are in the order of their keys, if that is all */
    uint32_t *rows; /* entries of the batch at work, and what is asked for of them */
    char *joined;   /* some keys of a batch with its suffix */
    size_t joined_max;
    uint32_t *asked;
    undone *undo;
    size_t rows_count, rows_max, asked_count;
} folds;

/* What is kept of a key, and how it is kept anew. */
folded sf_folded_of(const sf_entry *of);
void sf_folded_keep(const sf_entry *of, const folded *own);

/* When the window of a key begins. */
int64_t sf_window_of(const void *key, ptrdiff_t key_length);

#endif
