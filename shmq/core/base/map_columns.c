#include "base/map_columns.h"

#include <stdlib.h>

#include "base/msgpack.h"

bool shmq_maps_check(const struct shmq_maps *m)
{
    bool falls = false;

    for (uint32_t i = 0; i < m->count; i++)
        falls |= m->ends[i] > m->ends[i + 1];
    return !falls && m->ends[0] >= 0 && (uint64_t)m->ends[m->count] <= m->size;
}

static struct shmq_reader reader_of(const struct shmq_span *span)
{
    return (struct shmq_reader){span->at, span->at + span->bytes, false};
}

static struct shmq_span name_of(const char *key)
{
    return (struct shmq_span){(const unsigned char *)key, key ? (uint32_t)strlen(key) : 0};
}

static bool is_named(const struct shmq_msgpack *name, const struct shmq_span *key)
{
    return name->kind == SHMQ_MSGPACK_STR && name->count == key->bytes &&
           !memcmp(name->bytes, key->at, key->bytes);
}

/* Sets `found` to the last value of the key; false if the bytes are not one map. */
static bool find(const struct shmq_span *map, const struct shmq_span *key, struct shmq_span *found)
{
    struct shmq_reader r = reader_of(map);
    struct shmq_msgpack head, name, value;

    *found = (struct shmq_span){NULL, 0};
    shmq_msgpack_read(&r, &head);
    if (r.bad || head.kind != SHMQ_MSGPACK_MAP)
        return false;
    for (uint32_t i = 0; i < head.count && !r.bad; i++) {
        const unsigned char *begin;

        shmq_msgpack_read(&r, &name);
        shmq_msgpack_skip(&r, &name);
        begin = r.at;
        shmq_msgpack_read(&r, &value);
        shmq_msgpack_skip(&r, &value);
        if (!r.bad && is_named(&name, key)) {
            bool is_nil = value.kind == SHMQ_MSGPACK_NIL;

            *found = (struct shmq_span){is_nil ? NULL : begin, (uint32_t)(r.at - begin)};
        }
    }
    return !r.bad && r.at == r.end;
}

static bool is_map(const struct shmq_span *span)
{
    struct shmq_reader r = reader_of(span);
    struct shmq_msgpack value;

    shmq_msgpack_read(&r, &value);
    return value.kind == SHMQ_MSGPACK_MAP;
}

/* Replaces the map by the one at the end of the path, or by nothing; false if it is malformed. */
static bool follow(struct shmq_span *map, const char *path)
{
    do {
        struct shmq_span name = {(const unsigned char *)path, (uint32_t)strcspn(path, ".")};

        if (!find(map, &name, map))
            return false;
        if (map->at && !is_map(map))
            map->at = NULL;
        path += name.bytes;
        path += *path == '.';
    } while (*path && map->at);
    return true;
}

uint32_t shmq_maps_find(const struct shmq_maps *m, const char *outer, const char *key,
                        struct shmq_span *spans)
{
    struct shmq_span name = name_of(key);

    for (uint32_t i = 0; i < m->count; i++) {
        struct shmq_span map = {m->bytes + m->ends[i], (uint32_t)(m->ends[i + 1] - m->ends[i])};

        spans[i] = (struct shmq_span){NULL, 0};
        if (!map.bytes)
            continue;
        if (outer && !follow(&map, outer))
            return i;
        if (!key)
            spans[i] = map;
        else if (map.at && !find(&map, &name, &spans[i]))
            return i;
    }
    return m->count;
}

/* ---- texts and numbers ---- */

static bool is_text(const struct shmq_msgpack *value)
{
    return value->kind == SHMQ_MSGPACK_STR || value->kind == SHMQ_MSGPACK_BIN;
}

static bool text_of(const struct shmq_span *span, struct shmq_msgpack *value)
{
    struct shmq_reader r = reader_of(span);

    if (!span->at)
        return false;
    shmq_msgpack_read(&r, value);
    return !r.bad && is_text(value);
}

void shmq_texts_measure(struct shmq_span *spans, uint32_t count, struct shmq_text_sums *sums)
{
    struct shmq_msgpack value;

    *sums = (struct shmq_text_sums){0};
    for (uint32_t i = 0; i < count; i++) {
        if (!text_of(&spans[i], &value)) {
            spans[i] = (struct shmq_span){NULL, 0};
            continue;
        }
        spans[i] = (struct shmq_span){value.bytes, value.count};
        sums->present++;
        sums->bytes += value.count;
    }
}

/* Appends an item to those before it. */
static void add(unsigned char *to, int32_t *ends, uint64_t i, const unsigned char *bytes,
                uint32_t count)
{
    if (count)
        memcpy(to + ends[i], bytes, count);
    ends[i + 1] = ends[i] + (int32_t)count;
}

