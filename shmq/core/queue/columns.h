/* A run of messages as columns, in one block of bytes: docs/protocol.md, "Columns".
 *
 *   head | sequence u64 | put_at, visible_at, lease_until, expires, dead_at i64 |
 *   deliveries, priority i32 | state, reason, codec u8 |
 *   body_offsets i32 | bodies | meta_offsets i32 | metas
 *
 * All numbers are little-endian, and each array begins at a multiple of 8, what pads it being
 * zero. The arrays have `count` items, those of offsets one more: item i of the bodies goes
 * from offset i to offset i + 1, and so do the properties (a msgpack map, or no bytes). Times
 * are in microseconds since 1970, 0 where there is none. So a column is as Arrow has it, and
 * nothing has to be copied to make one. */
#ifndef SHMQ_QUEUE_COLUMNS_H
#define SHMQ_QUEUE_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_COLUMNS_HEAD 32u
#define SHMQ_COLUMNS_ROW 67u      /* bytes of a row without body, properties and padding   */
#define SHMQ_COLUMNS_PADDING 112u /* at most, of a block; the last two offsets included    */

/* What a message is doing, in the column `state`. */
enum shmq_doing {
    SHMQ_IS_READY = 1,
    SHMQ_IS_DELAYED = 2,
    SHMQ_IS_LEASED = 3,
    SHMQ_IS_DYING = 4, /* it waits to be moved to the dead-letter queue                  */
};

/* The arrays of a block, by the order in which they stand. */
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

/* Where the arrays of a block stand. */
struct shmq_columns_layout {
    uint32_t count;
    uint64_t offset[SHMQ_COLUMNS];
    uint64_t bytes[SHMQ_COLUMNS]; /* without what pads them                              */
    uint64_t size;                /* of the block                                        */
};

/* A block that is being filled. */
struct shmq_columns {
    unsigned char *base;
    struct shmq_columns_layout room; /* for so many rows and bytes                       */
    uint32_t count;          /* so far                                                   */
    uint64_t body_bytes, meta_bytes;
};

/* One row but for its bytes. */
struct shmq_row {
    uint64_t sequence;
    int64_t put_at, visible_at, lease_until, expires, dead_at;
    int32_t deliveries, priority;
    uint8_t state, reason, codec;
    uint32_t body_bytes, meta_bytes;
};

/* False if no block holds that much: offsets have 31 bits. */
bool shmq_columns_lay_out(struct shmq_columns_layout *layout, uint32_t count, uint64_t body_bytes,
                          uint64_t meta_bytes);

/* Begins a block at `base`, which has room for `room->size` bytes. */
void shmq_columns_begin(struct shmq_columns *c, void *base, const struct shmq_columns_layout *room);

/* Where the bytes of the next row go; false without room for it. The caller copies them, and
 * then adds the row; or does not, and nothing has happened. */
bool shmq_columns_next(const struct shmq_columns *c, uint32_t body_bytes, uint32_t meta_bytes,
                       unsigned char **body, unsigned char **meta);
void shmq_columns_add(struct shmq_columns *c, const struct shmq_row *row);

/* Ends the block; returns its size, which is that of the room if all of it was filled. */
uint64_t shmq_columns_end(struct shmq_columns *c);

/* Whether `bytes`, aligned to 8, are a block: then `layout` says where its arrays stand. */
bool shmq_columns_read(const unsigned char *bytes, uint64_t size,
                       struct shmq_columns_layout *layout);

#endif
