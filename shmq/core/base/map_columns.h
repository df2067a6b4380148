/* Values of many msgpack maps as Arrow's columns: first they are found, then measured, then copied
 * into arrays of the measured size. */
#pragma once

#include "base/arrow.h"

/* Maps: number i goes from ends[i] to ends[i + 1], and has no bytes if it is empty. */
struct shmq_maps {
    const int32_t *ends;
    const unsigned char *bytes;
    uint64_t size;
    uint32_t count;
};

/* Whether the ends rise and are within the bytes. */
bool shmq_maps_check(const struct shmq_maps *m);

/* Finds the value of `key` in each map, or, if `outer` is set, in the map that it leads to: a key, or
 * several with dots between, each in the map that is the value of the one before. A span is the
 * encoded value; absent: there is none, or nil. Without a key the span is the map. Returns how many
 * maps there are before the first malformed one. */
uint32_t shmq_maps_find(const struct shmq_maps *m, const char *outer, const char *key,
                        struct shmq_span *spans);

/* ---- texts and numbers ---- */

struct shmq_text_sums {
    uint32_t present;
    uint64_t bytes;
};

/* Arrays of `count` items; `ends` has one more. `there` is zeroed by the caller. */
struct shmq_text_arrays {
    int32_t *ends;
    unsigned char *bytes, *there;
};

/* Makes each span its text or bytes; a value that is neither counts as absent. */
void shmq_texts_measure(struct shmq_span *spans, uint32_t count, struct shmq_text_sums *sums);

/* Every span was measured. */
void shmq_texts_fill(const struct shmq_span *spans, uint32_t count,
                     const struct shmq_text_arrays *to);

/* Returns how many are present: a value that is not an int counts as absent, and is 0. */
uint32_t shmq_ints_fill(const struct shmq_span *spans, uint32_t count, int64_t *numbers,
                        unsigned char *there);

/* ---- maps as pairs ---- */

struct shmq_pair_sums {
    uint32_t present; /* maps with pairs */
    uint64_t pairs, key_bytes, value_bytes;
};

/* Arrays of the maps, and of the pairs of all maps. */
struct shmq_pair_arrays {
    int32_t *ends;
    unsigned char *there;
    int32_t *key_ends;
    unsigned char *keys;
    struct shmq_text_arrays values;
};

/* Adds the pairs of one map. False if the map is malformed, a key is not text or comes twice, or a
 * value is neither text, nor bytes, nor nil: such a map has no columns. */
bool shmq_pairs_measure(const struct shmq_span *span, struct shmq_pair_sums *sums);

/* Every map was measured. */
void shmq_pairs_fill(const struct shmq_span *spans, uint32_t count,
                     const struct shmq_pair_arrays *to);

/* Whether two of the spans have the same bytes; their order may change. */
bool shmq_spans_repeat(struct shmq_span *spans, uint32_t count);
