/* The two sides of a queue and the rings between them: every message that is committed is
 * delivered, once, in order, and no slot is lost, whoever dies. README.md says which lines of
 * the code each step stands for; locks.pml has the locks themselves in their single steps.
 *
 * Puts under put_lock and gets under the lock run beside each other here, step by step.
 * What one side alone looks at is written in one step, and a death may come between any two
 * of these writes. */

#ifndef PUTTERS
#define PUTTERS 1
#endif
#ifndef GETTERS
#define GETTERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 4 /* that are put, altogether */
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef RING
#define RING 2
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 1
#endif

#define WORKERS (PUTTERS + GETTERS)
#define NOBODY 15
#define NONE 15

#define GETS 0
#define PUTS 1

#define FREE 0
#define READY 1
#define LEASED 2

/* ---- the truth: the slots ---- */

byte word[SLOTS];
byte seq[SLOTS];
byte owner[SLOTS];
byte last_seq;

/* ---- derived: the side of the gets, then that of the puts, then the rings ---- */

bool in_order[SLOTS];
bool in_free[SLOTS];
bool in_spare[SLOTS];
byte inbox[RING], inbox_head, inbox_tail;
byte returned[RING], returned_head, returned_tail;

/* ---- the locks ---- */

byte holder[2] = NOBODY;
bool owner_died[2];
bool unsettled;

/* ---- the run ---- */

bool dead[WORKERS];
byte deaths;
byte limbo = NONE;       /* the slot of a put that lives and has not returned */
bool acked[MESSAGES + 1];
hidden byte i, best;

#define MAY_DIE (deaths < MOST_DEATHS)
#define DIE if :: MAY_DIE -> goto killed :: true fi

inline die()
{
    atomic {
        deaths++;
        dead[me] = true;
        if
        :: holder[GETS] == me -> holder[GETS] = NOBODY; owner_died[GETS] = true
        :: else
        fi;
        if
        :: holder[PUTS] == me -> holder[PUTS] = NOBODY; owner_died[PUTS] = true; limbo = NONE
        :: else
        fi
    }
}

inline take(lock)
{
    atomic {
        holder[lock] == NOBODY;
        holder[lock] = me;
        if
        :: owner_died[lock] ->
            owner_died[lock] = false;
#ifndef BROKEN_NOT_WRITTEN_DOWN
            unsettled = true
#endif
        :: else
        fi
    }
}

inline drop(lock) { holder[lock] = NOBODY }

/* The first message in order that an index has, into `best`. */
inline first()
{
    best = NONE;
    for (i : 0 .. SLOTS - 1) {
        if
        :: in_order[i] && (best == NONE || seq[i] < seq[best]) -> best = i
        :: else
        fi
    }
}

/* shmq_inbox_take: `at` has the tail as it was read. */
inline take_inbox()
{
    do
    :: d_step {
        inbox_head + taken < tail ->
        i = inbox[(inbox_head + taken) % RING];
        assert(word[i] == READY && !in_order[i]);
        in_order[i] = true;
        taken++
       };
       DIE
    :: atomic { inbox_head + taken >= tail -> inbox_head = inbox_head + taken; taken = 0; break }
    od;
    DIE
}

/* shmq_rebuild */
inline rebuild()
{
    d_step {
        for (i : 0 .. SLOTS - 1) {
            in_order[i] = false; in_free[i] = false; in_spare[i] = false
        }
        inbox_head = 0; inbox_tail = 0; returned_head = 0; returned_tail = 0;
        for (i : 0 .. RING - 1) {
            inbox[i] = 0; returned[i] = 0
        }
    }
    DIE;
    d_step {
        for (i : 0 .. SLOTS - 1) {
            in_order[i] = (word[i] == READY);
            in_free[i] = (word[i] == FREE)
        }
    }
    DIE;
    unsettled = false;
    DIE
}

/* Of the whole queue: each slot is where its word says, and nowhere else. */
inline check()
{
    d_step {
        for (i : 0 .. SLOTS - 1) {
            best = in_free[i] + in_spare[i];
            if
            :: returned_head < returned_tail && returned[returned_head % RING] == i -> best++
            :: else
            fi;
            if
            :: returned_head + 1 < returned_tail && returned[(returned_head + 1) % RING] == i ->
                best++
            :: else
            fi;
            assert(best == (word[i] == FREE));
            assert(in_order[i] == (word[i] == READY))
        }
        assert(inbox_head == inbox_tail && returned_tail - returned_head <= RING);
        best = NONE
    }
}

/* shmq_lock: both locks, settle, the inbox */
inline lock_whole()
{
    take(GETS);
    DIE;
    take(PUTS);
    DIE;
    if
    :: unsettled -> rebuild()
    :: else
    fi;
#ifndef BROKEN_LEAVES_INBOX
    tail = inbox_tail;
    take_inbox();
    check();
#endif
    /* shmq_reclaim of all who are found dead */
    d_step {
        for (i : 0 .. SLOTS - 1) {
            if
            :: word[i] == LEASED && dead[owner[i]] ->
                word[i] = READY; owner[i] = 0; in_order[i] = true
            :: else
            fi
        }
    };
    DIE
}

inline unlock_whole()
{
    drop(PUTS);
    DIE;
    drop(GETS)
}

