#include "queue/properties.h"

#include "base/siphash.h"
#include "queue/message.h"

#define MS 1000000ll
#define MOST_MS 1000000000000ll /* of a delay or a ttl: 10^9 s, as shmq/api/options.py has it */

static const char *const CODECS[SHMQ_CODECS] = {
    [SHMQ_CODEC_BYTES] = "bytes",     [SHMQ_CODEC_TEXT] = "text",
    [SHMQ_CODEC_MSGPACK] = "msgpack", [SHMQ_CODEC_JSON] = "json",
    [SHMQ_CODEC_COMMAND] = "command", [SHMQ_CODEC_EVENT] = "event",
    [SHMQ_CODEC_PACKED] = "packed",
};

uint8_t shmq_codec_number(struct shmq_text name)
{
    for (uint8_t i = 0; i < SHMQ_CODECS; i++)
        if (name.bytes == strlen(CODECS[i]) && !memcmp(name.at, CODECS[i], name.bytes))
            return i;
    return SHMQ_CODEC_OTHER;
}

const char *shmq_codec_name(uint8_t number) { return number < SHMQ_CODECS ? CODECS[number] : NULL; }

const struct shmq_property_row shmq_property_rows[SHMQ_PROPERTIES] = {SHMQ_PROPERTY_ROWS};

/* Reads one entry: NULL, or what is malformed. Unknown keys may have any value. */
static const char *take(const struct shmq_msgpack *key, const struct shmq_msgpack *value,
                        struct shmq_properties *p)
{
    const struct shmq_property_row *row = shmq_property_rows;
    ptrdiff_t at;

    while (key->kind != SHMQ_MSGPACK_STR || key->count != row->size ||
           memcmp(key->bytes, row->key, key->count))
        if (++row == shmq_property_rows + SHMQ_STORED_PROPERTIES)
            return NULL;
    if (value->kind != row->kind)
        return row->wrong;
    at = row - shmq_property_rows;
    p->given |= 1u << at;
    if (value->kind == SHMQ_MSGPACK_INT)
        p->parsed[at].number = value->number;
    else
        p->parsed[at].text = (struct shmq_text){value->bytes, value->count};
    return NULL;
}

const char *shmq_properties_read(const unsigned char *at, uint32_t bytes,
                                 struct shmq_properties *properties)
{
    static const char *const not_a_map = "the properties are not one msgpack map";
    struct shmq_reader r = {at, at + bytes, false};
    struct shmq_msgpack map, key, value;
    const char *wrong = NULL;

    memset(properties, 0, sizeof *properties);
    shmq_msgpack_read(&r, &map);
    if (r.bad || map.kind != SHMQ_MSGPACK_MAP)
        return not_a_map;
    for (uint32_t i = 0; i < map.count && !r.bad; i++) {
        const char *fault;

        shmq_msgpack_read(&r, &key);
        if (key.kind >= SHMQ_MSGPACK_ARRAY)
            return not_a_map;
        shmq_msgpack_read(&r, &value);
        if (r.bad)
            return not_a_map;
        fault = take(&key, &value, properties);
        wrong = wrong ? wrong : fault;
        shmq_msgpack_skip(&r, &value);
    }
    return r.bad || r.at != r.end ? not_a_map : wrong;
}

static uint64_t group_hash(const struct shmq_queue *q, struct shmq_text group)
{
    uint64_t hash = shmq_siphash_first(q->h->options.hash_key, group.at, group.bytes);

    return hash ? hash : 1;
}

const char *shmq_properties_apply(const struct shmq_queue *q,
                                  const struct shmq_properties *properties, struct shmq_put *put,
                                  uint64_t hash[2])
{
    const struct shmq_properties *p = properties;
    int64_t level = p->parsed[SHMQ_P_PRIORITY].number, delay = p->parsed[SHMQ_P_DELAY].number;
    int64_t ttl = p->parsed[SHMQ_P_TTL].number;
    struct shmq_text text;

    if (level < 0 || level >= q->h->options.priorities)
        return "property pri is out of range: 0 to the queue's priorities - 1";
    if (delay < 0 || delay > MOST_MS)
        return "property delay is out of range: 0 to 10^12 ms";
    if (shmq_has_property(p, SHMQ_P_TTL) && (ttl < 1 || ttl > MOST_MS))
        return "property ttl is out of range: 1 to 10^12 ms";
    if (shmq_has_property(p, SHMQ_P_PRIORITY))
        put->priority = (uint8_t)level;
    put->delay = delay * MS;
    put->ttl = ttl * MS;
    text = p->parsed[SHMQ_P_CODEC].text;
    put->codec = text.at ? shmq_codec_number(text) : 0;
    text = p->parsed[SHMQ_P_GROUP].text;
    if (text.at)
        put->group = group_hash(q, text);
    text = p->parsed[SHMQ_P_DEDUPE_ID].text;
    if (text.at) {
        shmq_siphash(q->h->options.hash_key, text.at, text.bytes, hash);
        put->dedupe = hash;
    }
    return NULL;
}

