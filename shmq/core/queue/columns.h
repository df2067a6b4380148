/* A run of messages as columns, in one block of bytes: docs/internals/protocol.md, "Columns".
 *
 *   head | sequence u64 | put_at, visible_at, lease_until, expires, dead_at i64 |
 *   deliveries, priority i32 | state, reason, codec u8 |
 *   body_offsets i32 | bodies | meta_offsets i32 | metas
 *
 * All numbers are little-endian. Each array begins at a multiple of 8; the padding is zero. The
 * arrays have `count` items, arrays of offsets one more: body i goes from offset i to offset i + 1,
 * and so do the properties (a msgpack map, or no bytes). Times are in microseconds since 1970, 0
 * for none. So each column has Arrow's format, and nothing is copied to make an Arrow array. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_COLUMNS_HEAD 32u
#define SHMQ_COLUMNS_ROW 67u      /* bytes of a row without body, properties and padding   */
#define SHMQ_COLUMNS_PADDING 112u /* the most of a block; includes the last two offsets    */

/* The state of a message, in the column `state`. */
enum shmq_row_state {
    SHMQ_IS_READY = 1,
    SHMQ_IS_DELAYED = 2,
    SHMQ_IS_LEASED = 3,
    SHMQ_IS_DYING = 4, /* it waits to be moved to the dead-letter queue                  */
};

/* The arrays of a block, in order. */
enum shmq_column {
    SHMQ_COLUMN_SEQUENCE,
    SHMQ_COLUMN_PUT_AT,
    SHMQ_COLUMN_VISIBLE_AT,
    SHMQ_COLUMN_LEASE_UNTIL,
    SHMQ_COLUMN_EXPIRES,
    SHMQ_COLUMN_DEAD_AT,
    SHMQ_COLUMN_DELIVERIES,
    SHMQ_COLUMN_PRIORITY,
    SHMQ_COLUMN_STATE,
    SHMQ_COLUMN_REASON,
    SHMQ_COLUMN_CODEC,
    SHMQ_COLUMN_BODY_OFFSETS,
    SHMQ_COLUMN_BODIES,
    SHMQ_COLUMN_META_OFFSETS,
    SHMQ_COLUMN_METAS,
    SHMQ_COLUMNS
};

/* The places of the arrays of a block. */
struct shmq_columns_layout {
    uint32_t count;
    uint64_t offset[SHMQ_COLUMNS];
    uint64_t bytes[SHMQ_COLUMNS]; /* without padding                                     */
    uint64_t size;                /* of the block                                        */
};

/* A block that is being filled. */
struct shmq_columns {
    unsigned char *base;
    struct shmq_columns_layout room; /* the room, in rows and bytes                      */
    uint32_t count;          /* so far                                                   */
    uint64_t body_bytes, meta_bytes;
};

/* One row without its body and properties. */
struct shmq_row {
    uint64_t sequence;
    int64_t put_at, visible_at, lease_until, expires, dead_at;
    int32_t deliveries, priority;
    uint8_t state, reason, codec;
    uint32_t body_bytes, meta_bytes;
};

/* False if a block cannot hold that much: offsets have 31 bits. */
bool shmq_columns_lay_out(struct shmq_columns_layout *layout, uint32_t count, uint64_t body_bytes,
                          uint64_t meta_bytes);

/* Begins a block at `base`, which has room for `room->size` bytes. */
void shmq_columns_begin(struct shmq_columns *c, void *base, const struct shmq_columns_layout *room);

/* The place for the bytes of the next row; false if there is not enough room. The caller copies them and
 * then adds the row; if it does not add it, nothing has changed. */
bool shmq_columns_next(const struct shmq_columns *c, uint32_t body_bytes, uint32_t meta_bytes,
                       unsigned char **body, unsigned char **meta);
void shmq_columns_add(struct shmq_columns *c, const struct shmq_row *row);

/* Ends the block; returns its size, which equals the room's size if all of it was filled. */
uint64_t shmq_columns_end(struct shmq_columns *c);

/* Whether `bytes`, aligned to 8, are a block; sets `layout` to the places of its arrays. */
bool shmq_columns_read(const unsigned char *bytes, uint64_t size,
                       struct shmq_columns_layout *layout);
