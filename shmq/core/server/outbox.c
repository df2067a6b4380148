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
                     struct shmq_attached_queue *queue, uint32_t slot)
{
    if (box->outgoing_body_used == box->outgoing_body_room) {
        uint32_t room = box->outgoing_body_room ? 2 * box->outgoing_body_room : 8;
        struct shmq_outgoing_body *outgoing_bodies = realloc(box->outgoing_bodies,
                                                             room * sizeof *outgoing_bodies);

        if (!outgoing_bodies)
            return false;
        box->outgoing_bodies = outgoing_bodies;
        box->outgoing_body_room = room;
    }
    box->outgoing_bodies[box->outgoing_body_used++] = (struct shmq_outgoing_body){
        .before = box->used, .body = body, .bytes = bytes, .queue = queue, .slot = slot};
    box->outgoing_body_bytes += bytes;
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
    for (uint32_t i = box->outgoing_body_sent; i < box->outgoing_body_used && count + 2 <= most;
         i++) {
        const struct shmq_outgoing_body *outgoing_body = &box->outgoing_bodies[i];

        count = add_piece(pieces, count, box->bytes + at, outgoing_body->before - at);
        count = add_piece(pieces, count, outgoing_body->body, outgoing_body->bytes);
        at = outgoing_body->before;
        if (i + 1 == box->outgoing_body_used && count < most)
            return add_piece(pieces, count, box->bytes + at, box->used - at);
    }
    if (box->outgoing_body_sent == box->outgoing_body_used)
        count = add_piece(pieces, count, box->bytes + at, box->used - at);
    return count;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Moves the pending output to the beginning, if much before it was sent. */
static void compact(struct shmq_outbox *box)
{
    size_t gone = box->sent;
    uint32_t left = box->outgoing_body_used - box->outgoing_body_sent;

    if (box->outgoing_body_sent > left) {
        memmove(box->outgoing_bodies, box->outgoing_bodies + box->outgoing_body_sent,
                left * sizeof *box->outgoing_bodies);
        box->outgoing_body_sent = 0;
        box->outgoing_body_used = left;
    }
    if (gone < WORTH_MOVING || gone < box->used - gone)
        return;
    memmove(box->bytes, box->bytes + gone, box->used - gone);
    box->used -= gone;
    box->sent = 0;
    for (uint32_t i = box->outgoing_body_sent; i < box->outgoing_body_used; i++)
        box->outgoing_bodies[i].before -= gone;
}

/* Sends of the outgoing bodies, and the bytes before each: how much of `size` is left for what is
 * behind the last of them. */
static size_t send_outgoing_bodies(struct shmq_outbox *box, size_t size,
                                   void (*gone)(struct shmq_outgoing_body *))
{
    while (box->outgoing_body_sent < box->outgoing_body_used) {
        struct shmq_outgoing_body *outgoing_body = &box->outgoing_bodies[box->outgoing_body_sent];
        size_t bytes = least(size, outgoing_body->before - box->sent);

        box->sent += bytes;
        size -= bytes;
        if (box->sent < outgoing_body->before)
            return 0;
        bytes = least(size, outgoing_body->bytes);
        outgoing_body->body += bytes;
        outgoing_body->bytes -= bytes;
        box->outgoing_body_bytes -= bytes;
        size -= bytes;
        if (outgoing_body->bytes)
            return 0;
        gone(outgoing_body);
        box->outgoing_body_sent++;
    }
    return size;
}

void shmq_outbox_sent(struct shmq_outbox *box, size_t size,
                      void (*gone)(struct shmq_outgoing_body *))
{
    size = send_outgoing_bodies(box, size, gone);
    box->sent += least(size, box->used - box->sent);
    if (!shmq_pending(box))
        box->sent = box->used = 0; /* what comes next begins at its start */
    compact(box);
}

void shmq_outbox_clear(struct shmq_outbox *box, void (*gone)(struct shmq_outgoing_body *))
{
    for (uint32_t i = box->outgoing_body_sent; i < box->outgoing_body_used; i++)
        gone(&box->outgoing_bodies[i]);
    free(box->bytes);
    free(box->outgoing_bodies);
    memset(box, 0, sizeof *box);
}