/* ---- with the codec ---- */

/* Whether the codec's name must be added to the properties of the message. */
static bool lacks_codec(const unsigned char *meta, uint32_t bytes, uint8_t codec)
{
    struct shmq_reader r = {meta, meta, false};
    struct shmq_msgpack map, key, value;

    if (!codec || codec >= SHMQ_CODECS)
        return false;
    if (!bytes)
        return true;
    r.end += bytes;
    shmq_msgpack_read(&r, &map);
    if (r.bad || map.kind != SHMQ_MSGPACK_MAP)
        return false;
    for (uint32_t i = 0; i < map.count && !r.bad; i++) {
        shmq_msgpack_read(&r, &key);
        if (shmq_msgpack_is(&key, "codec"))
            return false;
        shmq_msgpack_read(&r, &value);
        shmq_msgpack_skip(&r, &value);
    }
    return !r.bad;
}

static uint32_t head_size(uint32_t count) { return count < 16 ? 1 : count < 1 << 16 ? 3 : 5; }

static unsigned char *write_head(unsigned char *to, uint32_t count)
{
    if (count < 16) {
        *to++ = (unsigned char)(0x80 | count);
        return to;
    }
    *to++ = count < 1 << 16 ? 0xDE : 0xDF;
    return count < 1 << 16 ? shmq_store16(to, (uint16_t)count) : shmq_store32(to, count);
}

/* The number of the map's entries, and where they begin. */
static uint32_t entries_of(const unsigned char *meta, uint32_t bytes, const unsigned char **at)
{
    struct shmq_reader r = {meta, meta, false};
    struct shmq_msgpack map = {0};

    if (bytes) {
        r.end += bytes;
        shmq_msgpack_read(&r, &map);
    }
    *at = r.at;
    return map.count;
}

struct shmq_worded shmq_properties_worded(const unsigned char *meta, uint32_t bytes, uint8_t codec)
{
    struct shmq_worded worded = {.rest = meta, .rest_bytes = bytes, .size = bytes};
    uint32_t entries;

    if (!lacks_codec(meta, bytes, codec))
        return worded;
    entries = entries_of(meta, bytes, &worded.rest);
    worded.rest_bytes = bytes - (uint32_t)(worded.rest - meta);
    worded.entries = entries + 1;
    worded.codec = codec;
    worded.size = head_size(worded.entries) + worded.rest_bytes +
                  (uint32_t)(2 + strlen("codec") + strlen(CODECS[codec]));
    return worded;
}

static unsigned char *write_text(unsigned char *to, const char *text)
{
    size_t size = strlen(text); /* below 32 */

    *to++ = (unsigned char)(0xA0 | size);
    memcpy(to, text, size);
    return to + size;
}

unsigned char *shmq_properties_write(unsigned char *to, const struct shmq_worded *worded)
{
    if (worded->codec)
        to = write_head(to, worded->entries);
    if (worded->rest_bytes)
        memcpy(to, worded->rest, worded->rest_bytes);
    to += worded->rest_bytes;
    return worded->codec ? write_text(write_text(to, "codec"), CODECS[worded->codec]) : to;
}

/* ---- with an error ---- */

/* Without properties there is nothing to copy from. */
static unsigned char *append_bytes(unsigned char *to, const unsigned char *from,
                                   const unsigned char *end)
{
    if (from < end)
        memcpy(to, from, (size_t)(end - from));
    return to + (end - from);
}

uint32_t shmq_properties_with_error(const unsigned char *meta, uint32_t bytes,
                                    struct shmq_text error, unsigned char *to)
{
    struct shmq_reader r = {meta, meta + bytes, false};
    struct shmq_msgpack map = {.kind = SHMQ_MSGPACK_MAP}, key, value;
    const unsigned char *rest, *had, *behind;
    uint32_t entries;

    if (bytes)
        shmq_msgpack_read(&r, &map);
    if (r.bad || map.kind != SHMQ_MSGPACK_MAP)
        return 0;
    rest = r.at;
    had = behind = meta + bytes;
    entries = map.count + 1;
    for (uint32_t i = 0; i < map.count; i++) {
        const unsigned char *at = r.at;

        shmq_msgpack_read(&r, &key);
        shmq_msgpack_skip(&r, &key);
        shmq_msgpack_read(&r, &value);
        shmq_msgpack_skip(&r, &value);
        if (r.bad)
            return 0;
        if (!shmq_msgpack_is(&key, "error") || had != r.end)
            continue;
        had = at;
        behind = r.at;
        entries--;
    }
    if (r.at != r.end)
        return 0;
    bytes = head_size(entries) + (uint32_t)(had - rest) + (uint32_t)(r.end - behind) +
            (uint32_t)(1 + strlen("error")) + error.bytes;
    if (to) {
        to = write_head(to, entries);
        to = append_bytes(to, rest, had);
        to = write_text(append_bytes(to, behind, r.end), "error");
        memcpy(to, error.at, error.bytes);
    }
    return bytes;
}
