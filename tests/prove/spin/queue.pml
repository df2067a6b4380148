/* Waiting for a queue, on its two semaphores or on bells: get and put of some processes, of
 * which some die. README.md says which lines of the code each step stands for.
 *
 * A critical section of the whole queue is one atomic step that a death may cut off between
 * any two stores: what is written inside is read by nobody else but under a lock (locks.pml
 * shows that they keep them apart). One of the gets alone is two: what it does, and its unlock;
 * what comes between, and a quick put, which has put_lock alone, go on beside each other. The
 * steps of a quick put are steps here, and so is everything outside the locks. */

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 0
#endif
#ifndef RUNG
#define RUNG 0 /* of the workers, from the last one down, so many wait by bells */
#endif
#ifndef GHOSTS
#define GHOSTS 0 /* posts by nobody */
#endif
#ifndef DELETERS
#define DELETERS 0 /* the second goes on where a dead first one stopped */
#endif
#ifndef GUARDIANS
#define GUARDIANS 0 /* who notice deaths; a guardian that died is another who takes its place */
#endif
#ifndef NEEDED
#define NEEDED deaths /* slices that a waiter may need */
#endif

#define WORKERS (PRODUCERS + CONSUMERS)
#define SLEEPERS(event) (event == NOT_EMPTY -> CONSUMERS : PRODUCERS)
#define BY_BELL(worker) (worker >= WORKERS - RUNG)

/* Each process can have as many posts under way as there are sleepers; then there are those
 * that are counted in `posted`, and those whose takers have not counted them yet. */
#define BOUND(event) ((WORKERS + 2 + DELETERS + MOST_DEATHS) * SLEEPERS(event) + GHOSTS)

#define NOT_EMPTY 0
#define NOT_FULL 1

/* ---- the segment: the truth, and what is derived from it ---- */

byte stored;            /* slots that are READY */
byte inbox;             /* of these, those in the inbox */
bool leased[WORKERS];   /* slots that are LEASED, by whom */
byte ready, live;       /* derived */
byte asleep[2], posted[2];
bool counted[WORKERS];  /* asleep of the attachment: it is counted in */
bool attached[WORKERS];
byte armed[2];          /* bit w: ring the bell of worker w */
bool gone;              /* SHMQ_GONE */
bool torn;              /* the holder of the lock died inside: EOWNERDEAD for the next one */
bool put_died;          /* the same of put_lock */
bool unsettled;         /* one who came next has written it down */
bool putting;           /* put_lock is held by a quick put */
bool held;              /* the lock is, from one step to the next */

/* ---- the kernel's ---- */

byte semaphore[2];
bool bell[WORKERS];     /* its FIFO has bytes: it is readable */
bool dead[WORKERS];

/* ---- the run ---- */

byte deaths;
hidden byte at, freed, count;  /* used within a critical section alone: `freed` and `whole` */
hidden byte whole_;            /*   of the handle */
bool guarding;          /* a guardian is inside, and does not die */
bool calm;              /* from now on nobody dies, and only a slice that is needed ends */

#define HELD (leased[0] + leased[1] + (WORKERS > 2 && leased[2 % WORKERS]) + \
              (WORKERS > 3 && leased[3 % WORKERS]))
#define BELL_OF(worker) (worker < PRODUCERS -> NOT_FULL : NOT_EMPTY)

#define ATTACHED (attached[0] + 2 * attached[1] + \
                  (WORKERS > 2 -> 4 * attached[2 % WORKERS] : 0) + \
                  (WORKERS > 3 -> 8 * attached[3 % WORKERS] : 0))

/* What a wait on the bell is for. */
#define AVAILABLE(event) (gone || (event == NOT_EMPTY -> stored > 0 : ROOM))

#define ROOM (stored + HELD < CAPACITY)

#define BELL (BELL_OF(me))

#if defined(BROKEN_NO_SLICE)
#define MAY_SLICE false
#define SLICE_ENDS skip
#elif defined(LIVENESS)
#define MAY_SLICE true
#define SLICE_ENDS skip
#elif defined(MOST_SLICES)
byte slices;
#define MAY_SLICE (slices < MOST_SLICES && !calm)
#define SLICE_ENDS slices++
#else
#define MAY_SLICE !calm
#define SLICE_ENDS skip
#endif

