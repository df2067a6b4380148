# How long a wait spins before it sleeps: as long as spinning has paid lately.
#
# A spin lasts twice as long as the last wait that a spin ended, and at least `least`. If no spin
# ended a wait lately, a long one is tried now and then, more and more seldom while it fails: on a
# busy machine or a single core no other process can make progress while this one spins.

cdef bint _alone = (_os.cpu_count() or 1) == 1

cdef struct Spin:
    int64_t least        # the shortest spin after one that has paid, ns
    int64_t ns           # the length of the next spin; 0: none
    int until_try        # waits until a long spin is tried again
    int between          # waits from that spin to the next long one


cdef inline void _spin_init(Spin *spin, int64_t least) noexcept:
    spin.least = least
    spin.ns = FIRST_SPIN
    spin.until_try = 0
    spin.between = LEAST_BETWEEN


# How long to spin now, in ns; 0 means not at all.
cdef inline int64_t _spin_time(Spin *spin) noexcept:
    if _alone:
        return 0
    if spin.ns:
        return spin.ns
    spin.until_try -= 1
    return 0 if spin.until_try > 0 else MOST_SPIN


# Learns from a spin of at most `tried` ns that ended after `took` ns, or failed (-1).
cdef inline void _spin_learn(Spin *spin, int64_t tried, int64_t took) noexcept nogil:
    if took >= 0:
        spin.ns = min(max(took * 2, spin.least), MOST_SPIN)
        spin.between = LEAST_BETWEEN
        return
    spin.ns = tried // 2 if tried // 2 >= LEAST_SPIN and spin.ns else 0
    if not spin.ns:
        spin.until_try = spin.between
        spin.between = min(spin.between * 2, MOST_BETWEEN)


# Receives what arrives within `ns`, otherwise like a non-blocking recv(2).
cdef ssize_t _spin_recv(int fd, void *to, size_t room, Spin *spin, int64_t ns,
                        int *why) noexcept nogil:
    cdef int64_t begin = shmq_read_clock(CLOCK_MONOTONIC), took = 0
    cdef ssize_t got = -1
    why[0] = EAGAIN
    while took < ns:
        got = recv(fd, to, room, MSG_DONTWAIT)
        why[0] = errno
        if got >= 0 or why[0] != EAGAIN:
            break
        sched_yield()  # let the peer run if it shares this core
        took = shmq_read_clock(CLOCK_MONOTONIC) - begin
    _spin_learn(spin, ns, took if got > 0 else -1)
    return got
