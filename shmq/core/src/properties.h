/* The properties of a message, one msgpack map, as far as the queue has to know them. */
#ifndef SHMQ_PROPERTIES_H
#define SHMQ_PROPERTIES_H

#include "msgpack.h"
#include "queue.h"

struct shmq_put;

struct shmq_text {
    const unsigned char *at; /* NULL: there is none */
    uint32_t bytes;
};

struct shmq_properties {
    bool has_priority, has_delay, has_ttl;
    int64_t priority;
    int64_t delay, ttl; /* ms */
    struct shmq_text group, dedupe, codec;
};

/* Reads them: NULL, or what is wrong with their form: not one map, or a known key of
 * another type. */
const char *shmq_properties_read(const unsigned char *at, uint32_t bytes,
                                 struct shmq_properties *properties);

/* What a put of them is: NULL, or what is out of range in this queue. `hash` is where the
 * dedupe id's goes. */
const char *shmq_properties_apply(const struct shmq_queue *q,
                                  const struct shmq_properties *properties,
                                  struct shmq_put *put, uint64_t hash[2]);

/* The number of a codec by its name, SHMQ_CODEC_OTHER for another: shmq/codecs.py. */
#define SHMQ_CODEC_OTHER 255
uint8_t shmq_codec_number(struct shmq_text name);

/* The bytes that the properties take on the wire: those of the message, with its codec
 * among them unless that is "bytes"; 0 if there are none. */
uint32_t shmq_properties_size(const unsigned char *meta, uint32_t bytes, uint8_t codec);

/* Writes so many. */
unsigned char *shmq_properties_write(unsigned char *to, const unsigned char *meta, uint32_t bytes,
                                     uint8_t codec);

#endif
