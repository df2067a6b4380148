/* Attached queues: the queues that an engine has attached to; and the queue sessions of sessions
 * at them. */
#ifndef SHMQ_SERVER_ATTACHED_QUEUE_H
#define SHMQ_SERVER_ATTACHED_QUEUE_H

#include "server/server.h"

struct shmq_name {
    const unsigned char *at;
    uint16_t bytes;
};

/* Reads a name; false if it cannot name a queue, as shmq/api/names.py has it. */
bool shmq_read_name(struct shmq_reader *r, struct shmq_name *name);

static inline bool shmq_same_name(struct shmq_name a, struct shmq_name b)
{
    return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

#define SHMQ_TEXT_OF(number) #number
#define SHMQ_AS_TEXT(macro) SHMQ_TEXT_OF(macro)
#define SHMQ_WHY_NAME \
    "a name is 1 to " SHMQ_AS_TEXT(SHMQ_NAME_MAX) " characters out of A-Z a-z 0-9 . _ : -"

/* The session's queue session at the queue of that name, attached to if need be: NULL, and the
 * status, if there is none or the session may not know of it. It is valid until the end of the
 * request, and as long as it has held leases or waiters. */
struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, uint16_t *status);

/* The session leaves all its queue sessions, which have no held leases and no waiters. */
void shmq_queue_sessions_leave(struct shmq_session *session);

/* ---- the lock ---- */

/* The side of the gets, or the whole queue: SHMQ_OK, or why not. SHMQ_BUSY: somebody holds it
 * for longer than this thread may wait. That is remembered: until it is free, later attempts
 * return at once, and each tick tries again. */
int shmq_attached_queue_lock(struct shmq_attached_queue *attached_queue, bool whole);

/* Whether a request may wait for the lock that could not be had: not for too long. */
bool shmq_attached_queue_is_awaited(const struct shmq_attached_queue *attached_queue);

/* The lock could not be had: that is done to the queue at a later tick. */
void shmq_attached_queue_owe(struct shmq_attached_queue *attached_queue, enum shmq_deed deed,
                             uint64_t what);

/* A tick is to look at it soon. */
void shmq_attached_queue_later(struct shmq_attached_queue *attached_queue);

/* Does what is owed, as far as the lock can be had, and goes on with what waited for it. */
void shmq_attached_queues_retry(struct shmq_engine *engine);

/* What could not be done to the end stays undone: the end of this process does it. */
void shmq_attached_queues_give_up(struct shmq_engine *engine);

/* Releases it, and wakes whom it should. */
void shmq_attached_queue_unlock(struct shmq_attached_queue *attached_queue);

/* Releases the lock of the puts, and wakes whom it should. */
void shmq_attached_queue_unlock_puts(struct shmq_attached_queue *attached_queue);

/* The wire's word for an outcome of the core. A queue that is gone, or damaged, is forgotten. */
uint16_t shmq_attached_queue_status(struct shmq_attached_queue *attached_queue, int status);

/* Looks for what dead processes hold, and the like, unless that was done a moment ago:
 * whether it was now. */
bool shmq_attached_queue_tend(struct shmq_attached_queue *attached_queue);

/* ---- coming and going ---- */

/* At the end of the request, its waiters are to be looked after. */
void shmq_attached_queue_touch(struct shmq_attached_queue *attached_queue);

/* It is not to be found any more: its waiters end with that status, its held leases are void. */
void shmq_attached_queue_forget(struct shmq_attached_queue *attached_queue, uint16_t status);

/* One who used it is gone. */
void shmq_attached_queue_release(struct shmq_attached_queue *attached_queue);

/* An outgoing body has gone, or will never go: its body is unpinned. */
void shmq_outgoing_body_gone(struct shmq_outgoing_body *outgoing_body);

#endif
