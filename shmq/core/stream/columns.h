/* Records of a partition as columns, as Arrow has them: made of entries as they lie, and back.
 *
 * A block is whole entries, one behind the other, as a ring, a file or the wire has them:
 * stream/entry.h. It is gone through twice: to see how much it is, and to fill arrays of that
 * size. */
#ifndef SHMQ_STREAM_COLUMNS_H
#define SHMQ_STREAM_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which entries of a block are meant: those of offsets from `first` up to `end`. */
struct shmq_log_block {
    const unsigned char *bytes;
    size_t size;
    uint64_t first, end;
};

/* How much they are. */
struct shmq_log_sums {
    uint32_t count;
    bool keyed;      /* some have a key                                                   */
    bool compressed; /* some are several records compressed together: these have no columns */
    uint64_t value_bytes, key_bytes, header_bytes;
};

/* The arrays, of `count` items each; those of the ends have one more, of which the first is 0.
 * So item i of the values goes from ends[i] to ends[i + 1]. */
struct shmq_log_arrays {
    int64_t *offsets;
    int64_t *timestamps; /* microseconds since 1970                                        */
    unsigned char *codecs;
    int32_t *value_ends, *key_ends, *header_ends;
    unsigned char *values, *keys, *headers;
    unsigned char *has_key; /* a bit each, the lowest first; zeroed by the caller          */
};

/* False for bytes that are no entries, or more than arrays with ends of 31 bits can hold. */
bool shmq_log_measure(const struct shmq_log_block *b, struct shmq_log_sums *sums);

/* Fills arrays of just that size, for a block that was measured and has nothing compressed. */
void shmq_log_fill(const struct shmq_log_block *b, const struct shmq_log_arrays *to);

/* Texts as Arrow has them: item i goes from ends[i] to ends[i + 1]. */
struct shmq_log_texts {
    const int32_t *ends; /* NULL: there are none                                           */
    const unsigned char *bytes;
    uint64_t size;
    const unsigned char *there; /* a bit each; NULL: all are there                         */
};

/* Records that are to be appended. */
struct shmq_log_rows {
    struct shmq_log_texts values, keys, headers;
    const unsigned char *codecs; /* of each; NULL: `codec` is that of all                  */
    uint8_t codec;
};

/* The bytes of the entries of rows from `begin` up to `*end`, which is lowered so that they are
 * `most` at most, or one row. 0 for ends that contradict their texts. */
uint64_t shmq_log_packed(const struct shmq_log_rows *r, uint32_t begin, uint32_t *end,
                         uint64_t most);

/* Writes so many bytes: a block without offsets and times, and with a salt of 0, as an append
 * takes it. `to` is a multiple of 8. */
void shmq_log_pack(const struct shmq_log_rows *r, uint32_t begin, uint32_t end, unsigned char *to);

#endif
