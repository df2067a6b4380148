/* The two locks of a queue, their holders killed at any step, also while they recover. A lock is
 * one step here: mutex.pml has its own. README.md says which lines of the code each step stands for.
 *
 * What each mutex guards is one word that is torn while a holder is at work. Nobody may begin
 * its work on a torn word. Whoever takes the whole queue works on both. In the code a wait
 * for a mutex ends after its slice, and is begun anew; here nobody gives up, so that an order
 * of the locks in which they wait for each other is found. Where a put may be stopped for ever,
 * a wait ends once everything has come to rest. */

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 2
#endif
#ifndef MOST_STOPS
#define MOST_STOPS 0
#endif
#define NOBODY 255

#define GETS 0
#define PUTS 1

byte holder[2] = NOBODY;
bool left[2]; /* by a dead holder: the next one is told */
bool torn[2];
bool unsettled; /* a holder died, and the indexes are not rebuilt yet */
byte inside[2], deaths, stops;
bool at_work;           /* at_work: what was said last, at the beginning and the end of a work */
bool dead[WORKERS];

#define MAY_DIE (deaths < MOST_DEATHS)

/* A waiter finds no record lock of a process that died. */
inline leave(lock)
{
    if
    :: holder[lock] == me ->
#ifndef BROKEN_NOT_JUDGED
        holder[lock] = NOBODY; left[lock] = true;
#endif
        inside[lock]--
    :: else
    fi
}

inline die()
{
    deaths++;
    dead[me] = true;
    leave(GETS);
    leave(PUTS);
    goto died
}

#define DIE if :: atomic { MAY_DIE -> die() } :: true fi

/* What a put does that is stopped for ever: it keeps its lock, and nobody may take over. */
#if MOST_STOPS
#define STOP if :: atomic { stops < MOST_STOPS -> stops++; goto died } :: true fi
#else
#define STOP
#endif

#define TAKEN(lock) atomic { holder[lock] == NOBODY -> holder[lock] = me; inside[lock]++; \
                             heir = left[lock]; left[lock] = false }

inline inherit(lock)
{
    if
    :: heir ->
        DIE;
#ifdef BROKEN_SETTLED_TOO_SOON
        unsettled = false;
#else
        unsettled = true;
#endif
        heir = false
    :: else
    fi
}

inline take(lock)
{
    if
    :: TAKEN(lock)
#if MOST_STOPS
    :: timeout -> give_up(lock)
#endif
    fi;
    inherit(lock)
}

inline drop(lock)
{
    atomic { holder[lock] = NOBODY; inside[lock]-- }
}

/* Nothing else can happen: then a stopped put has its lock, and only those wait that need it. */
inline give_up(lock)
{
    assert(stops && lock == PUTS);
    if
    :: holder[GETS] == me -> drop(GETS)
    :: else
    fi;
    goto again
}

inline work_on(lock)
{
    assert(inside[lock] == 1 && holder[lock] == me);
    assert(!torn[lock]);
    atomic { torn[lock] = true; at_work = true }
    DIE;
    atomic { torn[lock] = false; at_work = false }
    DIE
}

proctype worker(byte me)
{
    bool heir;

again:
    DIE;
    if
    :: goto whole
    :: goto puts
    :: goto gets
    fi;

puts: /* shmq_lock_puts */
    take(PUTS);
    DIE;
    STOP;
    if
    :: unsettled -> drop(PUTS); goto whole
    :: else
    fi;
    work_on(PUTS);
    drop(PUTS);
    goto again;

gets: /* shmq_lock_gets */
    take(GETS);
    DIE;
#ifndef BROKEN_GETS_GO_ON
    if
    :: unsettled -> drop(GETS); goto whole
    :: else
    fi;
#endif
    work_on(GETS);
    drop(GETS);
    goto again;

whole: /* take_both */
#ifdef BROKEN_ORDER /* and what was taken is kept */
    if
    :: me == 0 -> take(PUTS); DIE; take(GETS)
    :: me != 0 -> take(GETS); DIE; take(PUTS)
    fi;
#else
    take(GETS);
    DIE;
#ifdef BROKEN_KEEPS_GETS
    take(PUTS);
#else
    if /* without a wait */
    :: TAKEN(PUTS)
    :: holder[PUTS] != NOBODY -> drop(GETS); goto wait
    fi;
    inherit(PUTS);
#endif
#endif
    if
    :: unsettled -> /* settle: recover */
#ifndef BROKEN_NO_RECOVERY
        DIE;
        torn[GETS] = true; torn[PUTS] = true; /* from its beginning, whoever died in it before */
        DIE;
        torn[GETS] = false;
        DIE;
        torn[PUTS] = false;
        DIE;
#endif
        unsettled = false
    :: else
    fi;
    work_on(GETS);
    work_on(PUTS);
    drop(PUTS);
    DIE;
    drop(GETS);
    goto again;

wait: /* in take_both: until the lock of the puts is free; then both are taken anew */
    DIE;
#ifdef LIVENESS /* had and dropped in one step, but for a dead holder's */
    if
    :: holder[PUTS] == NOBODY && !left[PUTS] -> goto whole
    :: left[PUTS]
    fi;
#endif
#ifdef BROKEN_HIDES_DEATH
    if
    :: TAKEN(PUTS)
    fi;
    heir = false;
#else
    take(PUTS);
#endif
    DIE;
    drop(PUTS);
    goto whole;

died:
    skip
}

init
{
    byte i;

    atomic {
        for (i : 0 .. WORKERS - 1) {
            run worker(i)
        }
    }
}

#define ALL_DEAD (dead[0] && dead[1] && dead[2 % WORKERS])

/* As long as anyone lives, some work is begun and ended, again and again. Under weak fairness:
 * a process that can go on does. */
ltl served { <> ALL_DEAD || ([] <> at_work && [] <> !at_work) }