#define MAY_DIE (deaths < MOST_DEATHS && !calm && !guarding)
#define DIE_INSIDE if \
    :: MAY_DIE -> deaths++; torn = true; put_died = put_died || whole_; goto died \
    :: true \
    fi
#define DIE if :: MAY_DIE -> deaths++; goto died :: true fi
#define DIE_PUTTING if :: MAY_DIE -> deaths++; putting = false; put_died = true; goto died :: true fi

/* Both locks: settle and shmq_rebuild. A death inside leaves them as torn as they were. */
inline lock()
{
    !held && !putting;
    freed = 0; whole_ = true;
    if
    :: torn || put_died || unsettled ->
        unsettled = true; torn = false; put_died = false;
#ifndef BROKEN_NO_RECOVERY
        ready = 0; live = 0; inbox = 0;
        DIE_INSIDE;
        asleep[NOT_EMPTY] = 0; asleep[NOT_FULL] = 0;
        DIE_INSIDE;
        at = 0;
        do
        :: at < WORKERS ->
            asleep[BELL_OF(at)] = asleep[BELL_OF(at)] + counted[at];
            at++
        :: else -> break
        od;
        live = stored + HELD;
        ready = stored;
        DIE_INSIDE;
        freed = WORKERS;
        armed[NOT_EMPTY] = armed[NOT_EMPTY] & ATTACHED;
        armed[NOT_FULL] = armed[NOT_FULL] & ATTACHED;
#endif
        unsettled = false
    :: else
    fi;
    take_inbox();
    assert(ready == stored && live == stored + HELD)
}

/* shmq_inbox_take. Holds the lock. */
inline take_inbox()
{
    if
    :: inbox > 0 ->
        live = live + inbox;
        DIE_INSIDE;
        ready = ready + inbox;
        DIE_INSIDE;
        inbox = 0;
        DIE_INSIDE
    :: else
    fi
}

/* The lock alone: shmq_lock_gets. What is not settled then takes the whole queue. */
inline lock_gets()
{
    !held;
    freed = 0; whole_ = false;
    if
    :: torn -> unsettled = true; torn = false
    :: else
    fi
}

/* posts_for */
inline choose(event, something)
{
    if
#ifdef BROKEN_NO_POSTED
    :: something ->
        post[event] = (asleep[event] < something -> asleep[event] : something)
#else
    :: something && asleep[event] > posted[event] ->
        post[event] = (asleep[event] - posted[event] < something -> asleep[event] - posted[event]
                                                               : something);
        posted[event] = posted[event] + post[event]
#endif
    :: else -> post[event] = 0
    fi
}

/* `choose` of bell.c: any `count` of the armed. */
inline choose_bells(event)
{
    do
    :: count > 0 && armed[event] & 1 -> armed[event] = armed[event] - 1; ring = ring | 1; count--
    :: count > 0 && armed[event] & 2 -> armed[event] = armed[event] - 2; ring = ring | 2; count--
    :: count > 0 && armed[event] & 4 -> armed[event] = armed[event] - 4; ring = ring | 4; count--
    :: count > 0 && armed[event] & 8 -> armed[event] = armed[event] - 8; ring = ring | 8; count--
    :: count == 0 || armed[event] == 0 -> break
    od;
    count = 0;
    DIE_INSIDE
}

/* Messages that sleepers are posted for are not the bells'. `posted` may count posts that
 * nobody will take: those of the dead. */
#ifdef BROKEN_STALE_POSTED
#define SPOKEN_FOR posted[NOT_EMPTY]
#else
#define SPOKEN_FOR asleep[NOT_EMPTY]
#endif

/* shmq_choose_posts, and the mutex is free. */
inline unlock()
{
    choose(NOT_EMPTY, ready);
    DIE_INSIDE;
    choose(NOT_FULL, freed);
    DIE_INSIDE;
    if /* shmq_choose_bells */
    :: gone ->
        count = WORKERS;
        choose_bells(NOT_EMPTY);
        count = WORKERS;
        choose_bells(NOT_FULL)
    :: else ->
        count = (posted[NOT_EMPTY] < SPOKEN_FOR -> posted[NOT_EMPTY] : SPOKEN_FOR);
        count = (ready > count -> ready - count : 0);
        choose_bells(NOT_EMPTY);
        count = freed - post[NOT_FULL];
        choose_bells(NOT_FULL)
    fi;
    freed = 0
}

