/* Message groups: at most one message of a group in flight, the others behind it.
 *
 * Only a group's front is in the order or in flight. The other READY messages of the
 * group stand behind it: in its run if they came in the order's order, else in its heap
 * (a pairing heap through the slots), so a blocked group costs the others nothing. */
#ifndef SHMQ_QUEUE_GROUP_H
#define SHMQ_QUEUE_GROUP_H

#include "queue/queue.h"

/* Ensures: there is a record for the group, or memory for one. SHMQ_NO_SPACE. */
int shmq_group_reserve(struct shmq_queue *q, uint64_t hash);

/* Ensures: the group has a record, which counts one message more; s->group_at names it.
 * SHMQ_NO_SPACE. The slot's `group` is set. */
int shmq_group_join(struct shmq_queue *q, struct shmq_slot *s);

/* A message of the group became READY: it is put in the order, or behind the front. If
 * it was the front itself (it came back from flight), the group's best takes its place. */
void shmq_group_ready(struct shmq_queue *q, struct shmq_slot *s);

/* A READY message leaves the order, or its place behind the front, but not the group. */
void shmq_group_unready(struct shmq_queue *q, struct shmq_slot *s);

/* The READY message becomes its group's front, whatever stands before it. False, and nothing
 * changed, if another one is in flight. */
bool shmq_group_call(struct shmq_queue *q, struct shmq_slot *s);

/* The message is leased: it stays the front. */
void shmq_group_fly(struct shmq_queue *q, struct shmq_slot *s);

/* The message, which is in no list, leaves the group for good. If it was the front, the
 * next one is handed over. */
void shmq_group_leave(struct shmq_queue *q, struct shmq_slot *s);

/* Recovery, for slots that have joined: it is the front in flight, or READY and behind;
 * then each group that has nothing in flight gets its front. */
void shmq_group_rebuild_front(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_behind(struct shmq_queue *q, struct shmq_slot *s);
void shmq_group_rebuild_done(struct shmq_queue *q);

#endif
