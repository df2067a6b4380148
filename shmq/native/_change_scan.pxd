# What the binding uses of the core for journals and snapshots. The headers in shmq/core are the
# documentation.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from _queue_c cimport cbool, shmq_queue, shmq_slot
from _record cimport shmq_record, shmq_taken


cdef extern from "queue/change_hints.h" nogil:
    void shmq_wake_writer(shmq_queue *q)
    void shmq_wake_synced(shmq_queue *q)


cdef extern from "file/change_scan.h" nogil:
    struct shmq_out:
        unsigned char *at
        unsigned char *end
    struct shmq_candidate:
        uint64_t seq
        uint32_t at
    struct shmq_candidates:
        shmq_candidate *at
        uint32_t len
    struct shmq_change_scan:
        shmq_queue *q
        uint64_t batch, covered, puts_logged, settles_logged, needed
        shmq_candidates moved, done
    void shmq_scan_changes(shmq_change_scan *f, shmq_queue *q)
    void shmq_unscan(shmq_change_scan *f)
    void shmq_disclaim(shmq_change_scan *f)
    int shmq_collect(shmq_change_scan *f, shmq_out *out, uint32_t salt)
    uint32_t shmq_held_back(shmq_change_scan *f)
    void shmq_arrived(shmq_change_scan *f, uint32_t at)
    void shmq_copies_waiting(shmq_queue *q, uint64_t origin_queue, const uint64_t *seqs,
                             cbool *waits, uint32_t count)
    void shmq_mark_synced(shmq_change_scan *f, uint64_t segment, uint64_t offset, uint64_t bytes)
    cbool shmq_release(shmq_change_scan *f, uint32_t most)
    void shmq_fail(shmq_queue *q, uint32_t error)
    int shmq_attend(shmq_change_scan *f, int64_t ns, int64_t linger, uint32_t crowd,
                    int64_t patience)
    void shmq_nudge(shmq_change_scan *f)
    int shmq_scan(shmq_queue *q, uint32_t *cursor, uint64_t limit, shmq_out *out, uint32_t salt,
                  uint64_t *count, uint64_t *needed)
    int shmq_scan_dedupe(shmq_queue *q, uint64_t *cursor, uint64_t limit, shmq_out *out,
                         uint32_t salt)


cdef extern from "file/restore.h" nogil:
    struct shmq_restorer:
        shmq_queue *q
        int64_t now, wall
        cbool logged
    int shmq_restore(shmq_restorer *r, const shmq_record *record)
    int shmq_restore_id(shmq_restorer *r, const shmq_taken *id)
    void shmq_restore_end(shmq_restorer *r, uint64_t last_seq, const uint64_t *totals,
                          uint64_t batch, uint64_t segment, uint64_t offset)