#define QUIET (post[NOT_EMPTY] + post[NOT_FULL] + ring == 0)

inline post_one(event)
{
    semaphore[event]++;
    assert(semaphore[event] <= BOUND(event))
}

/* shmq_post_wakeup */
inline ring_one(worker)
{
    ring = ring - (1 << worker);
    bell[worker] = true
}

/* _post, then shmq_wake_parties */
inline post_all()
{
    do
    :: atomic { post[NOT_EMPTY] > 0 -> post_one(NOT_EMPTY); post[NOT_EMPTY]-- }
    :: atomic { post[NOT_EMPTY] == 0 && post[NOT_FULL] > 0 ->
                post_one(NOT_FULL); post[NOT_FULL]-- }
    :: atomic { post[NOT_EMPTY] + post[NOT_FULL] == 0 && ring & 1 -> ring_one(0) }
    :: atomic { post[NOT_EMPTY] + post[NOT_FULL] == 0 && ring & 2 -> ring_one(1) }
    :: atomic { post[NOT_EMPTY] + post[NOT_FULL] == 0 && ring & 4 -> ring_one(2 % WORKERS) }
    :: atomic { post[NOT_EMPTY] + post[NOT_FULL] == 0 && ring & 8 -> ring_one(3 % WORKERS) }
    :: atomic { !QUIET && MAY_DIE -> deaths++; goto died }
    :: atomic { QUIET -> break }
    od
}

/* The workers that wait by bells. */
#define BELLS (((1 << RUNG) - 1) << (WORKERS - RUNG))

/* shmq_post_anew: what the dead may have counted, or chosen, and not posted. Holds the lock. */
inline post_anew()
{
#ifndef BROKEN_NO_POST_ANEW
    posted[NOT_EMPTY] = 0; posted[NOT_FULL] = 0;
    freed = WORKERS;
    ring = ring | (BELLS & ATTACHED & ~armed[NOT_EMPTY] & ~armed[NOT_FULL])
#else
    skip
#endif
}

/* shmq_reclaim of all who are found dead, then shmq_post_anew. Holds the lock. */
inline reclaim()
{
    at = 0;
    do
    :: at < WORKERS && dead[at] && attached[at] ->
        if
        :: leased[at] -> leased[at] = false; stored++; DIE_INSIDE; ready++
        :: else
        fi;
        DIE_INSIDE;
        if
        :: counted[at] ->
            asleep[BELL_OF(at)]--;
            DIE_INSIDE;
            counted[at] = false
        :: else
        fi;
        armed[NOT_EMPTY] = armed[NOT_EMPTY] & ~(1 << at);
        armed[NOT_FULL] = armed[NOT_FULL] & ~(1 << at);
        DIE_INSIDE;
        attached[at] = false;
        freed++;
        at++
    :: at < WORKERS && !(dead[at] && attached[at]) -> at++
    :: at == WORKERS -> break
    od;
    at = 0;
    DIE_INSIDE;
    post_anew()
}

#define TO_RECLAIM ((dead[0] && attached[0]) || (dead[1] && attached[1]) || \
                    (WORKERS > 2 && dead[2 % WORKERS] && attached[2 % WORKERS]) || \
                    (WORKERS > 3 && dead[3 % WORKERS] && attached[3 % WORKERS]))

/* Slices are of one length: before a party needs a second one, those of the semaphore's
 * sleepers have ended. */
#define SLEEPERS_FIRST (asleep[BELL] == 0 || TO_RECLAIM || torn || put_died)

/* shmq_fall_asleep. Holds the lock. */
inline fall_asleep()
{
#ifdef BROKEN_UNLOCKED_COUNT
    asleep[BELL] = seen + 1;
#else
    asleep[BELL]++;
#endif
    DIE_INSIDE;
    counted[me] = true
}

