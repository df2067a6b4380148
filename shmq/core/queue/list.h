/* A doubly linked list through the slots' next and prev. The head's prev is undefined, so that
 * taking the head does not touch the slot behind it. */
#ifndef SHMQ_QUEUE_LIST_H
#define SHMQ_QUEUE_LIST_H

#include "queue/queue.h"

static inline void shmq_list_clear(struct shmq_list *list)
{
    SET(list->head, SHMQ_NIL);
    SET(list->tail, SHMQ_NIL);
}

static inline void shmq_list_append(struct shmq_queue *q, struct shmq_list *list,
                                    struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);

    SET(s->next, SHMQ_NIL);
    if (list->tail == SHMQ_NIL) {
        SET(list->head, at);
    } else {
        SET(s->prev, list->tail);
        SET(shmq_slot_at(q, list->tail)->next, at);
    }
    SET(list->tail, at);
}

static inline void shmq_list_remove(struct shmq_queue *q, struct shmq_list *list,
                                    struct shmq_slot *s)
{
    uint32_t at = shmq_index_of(q, s);
    bool first = at == list->head, last = at == list->tail;

    if (first)
        SET(list->head, s->next);
    else
        SET(shmq_slot_at(q, s->prev)->next, s->next);
    if (last)
        SET(list->tail, first ? SHMQ_NIL : s->prev);
    else if (!first)
        SET(shmq_slot_at(q, s->next)->prev, s->prev);
}

#endif
