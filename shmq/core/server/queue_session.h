/* Queue sessions: a session's use of an attached queue, found by the queue's name; and the end
 * of an attached queue, with everything that waits for it. */
#ifndef SHMQ_SERVER_QUEUE_SESSION_H
#define SHMQ_SERVER_QUEUE_SESSION_H

#include "server/server.h"

struct shmq_name {
    const unsigned char *at;
    uint16_t bytes;
};

/* Reads a name; false if it is not a valid queue name by shmq/api/names.py. */
bool shmq_read_name(struct shmq_reader *r, struct shmq_name *name);

static inline bool shmq_same_name(struct shmq_name a, struct shmq_name b)
{
    return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

#define SHMQ_TEXT_OF(number) #number
#define SHMQ_AS_TEXT(macro) SHMQ_TEXT_OF(macro)
#define SHMQ_WHY_NAME \
    "a name is 1 to " SHMQ_AS_TEXT(SHMQ_NAME_MAX) " characters out of A-Z a-z 0-9 . _ : -"

/* The session's queue session for the queue of that name, which is attached to if necessary: NULL,
 * and the status, if there is no queue or the session may not know of it. It is valid until the end
 * of the request, and as long as it has held leases or waiters. */
struct shmq_queue_session *shmq_queue_session_at(struct shmq_session *session,
                                                 struct shmq_name name, uint16_t *status);

/* The session leaves all its queue sessions that have no held leases and no waiters. */
void shmq_queue_sessions_leave(struct shmq_session *session);

/* The wire status of an outcome of the core. A queue that is gone or damaged is forgotten. */
uint16_t shmq_attached_queue_status(struct shmq_attached_queue *attached_queue, int status);

/* Removes the attached queue from the table: its waiters end with that status, its leases are
 * void. */
void shmq_attached_queue_forget(struct shmq_attached_queue *attached_queue, uint16_t status);

#endif
