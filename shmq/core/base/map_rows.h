/* Rows of Arrow's columns as msgpack maps, one for each row: the inverse of map_columns.h.
 *
 * Each row is measured, which checks every offset and text of it, and then written. */
#pragma once

#include "base/arrow.h"

#define SHMQ_MAP_COLUMNS 15u /* of a map, at most */

/* Lists of pairs, as Arrow's maps and lists of structs: list i has the pairs from ends[i] up to
 * ends[i + 1]. */
struct shmq_pairs {
    const int32_t *ends;
    struct shmq_bits there;
    uint64_t count; /* of all pairs */
    struct shmq_texts keys, values;
    bool is_binary; /* the values are bytes: those in UTF-8 become texts                    */
};

struct shmq_numbers {
    const int64_t *at;
    struct shmq_bits there;
};

enum shmq_map_kind { SHMQ_MAP_TEXT, SHMQ_MAP_INT, SHMQ_MAP_PAIRS };

/* An entry of each row's map, unless it is null. */
struct shmq_map_column {
    const char *key; /* fewer than 32 bytes; NULL: the pairs are the map, without another column */
    enum shmq_map_kind kind;
    struct shmq_texts texts;
    struct shmq_numbers numbers;
    struct shmq_pairs pairs; /* an empty list is as null */
};

enum shmq_row_fault {
    SHMQ_ROW_OK,
    SHMQ_ROW_ENDS, /* the offsets contradict the data                                     */
    SHMQ_ROW_TEXT, /* a text is not UTF-8                                                 */
    SHMQ_ROW_NAMES, /* a key of a pair is null, or comes twice                             */
    SHMQ_ROW_MEMORY,
};

/* Sets `size` to the bytes of the row's map, 0 if it is empty. On a fault, `which` is the number of
 * its column. */
enum shmq_row_fault shmq_map_row_measure(const struct shmq_map_column *columns, uint32_t count,
                                         uint64_t row, uint64_t *size, uint32_t *which);

/* Writes the map of a measured row; returns the place behind it. */
unsigned char *shmq_map_row_write(const struct shmq_map_column *columns, uint32_t count,
                                  uint64_t row, unsigned char *to);
