/* Items: messages of a PRODUCE, read, admitted and answered. */
#ifndef SHMQ_SERVER_ITEM_H
#define SHMQ_SERVER_ITEM_H

#include "server/server.h"

#define SHMQ_WHY_NO_JOURNAL "this queue keeps no journal"

/* Reads flags and properties: NULL, or what is wrong with their form. */
const char *shmq_read_item(struct shmq_reader *r, struct shmq_item *item);

/* Refuses what is not for this queue or out of range: whether it may be put. */
bool shmq_admit_item(const struct shmq_queue_session *queue_session, struct shmq_item *item);

static inline bool shmq_item_is_refused(const struct shmq_item *item)
{
    return item->status != SHMQ_S_OK && item->status != SHMQ_S_DUPLICATE;
}

/* What became of it; `attached queue`: where it was put, or NULL. What is to be on disk is
 * answered then. */
void shmq_answer_item(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                      const struct shmq_item *item);

#endif