/* shmq_wake_up. Holds the lock. */
inline wake_up()
{
    asleep[BELL]--;
    DIE_INSIDE;
    counted[me] = false;
    DIE_INSIDE;
    if
    :: taken && posted[BELL] > 0 -> posted[BELL]--
#ifndef BROKEN_NO_RESET
    :: !taken && posted[BELL] > semaphore[BELL] -> posted[BELL] = semaphore[BELL]
#endif
    :: else
    fi;
    DIE_INSIDE
}

/* shmq_put. Holds the lock. */
inline put()
{
    live++;
    DIE_INSIDE;
    stored++;
    DIE_INSIDE;
    ready++;
    DIE_INSIDE
}

/* shmq_lease. Holds the lock. */
inline lease()
{
    ready--;
    DIE_INSIDE;
    stored--; leased[me] = true;
    DIE_INSIDE
}

/* shmq_ack: ACKED, then FREE. Holds the lock. */
inline acknowledge()
{
    leased[me] = false;
    DIE_INSIDE;
    live--;
    freed++;
    DIE_INSIDE
}

proctype worker(byte me)
{
#ifdef BROKEN_UNLOCKED_COUNT
    byte seen;
#endif
    byte post[2], ring, needed, sleepers;
    bool taken;
    byte party; /* 0; 1: armed, and to try once more; 2: armed, and it has waited */

idle:
    if
    :: goto finished
    :: true
    :: atomic { MAY_DIE -> deaths++; goto died }
    fi;

try:
    if
    :: BELL == NOT_FULL -> goto quick
    :: BELL == NOT_EMPTY -> goto alone
    :: goto whole
    fi;

alone: /* a lease under the lock alone */
    atomic {
        lock_gets();
        if
        :: unsettled -> goto whole
        :: gone && !unsettled -> goto finished
        :: else
        fi;
        take_inbox();
#ifdef BROKEN_COUNTS_IN_ALONE
        if
        :: ready == 0 && !BY_BELL(me) -> held = true; goto count_in
        :: else
        fi;
#endif
        if
        :: ready > 0 -> lease()
        :: else
        fi;
#ifndef LIVENESS /* where a lock may be taken again and again before one who waits for it */
        held = true
    }
    atomic {
        held = false; whole_ = false; freed = 0;
        DIE_INSIDE;
#endif
        unlock();
        if
        :: leased[me] && party -> goto ends
        :: leased[me] && !party && QUIET -> goto use
        :: leased[me] && !party && !QUIET -> goto got
        :: !leased[me] && QUIET -> goto whole
        :: else
        fi
    }
    post_all();
    goto whole;
#ifdef BROKEN_COUNTS_IN_ALONE
count_in:
    atomic { fall_asleep(); held = false; unlock() }
    post_all();
    goto sleep;
#endif

quick: /* shmq_quick_put; for any reason it may be refused */
#ifdef BROKEN_LOOKS_FIRST
    sleepers = (asleep[NOT_EMPTY] > posted[NOT_EMPTY]) + armed[NOT_EMPTY];
#endif
    atomic { /* takes the lock, commits */
        if
        :: !putting && put_died -> unsettled = true; put_died = false; goto whole
        :: !putting && !put_died && (unsettled || gone || !ROOM) -> goto whole
        :: !putting && !put_died && !unsettled && !gone && ROOM ->
            putting = true;
            DIE_PUTTING;
            stored++
        fi
    }
    atomic { /* publishes, releases the lock */
        DIE_PUTTING;
        inbox++;
        DIE_PUTTING;
        putting = false
    }
    atomic {
        DIE;
#ifndef BROKEN_LOOKS_FIRST
        sleepers = asleep[NOT_EMPTY]
#endif
    }
    atomic {
        DIE;
        if
#ifdef BROKEN_LOOKS_FIRST
        :: !sleepers -> skip
        :: sleepers -> sleepers = 0; goto rouse
#else
        :: !armed[NOT_EMPTY] && sleepers <= posted[NOT_EMPTY] -> sleepers = 0
        :: armed[NOT_EMPTY] || sleepers > posted[NOT_EMPTY] -> sleepers = 0; goto rouse
#endif
        fi;
        if
        :: party -> goto ends
        :: else -> goto idle
        fi
    }

rouse: /* it takes the whole queue and releases it */
    atomic {
        if
        :: MAY_DIE -> deaths++; goto died
        :: lock()
        fi;
        if
        :: gone -> goto finished
        :: else
        fi;
        unlock();
        if
        :: party -> goto ends
        :: !party && QUIET -> goto idle
        :: else -> goto used
        fi
    }

whole:
    atomic {
        lock();
        if
        :: gone -> goto finished /* dropped without a post */
        :: else
        fi;
#ifdef BROKEN_POST_BEFORE_STORE
        if
        :: BELL == NOT_FULL && live < CAPACITY -> choose(NOT_EMPTY, 1)
        :: else -> choose(NOT_EMPTY, ready)
        fi
    }
    post_all();
    atomic {
        lock();
#endif
        if
        :: BELL == NOT_FULL && ROOM ->
            put();
#ifdef BROKEN_POST_BEFORE_STORE
            choose(NOT_FULL, freed);
#else
            unlock();
#endif
            if
            :: party -> goto ends
            :: else
            fi;
            if
            :: QUIET -> goto idle
            :: else -> goto used
            fi
        :: BELL == NOT_EMPTY && ready > 0 ->
            lease(); unlock();
            if
            :: party -> goto ends
            :: else
            fi;
            if
            :: QUIET -> goto use
            :: else -> goto got
            fi
        :: else
        fi;
        if
        :: BY_BELL(me) && party == 1 -> unlock(); goto watch
        :: BY_BELL(me) && party != 1 -> unlock(); goto arm
        :: else
        fi;
        if
        :: true -> unlock(); goto look /* the first time */
#ifndef BROKEN_NO_RECHECK
#ifdef BROKEN_UNLOCKED_COUNT
        :: true -> unlock(); seen = asleep[BELL]; goto count_in
#else
        :: fall_asleep(); unlock()
#endif
#else
        :: true -> unlock(); goto count_in
#endif
        fi;
        if
        :: QUIET -> goto sleep
        :: else
        fi
    }
    post_all();
    goto sleep;
#if defined(BROKEN_NO_RECHECK) || defined(BROKEN_UNLOCKED_COUNT)
count_in:
    post_all();
    atomic { lock(); fall_asleep(); unlock() }
    post_all();
#endif

sleep: /* shmq_sleep: a post, the end of a slice, a signal */
end_sleep:
    if
    :: atomic { semaphore[BELL] > 0 -> semaphore[BELL]--; taken = true }
    :: atomic { MAY_SLICE -> SLICE_ENDS; taken = false }
#ifndef LIVENESS
    :: atomic { timeout && (AVAILABLE(BELL) || TO_RECLAIM) ->
                if
                :: AVAILABLE(BELL) -> needed++; assert(needed <= NEEDED)
                :: else
                fi;
                taken = false }
#endif
    :: atomic { MAY_DIE -> deaths++; goto died }
    fi;
    atomic {
        DIE;
        lock(); wake_up();
        if
        :: true
        :: true -> /* its time is over, or a signal handler raises */
#ifndef BROKEN_KEEPS_POST
            if
            :: taken -> freed++ /* shmq_pass_on */
            :: else
            fi;
#endif
            taken = false; unlock();
            if
            :: QUIET -> goto idle
            :: else -> goto used
            fi
        fi;
        if
        :: taken -> taken = false; unlock(); goto woken
        :: else -> unlock(); goto look
        fi
    }

woken:
    post_all();
    goto try;

arm: /* Watch.arm; then it tries once more */
    post_all();
    atomic {
        lock();
        if
        :: gone -> goto finished
        :: else
        fi;
        armed[BELL] = armed[BELL] | (1 << me);
        DIE_INSIDE;
        unlock();
#ifndef BROKEN_NO_RETRY
        party = 1;
        if
        :: QUIET -> goto try
        :: else -> goto woken
        fi
#endif
    }

watch:
    party = 2;
    post_all();
end_watch: /* Bell.sleep: it is rung, or the end of a slice, and shmq_is_woken says so */
    if
    :: atomic { bell[me] -> bell[me] = false }
    :: atomic { MAY_SLICE -> SLICE_ENDS }
    :: atomic { timeout && (AVAILABLE(BELL) || TO_RECLAIM) && SLEEPERS_FIRST ->
                if
                :: AVAILABLE(BELL) -> needed++; assert(needed <= NEEDED)
                :: else
                fi;
                goto look }
    :: atomic { MAY_DIE -> deaths++; goto died }
    fi;
    if
    :: goto look
    :: true
    fi;

ends: /* it leaves, with what it wanted or without: Watch.disarm, or pass_on */
    post_all();
    atomic {
        DIE;
        party = 0;
        if
        :: gone -> goto finished
        :: !gone && armed[BELL] & (1 << me) ->
            lock(); armed[BELL] = armed[BELL] & ~(1 << me); unlock()
        :: !gone && !(armed[BELL] & (1 << me)) ->
#ifndef BROKEN_KEEPS_RING
            lock(); freed++; unlock()
#endif
            skip
        fi
    }
    post_all();
    if
    :: leased[me] -> goto use
    :: else -> goto idle
    fi;

look: /* _tend: for the dead, the first time and after a slice */
    post_all();
    atomic {
        if
        :: TO_RECLAIM && !gone -> lock(); reclaim(); unlock()
        :: else
        fi;
        if
        :: QUIET -> goto try
        :: else
        fi
    }
    post_all();
    goto try;

got:
    post_all();
use:
    if
    :: atomic { MAY_DIE -> deaths++; goto died }
    :: atomic {
        lock_gets();
        if
        :: unsettled -> goto use_whole
        :: gone && !unsettled -> goto finished
        :: else
        fi;
        acknowledge();
#ifndef LIVENESS
        held = true
       }
       atomic {
        held = false; whole_ = false; freed = 1;
        DIE_INSIDE;
#endif
        unlock()
       }
    fi;
    goto used;
use_whole:
    atomic {
        lock();
        if
        :: gone -> goto finished
        :: else
        fi;
        acknowledge(); unlock()
    }
used:
    post_all();
    goto idle;

died:
    atomic {
        dead[me] = true;
        post[NOT_EMPTY] = 0; post[NOT_FULL] = 0; needed = 0; taken = false; sleepers = 0;
        ring = 0; party = 0
    }
finished:
    skip
}

