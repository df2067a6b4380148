/* The properties of a message, one msgpack map, as far as the queue must know them. */
#pragma once

#include "base/msgpack.h"
#include "queue/message.h"
#include "queue/property_table.h"

struct shmq_properties {
    uint32_t given; /* bits of enum shmq_property  */
    union {
        int64_t number;
        struct shmq_text text;
    } parsed[SHMQ_STORED_PROPERTIES];
};

static inline bool shmq_has_property(const struct shmq_properties *p, enum shmq_property which)
{
    return p->given >> which & 1;
}

/* A text that was given. */
static inline struct shmq_text shmq_text_property(const struct shmq_properties *p,
                                                  enum shmq_property which)
{
    return p->parsed[which].text;
}

/* A row of the table of properties. */
struct shmq_property_row {
    const char *name;  /* of the argument of a put                    */
    char key[16];      /* by which it is stored                       */
    uint32_t size;     /* of the key; 0: it is not stored             */
    uint16_t kind;     /* enum shmq_msgpack_kind                      */
    uint16_t calls;    /* bits of enum shmq_property_call             */
    const char *wrong; /* the error for a value of another kind       */
};

extern const struct shmq_property_row shmq_property_rows[SHMQ_PROPERTIES];

static inline const struct shmq_property_row *shmq_row_of_property(int which)
{
    return &shmq_property_rows[which];
}

/* Parses them: NULL, or what is malformed: they are not one map, or a known key has a value of
 * another type. */
const char *shmq_properties_read(const unsigned char *at, uint32_t bytes,
                                 struct shmq_properties *properties);

/* Sets the fields of a put from them: NULL, or what is out of range for this queue. The hash of the
 * dedupe id goes to `hash`. */
const char *shmq_properties_apply(const struct shmq_queue *q,
                                  const struct shmq_properties *properties, struct shmq_put *put,
                                  uint64_t hash[2]);

/* The codecs that have a number in a slot. Any other is SHMQ_CODEC_OTHER there, and its name is in
 * the properties. */
enum shmq_codec {
    SHMQ_CODEC_BYTES = 0,
    SHMQ_CODEC_TEXT = 1,
    SHMQ_CODEC_MSGPACK = 2,
    SHMQ_CODEC_JSON = 3,
    SHMQ_CODEC_COMMAND = 4,
    SHMQ_CODEC_EVENT = 5,
    SHMQ_CODEC_PACKED = 6, /* records of one batch: see packed_batch.h */
    SHMQ_CODECS,
    SHMQ_CODEC_OTHER = 255
};

/* The number of a codec by its name; SHMQ_CODEC_OTHER for any other. */
uint8_t shmq_codec_number(struct shmq_text name);

/* The name of a codec by its number; NULL for SHMQ_CODEC_OTHER. */
const char *shmq_codec_name(uint8_t number);

/* The properties in the wire's form: the message's, with its codec added unless that is "bytes".
 * This is decided once: if the lease is lost before the bytes are written, they may be another
 * message's by then, and what is written must still have this size. */
struct shmq_worded {
    const unsigned char *rest; /* copied unchanged                                      */
    uint32_t rest_bytes;
    uint32_t entries;          /* if a codec is added: entries of the map, with it      */
    uint8_t codec;             /* 0: none is added                                      */
    uint32_t size;             /* of everything; 0: there are no properties             */
};

struct shmq_worded shmq_properties_worded(const unsigned char *meta, uint32_t bytes, uint8_t codec);

/* Writes worded->size bytes; returns the place behind them. */
unsigned char *shmq_properties_write(unsigned char *to, const struct shmq_worded *worded);

/* The size of the properties `meta` with `error`, one msgpack value, as their property "error", and
 * nothing else of that name; 0 if they are not one map. Written to `to` unless that is NULL. */
uint32_t shmq_properties_with_error(const unsigned char *meta, uint32_t bytes,
                                    struct shmq_text error, unsigned char *to);
