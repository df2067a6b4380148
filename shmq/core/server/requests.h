/* The requests that the engine carries out itself: a function for each type of frame, and what they
 * share. dispatch.c has the table. */
#pragma once

#include "server/server.h"

/* ---- item.c: messages of a PRODUCE, parsed, admitted and answered ---- */

#define SHMQ_WHY_NO_JOURNAL "this queue keeps no journal"

/* Parses flags and properties: NULL, or what is malformed. */
const char *shmq_read_item(struct shmq_reader *r, struct shmq_item *item);

/* Refuses an item that is out of range or not allowed for this queue; whether it may be put. */
bool shmq_admit_item(const struct shmq_queue_session *queue_session, struct shmq_item *item);

static inline bool shmq_item_is_refused(const struct shmq_item *item)
{
    return item->status != SHMQ_S_OK && item->status != SHMQ_S_DUPLICATE;
}

/* Answers with the item's status; `queue`: where it was put, or NULL. If the item must
 * be on disk, the reply waits for that. */
void shmq_answer_item(struct shmq_session *session, struct shmq_attached_queue *queue,
                      const struct shmq_item *item);

/* ---- large_body.c: received into the queue, from the first byte behind the properties on ---- */

/* The frame that begins at frames->at, whose header is valid, is incomplete. If it is a PRODUCE
 * of a large body, and everything before the body is there: takes what is there, and returns
 * true. */
bool shmq_large_body_begin(struct shmq_session *session, const struct shmq_frame *frame,
                           struct shmq_frames *frames);

/* The place for the next bytes of the body. */
unsigned char *shmq_large_body_space(struct shmq_session *session, size_t *size);

/* Counts `size` received bytes; whether they completed the frame, which is then answered. */
bool shmq_large_body_received(struct shmq_session *session, size_t size);

/* The rest will not come: releases the space. */
void shmq_large_body_drop(struct shmq_session *session);

/* Puts a large body that is complete, and copies it without the lock: sets the item's status. */
void shmq_put_large(struct shmq_attached_queue *queue, struct shmq_item *item);

/* ---- deliver.c: leasing messages, and writing them as DELIVERs ---- */

/* Leases up to `most` messages for the waiter, fewer if much output is pending, and writes them;
 * returns how many. `outcome`: of the last lease. `whole`: the whole queue is locked, so that
 * SHMQ_EMPTY is final. The last message of a CONSUME is marked as such. A READY is answered instead
 * if a message is visible, and counts as one. */
uint32_t shmq_deliver(struct shmq_waiter *waiter, uint32_t most, bool whole, int *outcome);

/* Whether the session can accept messages now. */
bool shmq_may_deliver(const struct shmq_session *session);

/* Writes a copy of a message, which cannot settle anything; `more`: others follow. */
void shmq_deliver_copy(struct shmq_session *session, uint32_t id, const struct shmq_view *view,
                       bool more);

/* ---- produce.c: PRODUCE and PRODUCE_BATCH ---- */

/* Carries out the frame, and following PRODUCEs to the same queue. */
void shmq_carry_out_produce(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload, struct shmq_frames *frames);

void shmq_carry_out_batch(struct shmq_session *session, const struct shmq_frame *frame,
                          const unsigned char *payload);

/* Refuses a PRODUCE or PRODUCE_BATCH that wants a durable reply with SHUTTING_DOWN, after all
 * earlier durable replies; whether the frame was one. */
bool shmq_refuse_durable(struct shmq_session *session, const struct shmq_frame *frame,
                         const unsigned char *payload);

/* ---- consume.c: CONSUME, SUBSCRIBE, READY and UNSUBSCRIBE, and serving the waiters ---- */

void shmq_carry_out_consume(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload);
void shmq_carry_out_unsubscribe(struct shmq_session *session, const struct shmq_frame *frame,
                                const unsigned char *payload);

/* HANDED has no reply, because a subscription that it names may have ended meanwhile. */
void shmq_carry_out_handed(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload);

/* Delivers to the waiters without a filter, in their order; whether any of them still waits. */
bool shmq_attached_queue_serve(struct shmq_attached_queue *queue);

/* Delivers to the waiters with a filter: to all of them if a message has `arrived`, else to those
 * that have not searched since they began to wait. Returns whether any of them still waits. */
bool shmq_attached_queue_serve_filtered(struct shmq_attached_queue *queue, bool arrived);

/* ---- settle.c: ACK, NACK, REJECT, EXTEND and RETURN ---- */

/* Carries out the frame; after an ACK also the following ACKs of the same queue. */
void shmq_carry_out_settle(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload, struct shmq_frames *frames);

/* Forgets the progress of a settlement that was put back and will not be carried out. */
void shmq_settle_anew(struct shmq_session *session);

/* ---- lease_many.c: LEASE_RUN and LEASE_AGAIN: leases as numbers, without the bodies ---- */

void shmq_carry_out_lease_many(struct shmq_session *session, const struct shmq_frame *frame,
                               const unsigned char *payload);

/* ---- read_columns.c: COLUMNS and READ_RUN: messages as columns, read without leasing ---- */

void shmq_carry_out_read_columns(struct shmq_session *session, const struct shmq_frame *frame,
                                 const unsigned char *payload);

/* ---- dispatch.c: one table maps the type of a request to its handler ---- */

/* Carries out the whole frame at `frames`, whose header is valid, and following frames that can be
 * carried out together with it: sets frames->at to the place behind the last. */
void shmq_dispatch(struct shmq_session *session, const struct shmq_frame *frame,
                   struct shmq_frames *frames);
