#include "base/map_rows.h"

#include <stdlib.h>

#include "base/map_columns.h"
#include "base/msgpack.h"

enum { FEW = 16, FIXED_TEXT = 32, FIXED_MAP = 16 };

/* ---- sizes: https://github.com/msgpack/msgpack/blob/master/spec.md ---- */

static uint32_t head_of(uint32_t bytes, bool is_text)
{
    if (is_text && bytes < FIXED_TEXT)
        return 1;
    return bytes < 1 << 8 ? 2 : bytes < 1 << 16 ? 3 : 5;
}

static uint32_t size_of_int(int64_t number)
{
    if (number >= -32 && number < 128)
        return 1;
    if (number < 0)
        return 9;
    return number < 1 << 8 ? 2 : number < 1 << 16 ? 3 : number <= UINT32_MAX ? 5 : 9;
}

static uint32_t head_of_map(uint32_t count)
{
    return count < FIXED_MAP ? 1 : count < 1 << 16 ? 3 : 5;
}

/* ---- measuring ---- */

static bool is_text(const struct shmq_pairs *p, const struct shmq_span *value)
{
    return !p->is_binary || shmq_is_utf8(value->at, value->bytes);
}

static enum shmq_row_fault measure_pair(const struct shmq_pairs *p, uint64_t at,
                                        struct shmq_span *key, uint64_t *size)
{
    struct shmq_span value;

    if (!shmq_text_at(&p->keys, at, key) || !shmq_text_at(&p->values, at, &value))
        return SHMQ_ROW_ENDS;
    if (!key->at)
        return SHMQ_ROW_NAMES;
    if (!shmq_is_utf8(key->at, key->bytes))
        return SHMQ_ROW_TEXT;
    if (value.at && !p->is_binary && !shmq_is_utf8(value.at, value.bytes))
        return SHMQ_ROW_TEXT;
    *size += head_of(key->bytes, true) + (uint64_t)key->bytes;
    *size += value.at ? head_of(value.bytes, is_text(p, &value)) + (uint64_t)value.bytes : 1;
    return SHMQ_ROW_OK;
}

/* The pairs of the row; false if the offsets are wrong. */
static bool range(const struct shmq_pairs *p, uint64_t row, uint32_t *begin, uint32_t *count)
{
    *begin = *count = 0;
    if (!p->ends || !shmq_bit(&p->there, row))
        return true;
    if (p->ends[row] < 0 || p->ends[row + 1] < p->ends[row] ||
        (uint64_t)p->ends[row + 1] > p->count)
        return false;
    *begin = (uint32_t)p->ends[row];
    *count = (uint32_t)(p->ends[row + 1] - p->ends[row]);
    return true;
}

static enum shmq_row_fault measure_pairs(const struct shmq_pairs *p, uint64_t row, uint64_t *size)
{
    enum shmq_row_fault fault = SHMQ_ROW_OK;
    struct shmq_span few[FEW], *keys = few;
    uint32_t begin, count;

    if (!range(p, row, &begin, &count))
        return SHMQ_ROW_ENDS;
    if (!count)
        return SHMQ_ROW_OK;
    if (count > FEW && !(keys = malloc(count * sizeof *keys)))
        return SHMQ_ROW_MEMORY;
    *size += head_of_map(count);
    for (uint32_t i = 0; i < count && !fault; i++)
        fault = measure_pair(p, (uint64_t)begin + i, &keys[i], size);
    if (!fault && shmq_spans_repeat(keys, count))
        fault = SHMQ_ROW_NAMES;
    if (keys != few)
        free(keys);
    return fault;
}

static enum shmq_row_fault measure_text(const struct shmq_texts *t, uint64_t row, uint64_t *size)
{
    struct shmq_span text;

    if (!shmq_text_at(t, row, &text))
        return SHMQ_ROW_ENDS;
    if (!text.at)
        return SHMQ_ROW_OK;
    *size += head_of(text.bytes, true) + (uint64_t)text.bytes;
    return shmq_is_utf8(text.at, text.bytes) ? SHMQ_ROW_OK : SHMQ_ROW_TEXT;
}

static bool has_number(const struct shmq_numbers *n, uint64_t row)
{
    return n->at && shmq_bit(&n->there, row);
}

