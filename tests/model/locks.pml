/* The two locks of a queue: robust mutexes, their holders killed at any step, also while they
 * recover. README.md says which lines of the code each step stands for.
 *
 * What each mutex guards is one word that is torn while a holder is at work. Nobody may begin
 * its work on a torn word. Whoever takes the whole queue works on both. In the code a wait
 * for a mutex ends after its slice, and is begun anew; here nobody gives up, so that an order
 * of the locks in which they wait for each other is found. */

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 2
#endif
#define NOBODY 255

#define GETS 0
#define PUTS 1

mtype = { WELL, OWNER_DIED, LOST }; /* LOST: not recoverable, whoever comes is refused */

byte holder[2] = NOBODY;
mtype mutex[2] = WELL;
bool torn[2];
bool unsettled; /* a holder died, and the indexes are not rebuilt yet */
byte inside[2], deaths;
bool hung, at_work;     /* at_work: what was said last, at the beginning and the end of a work */
bool dead[WORKERS];

#define MAY_DIE (deaths < MOST_DEATHS)

/* The kernel walks the list of robust mutexes of a thread that dies. */
inline leave_to_kernel(lock)
{
    if
    :: holder[lock] == me ->
#ifndef BROKEN_NOT_ROBUST
        holder[lock] = NOBODY; mutex[lock] = OWNER_DIED;
#endif
        inside[lock]--
    :: else
    fi
}

inline die()
{
    deaths++;
    dead[me] = true;
    leave_to_kernel(GETS);
    leave_to_kernel(PUTS);
    goto died
}

#define DIE if :: atomic { MAY_DIE -> die() } :: true fi

/* take, take_until, and then inherit */
inline take(lock)
{
    if
    :: atomic { mutex[lock] == LOST -> hung = true; goto died }
    :: atomic { holder[lock] == NOBODY && mutex[lock] != LOST ->
                holder[lock] = me; inside[lock]++ }
    fi;
    if
    :: mutex[lock] == OWNER_DIED ->
#ifdef BROKEN_SETTLED_TOO_SOON
        unsettled = false;
#else
        unsettled = true;
#endif
        DIE;
#ifndef BROKEN_NEVER_CONSISTENT
        mutex[lock] = WELL /* pthread_mutex_consistent */
#endif
    :: else
    fi
}

inline drop(lock)
{
    atomic {
        holder[lock] = NOBODY; inside[lock]--;
        if
        :: mutex[lock] == OWNER_DIED -> mutex[lock] = LOST
        :: else
        fi
    }
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

whole: /* shmq_lock */
#ifdef BROKEN_ORDER
    if
    :: me == 0 -> take(PUTS); DIE; take(GETS)
    :: me != 0 -> take(GETS); DIE; take(PUTS)
    fi;
#else
    take(GETS);
    DIE;
    take(PUTS);
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

/* Nobody is refused, and as long as anyone lives, some work is begun and ended, again and
 * again. Under weak fairness: whoever can go on does. */
ltl served { [] !hung && (<> ALL_DEAD || ([] <> at_work && [] <> !at_work)) }
