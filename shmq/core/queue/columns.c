#include "queue/columns.h"

#include <string.h>

static const unsigned char magic[8] = {'s', 'h', 'm', 'q', 'c', 'o', 'l', 1};

static const uint8_t widths[SHMQ_COLUMNS] = {8, 8, 8, 8, 8, 8, 4, 4, 1, 1, 1, 4, 0, 4, 0};

static uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~7ull; }

static unsigned char *column(const struct shmq_columns *c, enum shmq_column which)
{
    return c->base + c->room.offset[which];
}

/* A block that is being written may begin at any address: in a frame it does. */
static void set64(const struct shmq_columns *c, enum shmq_column which, uint32_t at, uint64_t value)
{
    memcpy(column(c, which) + 8ull * at, &value, sizeof value);
}

static void set32(const struct shmq_columns *c, enum shmq_column which, uint32_t at, uint32_t value)
{
    memcpy(column(c, which) + 4ull * at, &value, sizeof value);
}

bool shmq_columns_lay_out(struct shmq_columns_layout *layout, uint32_t count, uint64_t body_bytes,
                          uint64_t meta_bytes)
{
    uint64_t at = SHMQ_COLUMNS_HEAD;

    if (body_bytes > INT32_MAX || meta_bytes > INT32_MAX || count >= INT32_MAX)
        return false;
    layout->count = count;
    for (int i = 0; i < SHMQ_COLUMNS; i++) {
        bool has_one_more = i == SHMQ_COLUMN_BODY_OFFSETS || i == SHMQ_COLUMN_META_OFFSETS;

        layout->offset[i] = at;
        layout->bytes[i] = ((uint64_t)count + has_one_more) * widths[i];
        if (i == SHMQ_COLUMN_BODIES)
            layout->bytes[i] = body_bytes;
        if (i == SHMQ_COLUMN_METAS)
            layout->bytes[i] = meta_bytes;
        at = padded(at + layout->bytes[i]);
    }
    layout->size = at;
    return true;
}

void shmq_columns_begin(struct shmq_columns *c, void *base, const struct shmq_columns_layout *room)
{
    *c = (struct shmq_columns){.base = base, .room = *room};
    set32(c, SHMQ_COLUMN_BODY_OFFSETS, 0, 0);
    set32(c, SHMQ_COLUMN_META_OFFSETS, 0, 0);
}

bool shmq_columns_next(const struct shmq_columns *c, uint32_t body_bytes, uint32_t meta_bytes,
                       unsigned char **body, unsigned char **meta)
{
    if (c->count == c->room.count ||
        body_bytes > c->room.bytes[SHMQ_COLUMN_BODIES] - c->body_bytes ||
        meta_bytes > c->room.bytes[SHMQ_COLUMN_METAS] - c->meta_bytes)
        return false;
    *body = column(c, SHMQ_COLUMN_BODIES) + c->body_bytes;
    *meta = column(c, SHMQ_COLUMN_METAS) + c->meta_bytes;
    return true;
}

void shmq_columns_add(struct shmq_columns *c, const struct shmq_row *row)
{
    uint32_t at = c->count++;

    c->body_bytes += row->body_bytes;
    c->meta_bytes += row->meta_bytes;
    set64(c, SHMQ_COLUMN_SEQUENCE, at, row->sequence);
    set64(c, SHMQ_COLUMN_PUT_AT, at, (uint64_t)row->put_at);
    set64(c, SHMQ_COLUMN_VISIBLE_AT, at, (uint64_t)row->visible_at);
    set64(c, SHMQ_COLUMN_LEASE_UNTIL, at, (uint64_t)row->lease_until);
    set64(c, SHMQ_COLUMN_EXPIRES, at, (uint64_t)row->expires);
    set64(c, SHMQ_COLUMN_DEAD_AT, at, (uint64_t)row->dead_at);
    set32(c, SHMQ_COLUMN_DELIVERIES, at, (uint32_t)row->deliveries);
    set32(c, SHMQ_COLUMN_PRIORITY, at, (uint32_t)row->priority);
    column(c, SHMQ_COLUMN_STATE)[at] = row->state;
    column(c, SHMQ_COLUMN_REASON)[at] = row->reason;
    column(c, SHMQ_COLUMN_CODEC)[at] = row->codec;
    set32(c, SHMQ_COLUMN_BODY_OFFSETS, at + 1, (uint32_t)c->body_bytes);
    set32(c, SHMQ_COLUMN_META_OFFSETS, at + 1, (uint32_t)c->meta_bytes);
}

/* Zeroes the padding of the arrays, so that a block is a function of its rows. */
static void pad(unsigned char *base, const struct shmq_columns_layout *layout)
{
    for (int i = 0; i < SHMQ_COLUMNS; i++) {
        uint64_t end = layout->offset[i] + layout->bytes[i];

        memset(base + end, 0, padded(end) - end);
    }
}

uint64_t shmq_columns_end(struct shmq_columns *c)
{
    struct shmq_columns_layout layout;
    uint64_t bytes[2] = {c->body_bytes, c->meta_bytes};

    shmq_columns_lay_out(&layout, c->count, c->body_bytes, c->meta_bytes);
    /* Fewer rows came than there was room for: the arrays are not moved. */
    if (layout.size != c->room.size)
        for (int i = 0; i < SHMQ_COLUMNS; i++)
            memmove(c->base + layout.offset[i], c->base + c->room.offset[i], layout.bytes[i]);
    pad(c->base, &layout);
    memcpy(c->base, magic, sizeof magic);
    memset(c->base + 8, 0, 8);
    memcpy(c->base + 8, &c->count, sizeof c->count);
    memcpy(c->base + 16, bytes, sizeof bytes);
    c->room = layout;
    return layout.size;
}

/* ---- reading ---- */

static bool offsets_rise(const unsigned char *bytes, const struct shmq_columns_layout *layout,
                         enum shmq_column which)
{
    const int32_t *offsets = (const int32_t *)(bytes + layout->offset[which]);
    uint32_t falls = 0;

    for (uint32_t i = 0; i < layout->count; i++)
        falls |= offsets[i] > offsets[i + 1];
    return !falls && offsets[0] == 0 &&
           (uint64_t)offsets[layout->count] == layout->bytes[which + 1];
}

static bool within(const unsigned char *bytes, const struct shmq_columns_layout *layout,
                   enum shmq_column which, uint8_t least, uint8_t most)
{
    const uint8_t *items = bytes + layout->offset[which];
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < layout->count; i++)
        wrong |= items[i] < least || items[i] > most;
    return !wrong;
}

bool shmq_columns_read(const unsigned char *bytes, uint64_t size,
                       struct shmq_columns_layout *layout)
{
    uint32_t count;
    uint64_t lengths[2];

    if (size < SHMQ_COLUMNS_HEAD || memcmp(bytes, magic, sizeof magic))
        return false;
    memcpy(&count, bytes + 8, sizeof count);
    memcpy(lengths, bytes + 16, sizeof lengths);
    return shmq_columns_lay_out(layout, count, lengths[0], lengths[1]) && layout->size == size &&
           offsets_rise(bytes, layout, SHMQ_COLUMN_BODY_OFFSETS) &&
           offsets_rise(bytes, layout, SHMQ_COLUMN_META_OFFSETS) &&
           within(bytes, layout, SHMQ_COLUMN_STATE, SHMQ_IS_READY, SHMQ_IS_DYING) &&
           within(bytes, layout, SHMQ_COLUMN_REASON, 0, 3);
}
