#include "server/outbox.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 4096u
#define WORTH_MOVING (64u << 10)

unsigned char *shmq_outbox_room(struct shmq_outbox *box, size_t size)
{
    size_t room = box->room ? box->room : LEAST_ROOM;
    unsigned char *bytes;

    if (size <= box->room - box->used)
        return box->bytes + box->used;
    while (room - box->used < size)
        room *= 2;
    if (!(bytes = realloc(box->bytes, room)))
        return NULL;
    box->bytes = bytes;
    box->room = room;
    return box->bytes + box->used;
}

bool shmq_outbox_put(struct shmq_outbox *box, const unsigned char *body, size_t bytes,
                     struct shmq_desk *desk, uint32_t slot)
{
    if (box->parcel_used == box->parcel_room) {
        uint32_t room = box->parcel_room ? 2 * box->parcel_room : 8;
        struct shmq_parcel *parcels = realloc(box->parcels, room * sizeof *parcels);

        if (!parcels)
            return false;
        box->parcels = parcels;
        box->parcel_room = room;
    }
    box->parcels[box->parcel_used++] = (struct shmq_parcel){
        .before = box->used, .body = body, .bytes = bytes, .desk = desk, .slot = slot};
    box->parcel_bytes += bytes;
    return true;
}

static uint32_t add_piece(struct iovec *pieces, uint32_t count, const void *at, size_t size)
{
    if (!size)
        return count;
    pieces[count] = (struct iovec){(void *)at, size};
    return count + 1;
}

uint32_t shmq_outbox_pieces(const struct shmq_outbox *box, struct iovec *pieces, uint32_t most)
{
    size_t at = box->sent;
    uint32_t count = 0;

    if (!shmq_pending(box))
        return 0;
    for (uint32_t i = box->parcel_sent; i < box->parcel_used && count + 2 <= most; i++) {
        const struct shmq_parcel *parcel = &box->parcels[i];

        count = add_piece(pieces, count, box->bytes + at, parcel->before - at);
        count = add_piece(pieces, count, parcel->body, parcel->bytes);
        at = parcel->before;
        if (i + 1 == box->parcel_used && count < most)
            return add_piece(pieces, count, box->bytes + at, box->used - at);
    }
    if (box->parcel_sent == box->parcel_used)
        count = add_piece(pieces, count, box->bytes + at, box->used - at);
    return count;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Moves what is to go to the front, if much has gone before it. */
static void compact(struct shmq_outbox *box)
{
    size_t gone = box->sent;
    uint32_t left = box->parcel_used - box->parcel_sent;

    if (box->parcel_sent > left) {
        memmove(box->parcels, box->parcels + box->parcel_sent, left * sizeof *box->parcels);
        box->parcel_sent = 0;
        box->parcel_used = left;
    }
    if (gone < WORTH_MOVING || gone < box->used - gone)
        return;
    memmove(box->bytes, box->bytes + gone, box->used - gone);
    box->used -= gone;
    box->sent = 0;
    for (uint32_t i = box->parcel_sent; i < box->parcel_used; i++)
        box->parcels[i].before -= gone;
}

/* Sends of the parcels, and the bytes before each: how much of `size` is left for what is
 * behind the last of them. */
static size_t send_parcels(struct shmq_outbox *box, size_t size, void (*gone)(struct shmq_parcel *))
{
    while (box->parcel_sent < box->parcel_used) {
        struct shmq_parcel *parcel = &box->parcels[box->parcel_sent];
        size_t bytes = least(size, parcel->before - box->sent);

        box->sent += bytes;
        size -= bytes;
        if (box->sent < parcel->before)
            return 0;
        bytes = least(size, parcel->bytes);
        parcel->body += bytes;
        parcel->bytes -= bytes;
        box->parcel_bytes -= bytes;
        size -= bytes;
        if (parcel->bytes)
            return 0;
        gone(parcel);
        box->parcel_sent++;
    }
    return size;
}

void shmq_outbox_sent(struct shmq_outbox *box, size_t size, void (*gone)(struct shmq_parcel *))
{
    size = send_parcels(box, size, gone);
    box->sent += least(size, box->used - box->sent);
    if (!shmq_pending(box))
        box->sent = box->used = 0; /* what comes next begins at the front */
    compact(box);
}

void shmq_outbox_clear(struct shmq_outbox *box, void (*gone)(struct shmq_parcel *))
{
    for (uint32_t i = box->parcel_sent; i < box->parcel_used; i++)
        gone(&box->parcels[i]);
    free(box->bytes);
    free(box->parcels);
    memset(box, 0, sizeof *box);
}
