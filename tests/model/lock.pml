/* The lock of a queue: a robust mutex, its holders killed at any step, also while they recover.
 * README.md says which lines of the code each step stands for.
 *
 * What the mutex guards is one word that is torn while a holder is at work. Nobody may begin
 * its work on a torn word. */

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 2
#endif
#define NOBODY 255

mtype = { WELL, OWNER_DIED, LOST }; /* LOST: not recoverable, whoever comes is refused */

byte holder = NOBODY;
mtype mutex = WELL;
bool torn;
byte inside, deaths;
bool hung;
bool dead[WORKERS];

#define MAY_DIE (deaths < MOST_DEATHS)

/* The kernel walks the list of robust mutexes of a thread that dies. */
inline die()
{
    deaths++;
    dead[me] = true;
    if
    :: holder == me ->
#ifndef BROKEN_NOT_ROBUST
        holder = NOBODY; mutex = OWNER_DIED;
#endif
        inside--
    :: else
    fi;
    goto died
}

#define DIE if :: atomic { MAY_DIE -> die() } :: true fi

proctype worker(byte me)
{
    bool owner_died;

again:
    DIE;
    /* shmq_lock, shmq_lock_slowly: who does not get it in its slice tries again */
    do
    :: atomic { mutex == LOST -> hung = true; goto died }
    :: atomic { holder == NOBODY && mutex != LOST ->
                holder = me; inside++;
                owner_died = (mutex == OWNER_DIED);
                break }
    :: atomic { holder != NOBODY -> skip } /* SHMQ_BUSY */
    od;
    if
    :: owner_died -> /* settle: recover */
#ifndef BROKEN_NO_RECOVERY
        DIE;
        torn = true; /* shmq_recover, from its beginning, whoever died in it before */
        DIE;
        torn = false;
        DIE;
#endif
#ifndef BROKEN_NEVER_CONSISTENT
        mutex = WELL; /* pthread_mutex_consistent */
#endif
        owner_died = false
    :: else
    fi;
    DIE;
work:
    assert(inside == 1 && holder == me);
    assert(!torn);
    torn = true;
    DIE;
    torn = false;
    DIE;
    atomic { /* drop */
        holder = NOBODY; inside--;
        if
        :: mutex == OWNER_DIED -> mutex = LOST
        :: else
        fi
    }
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

/* Nobody is refused, and as long as anyone lives, someone gets in, again and again, and
 * leaves. Under weak fairness: whoever can go on does. */
ltl served { [] !hung && (<> ALL_DEAD || ([] <> (inside == 1) && [] <> (inside == 0))) }
