/* Items: messages of a PRODUCE, parsed, admitted and answered. */
#ifndef SHMQ_SERVER_ITEM_H
#define SHMQ_SERVER_ITEM_H

#include "server/server.h"

#define SHMQ_WHY_NO_JOURNAL "this queue keeps no journal"

/* Parses flags and properties: NULL, or what is malformed. */
const char *shmq_read_item(struct shmq_reader *r, struct shmq_item *item);

/* Refuses an item that is out of range or not allowed for this queue; whether it may be put. */
bool shmq_admit_item(const struct shmq_queue_session *queue_session, struct shmq_item *item);

static inline bool shmq_item_is_refused(const struct shmq_item *item)
{
    return item->status != SHMQ_S_OK && item->status != SHMQ_S_DUPLICATE;
}

/* Answers with the item's status; `attached_queue`: where it was put, or NULL. If the item must
 * be on disk, the reply waits for that. */
void shmq_answer_item(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                      const struct shmq_item *item);

#endif