void shmq_texts_fill(const struct shmq_span *spans, uint32_t count,
                     const struct shmq_text_arrays *to)
{
    to->ends[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        add(to->bytes, to->ends, i, spans[i].at, spans[i].bytes);
        if (spans[i].at)
            shmq_set_bit(to->there, i);
    }
}

uint32_t shmq_ints_fill(const struct shmq_span *spans, uint32_t count, int64_t *numbers,
                        unsigned char *there)
{
    uint32_t present = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct shmq_reader r = reader_of(&spans[i]);
        struct shmq_msgpack value = {0};

        if (spans[i].at)
            shmq_msgpack_read(&r, &value);
        numbers[i] = value.kind == SHMQ_MSGPACK_INT ? value.number : 0;
        if (value.kind != SHMQ_MSGPACK_INT)
            continue;
        shmq_set_bit(there, i);
        present++;
    }
    return present;
}

/* ---- maps as pairs ---- */

enum { FEW = 16 }; /* spans that are compared with each other */

static int compare(const void *a, const void *b)
{
    const struct shmq_span *left = a, *right = b;

    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? -1 : 1;
    return memcmp(left->at, right->at, left->bytes);
}

bool shmq_spans_repeat(struct shmq_span *spans, uint32_t count)
{
    bool repeat = false;

    if (count <= FEW) {
        for (uint32_t i = 1; i < count; i++)
            for (uint32_t j = 0; j < i; j++)
                repeat |= !compare(&spans[i], &spans[j]);
        return repeat;
    }
    qsort(spans, count, sizeof *spans, compare);
    for (uint32_t i = 1; i < count; i++)
        repeat |= !compare(&spans[i - 1], &spans[i]);
    return repeat;
}

/* Adds the pairs of a map whose head was read; `keys` has room for its keys. */
static bool measure(struct shmq_reader *r, uint32_t count, struct shmq_span *keys,
                    struct shmq_pair_sums *sums)
{
    struct shmq_msgpack key, value;

    for (uint32_t i = 0; i < count; i++) {
        shmq_msgpack_read(r, &key);
        if (r->bad || key.kind != SHMQ_MSGPACK_STR)
            return false;
        keys[i] = (struct shmq_span){key.bytes, key.count};
        shmq_msgpack_read(r, &value);
        if (r->bad || !(is_text(&value) || value.kind == SHMQ_MSGPACK_NIL))
            return false;
        sums->key_bytes += key.count;
        sums->value_bytes += value.count;
    }
    sums->present += !!count;
    sums->pairs += count;
    return r->at == r->end && !shmq_spans_repeat(keys, count);
}

bool shmq_pairs_measure(const struct shmq_span *span, struct shmq_pair_sums *sums)
{
    struct shmq_reader r = reader_of(span);
    struct shmq_span few[FEW], *keys = few;
    struct shmq_msgpack map;
    bool plain;

    if (!span->at)
        return true;
    shmq_msgpack_read(&r, &map);
    if (r.bad || map.kind != SHMQ_MSGPACK_MAP)
        return false;
    if (map.count > FEW) /* and at most half of the bytes that are there */
        keys = malloc(map.count * sizeof *keys);
    plain = keys && measure(&r, map.count, keys, sums);
    if (keys != few)
        free(keys);
    return plain;
}

/* Returns the number of pairs so far, with those of the span. */
static uint64_t fill_one(const struct shmq_span *span, uint64_t at,
                         const struct shmq_pair_arrays *to)
{
    struct shmq_reader r = reader_of(span);
    struct shmq_msgpack map, key, value;

    shmq_msgpack_read(&r, &map);
    for (uint32_t i = 0; i < map.count; i++, at++) {
        shmq_msgpack_read(&r, &key);
        add(to->keys, to->key_ends, at, key.bytes, key.count);
        shmq_msgpack_read(&r, &value);
        add(to->values.bytes, to->values.ends, at, value.bytes, value.count);
        if (value.kind != SHMQ_MSGPACK_NIL)
            shmq_set_bit(to->values.there, at);
    }
    return at;
}

void shmq_pairs_fill(const struct shmq_span *spans, uint32_t count,
                     const struct shmq_pair_arrays *to)
{
    uint64_t at = 0;

    to->ends[0] = to->key_ends[0] = to->values.ends[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (spans[i].at)
            at = fill_one(&spans[i], at, to);
        to->ends[i + 1] = (int32_t)at;
        if (to->ends[i + 1] > to->ends[i])
            shmq_set_bit(to->there, i);
    }
}
