/* Desks: the queues that a front has attached to; and the seats of sessions at them. */
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

#define SHMQ_WHY_NAME "a name is 1 to 100 characters out of A-Z a-z 0-9 . _ : -"

/* The session's seat at the queue of that name, attached to if need be: NULL, and the status,
 * if there is none or the session may not know of it. It is valid until the end of the
 * request, and as long as it has tenures or waiters. */
struct shmq_seat *shmq_seat_at(struct shmq_session *session, struct shmq_name name,
                               uint16_t *status);

/* The session leaves all its seats, which have no tenures and no waiters. */
void shmq_seats_leave(struct shmq_session *session);

/* ---- the lock ---- */

/* The side of the gets, or the whole queue: SHMQ_OK, or why not. SHMQ_BUSY: somebody holds it
 * for longer than this thread may wait. That is remembered: until it is free, later attempts
 * return at once, and each tick tries again. */
int shmq_desk_lock(struct shmq_desk *desk, bool whole);

/* Whether a request may wait for the lock that could not be had: not for too long. */
bool shmq_desk_is_awaited(const struct shmq_desk *desk);

/* The lock could not be had: that is done to the queue at a later tick. */
void shmq_desk_owe(struct shmq_desk *desk, enum shmq_deed deed, uint64_t what);

/* A tick is to look at it soon. */
void shmq_desk_later(struct shmq_desk *desk);

/* Does what is owed, as far as the lock can be had, and goes on with what waited for it. */
void shmq_desks_retry(struct shmq_front *front);

/* What could not be done to the end stays undone: the end of this process does it. */
void shmq_desks_give_up(struct shmq_front *front);

/* Releases it, and wakes whom it should. */
void shmq_desk_unlock(struct shmq_desk *desk);

/* Releases the lock of the puts, and wakes whom it should. */
void shmq_desk_unlock_puts(struct shmq_desk *desk);

/* The wire's word for an outcome of the core. A queue that is gone, or damaged, is forgotten. */
uint16_t shmq_desk_status(struct shmq_desk *desk, int status);

/* Looks for what dead processes hold, and the like, unless that was done a moment ago:
 * whether it was now. */
bool shmq_desk_tend(struct shmq_desk *desk);

/* ---- coming and going ---- */

/* At the end of the request, its waiters are to be looked after. */
void shmq_desk_touch(struct shmq_desk *desk);

/* It is not to be found any more: its waiters end with that status, its tenures are void. */
void shmq_desk_forget(struct shmq_desk *desk, uint16_t status);

/* One who used it is gone. */
void shmq_desk_release(struct shmq_desk *desk);

/* A parcel has gone, or will never go: its body is unpinned. */
void shmq_parcel_gone(struct shmq_parcel *parcel);

#endif