/* mark_deleted */
proctype deleter()
{
    byte post[2], ring;

    atomic {
        lock();
        gone = true;
        DIE_INSIDE;
        unlock();
        post[NOT_EMPTY] = asleep[NOT_EMPTY];
        post[NOT_FULL] = asleep[NOT_FULL]
    }
    post_all();
died:
    skip
}

/* _returned_all of guardian.py, for each death that the kernel reports. */
active [GUARDIANS] proctype guardian()
{
    byte post[2], ring;

end_guardian:
    do
    :: atomic {
        TO_RECLAIM && !gone && !held && !putting ->
        guarding = true;
        lock(); reclaim(); unlock();
        do
        :: post[NOT_EMPTY] > 0 -> post_one(NOT_EMPTY); post[NOT_EMPTY]--
        :: post[NOT_FULL] > 0 -> post_one(NOT_FULL); post[NOT_FULL]--
        :: ring & 1 -> ring_one(0)
        :: ring & 2 -> ring_one(1)
        :: ring & 4 -> ring_one(2 % WORKERS)
        :: ring & 8 -> ring_one(3 % WORKERS)
        :: QUIET -> break
        od;
        guarding = false
    }
    od;
died:
    skip
}

/* A post by nobody: someone else's, or one that was left over. */
active [GHOSTS] proctype ghost()
{
    if
    :: atomic { post_one(NOT_EMPTY) }
    :: atomic { post_one(NOT_FULL) }
    :: true
    fi
}

init
{
    byte i;

    atomic {
        for (i : 0 .. WORKERS - 1) {
            attached[i] = true;
            run worker(i)
        }
        i = 0
    }
    if
    :: DELETERS > 0 -> run deleter()
    :: true
    fi;
    if
    :: DELETERS > 1 -> run deleter()
    :: true
    fi;
    calm = true
}

#ifdef LIVENESS
/* With one producer and one consumer: neither sleeps for ever beside what it waits for. */
#define PUTTER_STUCK (counted[0] && !dead[0] && (gone || stored + HELD < CAPACITY))
#define GETTER_STUCK (counted[1] && !dead[1] && (gone || stored > 0))

ltl awake { !(<> [] PUTTER_STUCK) && !(<> [] GETTER_STUCK) }
#endif
