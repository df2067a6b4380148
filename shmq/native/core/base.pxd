# The base of the C core, and the system calls that the binding uses. The headers document them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "<stdbool.h>":
    ctypedef bint cbool "bool"


cdef extern from "Python.h":
    ctypedef struct PyInterpreterState:
        pass
    ctypedef struct PyThreadState:
        pass
    PyInterpreterState *PyInterpreterState_Get()
    PyThreadState *PyInterpreterState_ThreadHead(PyInterpreterState *interpreter)
    PyThreadState *PyThreadState_Next(PyThreadState *thread)


cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    sem_t *SEM_FAILED
    sem_t *sem_open(const char *name, int flags, ...)
    int sem_unlink(const char *name)
    int sem_close(sem_t *semaphore)
    int sem_post(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_getvalue(sem_t *semaphore, int *value)


cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t length)


cdef extern from "<time.h>" nogil:
    enum: CLOCK_MONOTONIC


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)


cdef extern from "<poll.h>" nogil:
    enum: POLLIN, POLLOUT, POLLHUP, POLLERR
    struct pollfd:
        int fd
        short events, revents
    int c_poll "poll"(pollfd *fds, unsigned long count, int timeout)


cdef extern from "<sys/inotify.h>" nogil:
    enum: IN_CLOEXEC, IN_NONBLOCK, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_MOVED_TO
    int inotify_init1(int flags)
    int inotify_add_watch(int fd, const char *path, uint32_t mask)


cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int c_eventfd "eventfd"(unsigned int count, int flags)


cdef extern from "base/status.h" nogil:
    enum: SHMQ_OK, SHMQ_FULL, SHMQ_EMPTY, SHMQ_TOO_LARGE, SHMQ_STALE, SHMQ_DUPLICATE
    enum: SHMQ_NO_SPACE, SHMQ_DELETED, SHMQ_BUSY, SHMQ_DAMAGED, SHMQ_TRUNCATED
    enum: SHMQ_INCOMPATIBLE, SHMQ_NOT_READY, SHMQ_CROWDED, SHMQ_INTERRUPTED, SHMQ_TIMED_OUT
    enum: SHMQ_UNREGISTERED, SHMQ_FENCED, SHMQ_UNCLAIMED


cdef extern from "base/descriptor.h" nogil:
    void shmq_reserve_standard()


cdef extern from "base/process.h" nogil:
    struct shmq_process:
        uint64_t number, first
        int fd
    uint32_t shmq_pid_of(const shmq_process *self, uint64_t number)


cdef extern from "base/mutex.h" nogil:
    int64_t shmq_patience(int64_t waited, int64_t until, const shmq_process *self, uint64_t holder)
    void shmq_limit_patience(int64_t ns)


cdef extern from "base/clock.h" nogil:
    int64_t shmq_read_clock(int clock)
    int64_t shmq_clock_set
    int64_t shmq_now()
    int64_t shmq_wall()


cdef extern from "base/spin.h" nogil:
    struct shmq_spin_rate:
        int64_t yield_after
    void shmq_spin_init(shmq_spin_rate *rate, int64_t least)
    int64_t shmq_spin_time(shmq_spin_rate *rate)
    void shmq_spin_learn(shmq_spin_rate *rate, int64_t ns, int64_t took)


cdef extern from "base/siphash.h" nogil:
    uint64_t shmq_siphash_first(uint64_t key, const void *data, size_t size)
    void shmq_siphash(uint64_t key, const void *data, size_t size, uint64_t *hash)


cdef extern from "base/shared_memory.h" nogil:
    """
    #ifdef SHMQ_CRASHPOINTS
    #define SHMQ_HAS_CRASHPOINTS 1
    #define SHMQ_MARKS shmq_marks
    #define SHMQ_CRASH_AT shmq_crash_at
    #else
    #define SHMQ_HAS_CRASHPOINTS 0
    static uint64_t SHMQ_MARKS __attribute__((unused)), SHMQ_CRASH_AT __attribute__((unused));
    #endif
    """
    enum: SHMQ_HAS_CRASHPOINTS
    uint64_t SHMQ_MARKS, SHMQ_CRASH_AT
    void shmq_mark()
    void shmq_fence()


cdef extern from "base/crc32c.h" nogil:
    uint32_t shmq_crc32c(uint32_t crc, const void *data, size_t size)


cdef extern from "base/msgpack.h" nogil:
    bint shmq_msgpack_is_map(const void *bytes, size_t size)


cdef extern from "base/crc32.h" nogil:
    uint32_t shmq_crc32(const unsigned char *at, size_t size)


cdef extern from "base/arrow.h" nogil:
    struct shmq_bits:
        const unsigned char *at
        uint64_t first
    struct shmq_texts:
        const int32_t *ends
        const unsigned char *bytes
        uint64_t size
        shmq_bits there
    struct shmq_span:
        const unsigned char *at
        uint32_t bytes
    cbool shmq_text_at(const shmq_texts *t, uint64_t i, shmq_span *item)


cdef extern from "base/map_columns.h" nogil:
    struct shmq_maps:
        const int32_t *ends
        const unsigned char *bytes
        uint64_t size
        uint32_t count
    struct shmq_text_sums:
        uint32_t present
        uint64_t bytes
    struct shmq_text_arrays:
        int32_t *ends
        unsigned char *bytes
        unsigned char *there
    struct shmq_pair_sums:
        uint32_t present
        uint64_t pairs, key_bytes, value_bytes
    struct shmq_pair_arrays:
        int32_t *ends
        unsigned char *there
        int32_t *key_ends
        unsigned char *keys
        shmq_text_arrays values
    cbool shmq_maps_check(const shmq_maps *m)
    uint32_t shmq_maps_find(const shmq_maps *m, const char *outer, const char *key,
                            shmq_span *spans)
    void shmq_texts_measure(shmq_span *spans, uint32_t count, shmq_text_sums *sums)
    void shmq_texts_fill(const shmq_span *spans, uint32_t count, const shmq_text_arrays *to)
    uint32_t shmq_ints_fill(const shmq_span *spans, uint32_t count, int64_t *numbers,
                            unsigned char *there)
    cbool shmq_pairs_measure(const shmq_span *span, shmq_pair_sums *sums)
    void shmq_pairs_fill(const shmq_span *spans, uint32_t count, const shmq_pair_arrays *to)


cdef extern from "base/map_rows.h" nogil:
    enum: SHMQ_MAP_COLUMNS, SHMQ_MAP_TEXT, SHMQ_MAP_INT, SHMQ_MAP_PAIRS
    enum: SHMQ_ROW_OK, SHMQ_ROW_ENDS, SHMQ_ROW_TEXT, SHMQ_ROW_NAMES, SHMQ_ROW_MEMORY
    struct shmq_pairs:
        const int32_t *ends
        shmq_bits there
        uint64_t count
        shmq_texts keys, values
        cbool is_binary
    struct shmq_numbers:
        const int64_t *at
        shmq_bits there
    struct shmq_map_column:
        const char *key
        int kind
        shmq_texts texts
        shmq_numbers numbers
        shmq_pairs pairs
    int shmq_map_row_measure(const shmq_map_column *columns, uint32_t count, uint64_t row,
                             uint64_t *size, uint32_t *which)
    unsigned char *shmq_map_row_write(const shmq_map_column *columns, uint32_t count, uint64_t row,
                                      unsigned char *to)