proctype putter(byte me)
{
    byte at = NONE, tail, taken;

again:
    at = NONE;
    if
    :: last_seq >= MESSAGES -> goto ended
    :: last_seq < MESSAGES
    fi;
    DIE;
    if
    :: goto quick
    :: goto whole
    fi;

quick: /* shmq_lock_puts, shmq_quick_put, shmq_unlock_puts */
    take(PUTS);
    DIE;
    if
    :: unsettled || last_seq >= MESSAGES || inbox_tail - inbox_head >= RING ->
        drop(PUTS); goto whole
    :: else
    fi;
    if /* next_spare */
    :: atomic { returned_head < returned_tail -> at = returned[returned_head % RING] };
       DIE;
       returned_head++
    :: atomic { returned_head == returned_tail ->
        best = NONE;
        for (i : 0 .. SLOTS - 1) {
            if
            :: in_spare[i] -> best = i
            :: else
            fi
        }
        if
        :: best == NONE -> drop(PUTS); goto whole
        :: else -> at = best; in_spare[at] = false; best = NONE
        fi
       }
    fi;
    DIE;
    assert(word[at] == FREE);
    last_seq++;
    DIE;
#ifdef BROKEN_PUBLISHED_FIRST
    atomic { inbox[inbox_tail % RING] = at; inbox_tail++ }
    DIE;
    atomic { seq[at] = last_seq; word[at] = READY }
#else
    atomic { seq[at] = last_seq; word[at] = READY; limbo = at } /* shmq_commit */
    DIE;
    atomic { inbox[inbox_tail % RING] = at; inbox_tail++ }
#endif
    DIE;
    atomic { drop(PUTS); limbo = NONE; at = NONE; goto again }

whole: /* shmq_put */
    lock_whole();
    if
    :: last_seq >= MESSAGES -> unlock_whole(); goto ended
    :: else
    fi;
    d_step { /* shmq_collect_returned */
        for (i : 0 .. SLOTS - 1) {
            if
            :: returned_head < returned_tail ->
                in_spare[returned[returned_head % RING]] = true; returned_head++
            :: else
            fi
        }
        best = NONE;
        for (i : 0 .. SLOTS - 1) {
            if
            :: in_free[i] || in_spare[i] -> best = i
            :: else
            fi
        }
        at = best;
        if
        :: at != NONE -> in_free[at] = false; in_spare[at] = false
        :: else /* SHMQ_FULL */
        fi;
        best = NONE
    }
    if
    :: at != NONE ->
        DIE;
        last_seq++;
        DIE;
        atomic { seq[at] = last_seq; word[at] = READY }
        DIE;
        in_order[at] = true;
        DIE
    :: else
    fi;
    at = NONE;
    unlock_whole();
    goto again;

killed:
    die();
ended:
    skip
}

proctype getter(byte me)
{
    byte at = NONE, tail, taken;
    bool both;

again:
    DIE;
    both = false;
    take(GETS); /* shmq_lock_gets */
    DIE;
    if
    :: unsettled -> drop(GETS); goto whole
    :: else
    fi;
    goto lease;

whole:
    lock_whole();
    both = true;

lease: /* shmq_lease */
    atomic { /* what is in an index is older than what is in the inbox */
        first();
        at = best;
        best = NONE;
        if
        :: at == NONE && inbox_head < inbox_tail -> tail = inbox_tail
        :: at == NONE && inbox_head == inbox_tail ->
            if /* SHMQ_EMPTY */
#ifdef BROKEN_EMPTY_ALONE
            :: true ->
#else
            :: both ->
#endif
                for (i : 0 .. SLOTS - 1) {
                    assert(word[i] != READY || i == limbo)
                }
                goto leave
#ifndef BROKEN_EMPTY_ALONE
            :: !both -> drop(GETS); goto whole
#endif
            fi
        :: at != NONE -> goto grant
        fi
    }
    take_inbox();
    goto lease;

grant:
    DIE;
    in_order[at] = false;
    DIE;
    d_step { /* the commit */
        for (i : 0 .. SLOTS - 1) {
            assert(word[i] != READY || seq[i] >= seq[at])
        }
        assert(word[at] == READY && !acked[seq[at]]);
        word[at] = LEASED; owner[at] = me
    }
leave:
    DIE;
    if
    :: both -> drop(PUTS); DIE
    :: else
    fi;
    drop(GETS);
    if
    :: at == NONE && last_seq >= MESSAGES -> goto ended
    :: at == NONE && last_seq < MESSAGES -> goto again
    :: at != NONE
    fi;

    DIE;
    take(GETS); /* it settles it, or gives it back */
    DIE;
    if
    :: unsettled -> drop(GETS); lock_whole(); both = true
    :: else -> both = false
    fi;
    if
    :: atomic { acked[seq[at]] = true; word[at] = FREE; owner[at] = 0 };
       DIE;
       if /* shmq_return_slot */
       :: returned_tail - returned_head < RING ->
           atomic { returned[returned_tail % RING] = at; returned_tail++ }
       :: else -> in_free[at] = true
       fi
    :: atomic { word[at] = READY; owner[at] = 0 };
       DIE;
       in_order[at] = true
    fi;
    at = NONE;
    goto leave;

killed:
    die();
ended:
    skip
}

init
{
    byte n;

    atomic {
        for (n : 0 .. SLOTS - 1) {
            in_free[n] = true
        }
        for (n : 0 .. PUTTERS - 1) {
            run putter(n)
        }
        for (n : PUTTERS .. WORKERS - 1) {
            run getter(n)
        }
        n = 0
    }
}