static enum shmq_row_fault measure(const struct shmq_map_column *c, uint64_t row, uint64_t *size)
{
    if (c->kind == SHMQ_MAP_PAIRS)
        return measure_pairs(&c->pairs, row, size);
    if (c->kind == SHMQ_MAP_TEXT)
        return measure_text(&c->texts, row, size);
    if (has_number(&c->numbers, row))
        *size += size_of_int(c->numbers.at[row]);
    return SHMQ_ROW_OK;
}

enum shmq_row_fault shmq_map_row_measure(const struct shmq_map_column *columns, uint32_t count,
                                         uint64_t row, uint64_t *size, uint32_t *which)
{
    *size = 0;
    for (*which = 0; *which < count; ++*which) {
        const struct shmq_map_column *c = &columns[*which];
        uint64_t before = *size;
        enum shmq_row_fault fault = measure(c, row, size);

        if (fault)
            return fault;
        if (c->key && *size > before)
            *size += 1 + strlen(c->key);
    }
    if (*size && columns->key)
        ++*size;
    return SHMQ_ROW_OK;
}

/* ---- writing ---- */

static unsigned char *write_sized(unsigned char *to, uint8_t tag, uint32_t size)
{
    *to++ = size < 1 << 8 ? tag : size < 1 << 16 ? tag + 1 : tag + 2;
    if (size < 1 << 8) {
        *to++ = (unsigned char)size;
        return to;
    }
    return size < 1 << 16 ? shmq_store16(to, (uint16_t)size) : shmq_store32(to, size);
}

static unsigned char *write_text(unsigned char *to, const struct shmq_span *text, bool is_text)
{
    if (is_text && text->bytes < FIXED_TEXT)
        *to++ = (unsigned char)(0xA0 | text->bytes);
    else
        to = write_sized(to, is_text ? 0xD9 : 0xC4, text->bytes);
    if (text->bytes)
        memcpy(to, text->at, text->bytes);
    return to + text->bytes;
}

static unsigned char *write_key(unsigned char *to, const char *key)
{
    struct shmq_span text = {(const unsigned char *)key, (uint32_t)strlen(key)};

    return write_text(to, &text, true);
}

static unsigned char *write_int(unsigned char *to, int64_t number)
{
    uint32_t size = size_of_int(number);

    if (size == 9) {
        *to++ = number < 0 ? 0xD3 : 0xCF;
        return shmq_store64(to, (uint64_t)number);
    }
    if (size == 1) {
        *to++ = (unsigned char)number;
        return to;
    }
    return write_sized(to, 0xCC, (uint32_t)number);
}

static unsigned char *write_pairs(unsigned char *to, const struct shmq_pairs *p, uint32_t begin,
                                  uint32_t count)
{
    struct shmq_span key, value;

    if (count < FIXED_MAP) {
        *to++ = (unsigned char)(0x80 | count);
    } else {
        *to++ = count < 1 << 16 ? 0xDE : 0xDF;
        to = count < 1 << 16 ? shmq_store16(to, (uint16_t)count) : shmq_store32(to, count);
    }
    for (uint64_t at = begin; at < (uint64_t)begin + count; at++) {
        shmq_text_at(&p->keys, at, &key);
        shmq_text_at(&p->values, at, &value);
        to = write_text(to, &key, true);
        if (value.at)
            to = write_text(to, &value, is_text(p, &value));
        else
            *to++ = 0xC0;
    }
    return to;
}

static unsigned char *write(const struct shmq_map_column *c, uint64_t row, unsigned char *to)
{
    struct shmq_span text;
    uint32_t begin, count;

    if (c->kind == SHMQ_MAP_INT && has_number(&c->numbers, row))
        return write_int(c->key ? write_key(to, c->key) : to, c->numbers.at[row]);
    if (c->kind == SHMQ_MAP_TEXT && shmq_text_at(&c->texts, row, &text) && text.at)
        return write_text(c->key ? write_key(to, c->key) : to, &text, true);
    if (c->kind == SHMQ_MAP_PAIRS && range(&c->pairs, row, &begin, &count) && count)
        return write_pairs(c->key ? write_key(to, c->key) : to, &c->pairs, begin, count);
    return to;
}

unsigned char *shmq_map_row_write(const struct shmq_map_column *columns, uint32_t count,
                                  uint64_t row, unsigned char *to)
{
    unsigned char *head = to, *next;
    uint8_t entries = 0;

    if (!columns->key)
        return write(columns, row, to);
    to++;
    for (uint32_t i = 0; i < count; i++, to = next) {
        next = write(&columns[i], row, to);
        entries = (uint8_t)(entries + (next > to));
    }
    *head = 0x80 | entries;
    return entries ? to : head;
}
