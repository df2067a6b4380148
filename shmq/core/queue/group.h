/* Message groups: at most one message of a group is in flight, the others wait behind it.
 *
 * Only a group's front is in the order or in flight. The group's other READY messages wait behind
 * it: in its run if they came in the order of service, else in its heap (a pairing heap through the
 * slots). So a blocked group costs the other groups nothing. */
#ifndef SHMQ_QUEUE_GROUP_H
#define SHMQ_QUEUE_GROUP_H

#include "queue/queue.h"

/* Ensures: there is a record for the group, or memory for one. SHMQ_NO_SPACE. */
int shmq_group_reserve(struct shmq_queue *q, uint64_t hash);

/* Ensures: the group has a record, which counts one more message; s->group_at names it.
 * SHMQ_NO_SPACE. The slot's `group` must be set. */
int shmq_group_join(struct shmq_queue *q, struct shmq_slot *s);

/* A message of the group became READY: it goes into the order, or behind the front. If it was the
 * front itself and came back from flight, the group's best message becomes the front. */
void shmq_group_ready(struct shmq_queue *q, struct shmq_slot *s);

/* Takes a READY message out of the order, or from behind the front, but not out of the group. */
void shmq_group_unready(struct shmq_queue *q, struct shmq_slot *s);

/* Makes the READY message its group's front, whatever is before it. Returns false and changes
 * nothing if another message of the group is in flight. */
bool shmq_group_call(struct shmq_queue *q, struct shmq_slot *s);

/* The message is leased: it stays the front. */
void shmq_group_fly(struct shmq_queue *q, struct shmq_slot *s);

/* The message, which is in no list, leaves the group for good. If it was the front, the next one
 * becomes the front. */
void shmq_group_leave(struct shmq_queue *q, struct shmq_slot *s);

/* Recovery, for slots that have joined: first the message is made the front in flight, or put
 * READY behind it; then each group with nothing in flight gets its front. */
void shmq_group_rebuild_front(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_behind(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_done(struct shmq_queue *q);

#endif
