/* The word of a lock between processes (base/mutex.h): taken, waited for, released, and taken over
 * from the dead, by processes that are killed at any step and come again under another number.
 * README.md says which lines of the code each step stands for.
 *
 * What the lock guards is one word that is torn while a holder is at work. Nobody may begin its work
 * on a torn word. Nobody may be inside beside a living holder. And where nobody died or gave up, no
 * sleeper needs the end of its slice: no wake is lost. */

#ifndef PROCESSES
#define PROCESSES 3
#endif
#ifndef MOST_DEATHS
#define MOST_DEATHS 2
#endif
#ifndef MOST_SLICES
#define MOST_SLICES 1 /* that end before anything came to rest */
#endif
#ifndef MOST_QUITS
#define MOST_QUITS 0  /* waits that are given up */
#endif

byte word;    /* the holder's number; 0: free */
bool awaited; /* the bit of the same word: what changes both is one step */
bool dead[PROCESSES + MOST_DEATHS + 1];
bool asleep[PROCESSES];
byte last, deaths, slices, quits, inside, gone;
bool torn, at_work;

#define MAY_DIE (deaths < MOST_DEATHS)

/* The kernel drops the record lock of a process that dies, and another one comes. */
inline die()
{
    deaths++;
    dead[number] = true;
    asleep[me] = false;
    if
    :: word == number -> inside--
    :: else
    fi;
#ifdef BROKEN_NUMBER_REUSED
    dead[number] = true;
    goto reborn
#elif defined(LIVENESS)
    gone++;
    goto died
#else
    goto again
#endif
}

#define DIE if :: atomic { MAY_DIE -> die() } :: true fi

/* What is not used any more is not told apart. */
#define FORGET seen = 0; marked = false

inline enter()
{
    inside++;
    assert(inside == 1)
}

proctype process(byte me)
{
    byte number, seen;
    bool marked;
#ifdef ROUNDS /* so that everything comes to rest */
    byte rounds;
#endif

again:
    atomic { last++; number = last }
    goto try;

#ifdef BROKEN_NUMBER_REUSED
reborn:
    dead[number] = false;
#endif

try: /* shmq_mutex_try */
    if
    :: atomic { word == 0 -> word = number; awaited = false; enter(); goto got }
    :: word != 0
    fi;

sleep: /* sleep_for */
    atomic {
        seen = word;
        marked = awaited;
        if
        :: seen == 0 -> goto slept
        :: seen != 0
        fi
    }
#ifndef BROKEN_NO_BIT
    if
    :: atomic { word == seen && awaited == marked -> awaited = true; marked = true }
    :: atomic { word != seen || awaited != marked -> FORGET; goto slept }
    fi;
#endif
    if /* FUTEX_WAIT: the kernel compares and puts to sleep in one step */
#ifdef BROKEN_SLEEPS_UNSEEN
    :: atomic { asleep[me] = true; FORGET }
#else
    :: atomic { word == seen && awaited == marked -> asleep[me] = true; FORGET }
    :: atomic { word != seen || awaited != marked -> FORGET; goto slept }
#endif
    fi;
    if
    :: !asleep[me]
    :: atomic { slices < MOST_SLICES -> slices++; asleep[me] = false }
    :: atomic { MAY_DIE -> die() }
#ifdef LIVENESS
    :: atomic { deaths > 0 -> asleep[me] = false }
#else
    :: atomic { timeout -> assert(deaths || quits); asleep[me] = false }
#endif
    fi;
    DIE;

slept: /* swap_in(0) */
    if
#ifdef BROKEN_TAKES_WITHOUT_BIT
    :: atomic { word == 0 -> word = number; awaited = false; enter(); goto got }
#else
    :: atomic { word == 0 -> word = number; awaited = true; enter(); goto got }
#endif
    :: word != 0
    :: atomic { word != 0 && quits < MOST_QUITS -> quits++; goto died }
    fi;

    /* judge */
#ifdef BROKEN_NEVER_JUDGES
    goto sleep;
#endif
    atomic {
        seen = word;
        marked = awaited;
        if
        :: seen == 0 -> goto sleep
        :: seen != 0
        fi
    }
    if
    :: dead[seen]
#ifdef BROKEN_ASKS_NOBODY
    :: !dead[seen] && seen != number
#else
    :: atomic { !dead[seen] -> FORGET; goto sleep }
#endif
    fi;
    if
#ifdef BROKEN_JUDGE_STORES
    :: atomic { true -> word = number; awaited = true; enter(); FORGET }
#elif defined(BROKEN_SWAPS_WHAT_IS_THERE)
    :: atomic { word != 0 -> word = number; awaited = true; enter(); FORGET }
    :: atomic { word == 0 -> FORGET; goto sleep }
#else
    :: atomic { word == seen && awaited == marked -> word = number; awaited = true; enter(); FORGET }
    :: atomic { word != seen || awaited != marked -> FORGET; goto sleep }
#endif
    fi;
#ifndef BROKEN_NOT_TOLD
    DIE;
    torn = true; /* what the caller does of SHMQ_INHERITED: from its beginning */
    DIE;
    torn = false;
#endif

got:
    DIE;
    assert(!torn);
    atomic { torn = true; at_work = true }
    DIE;
    atomic { torn = false; at_work = false }

    /* shmq_mutex_drop */
    atomic { marked = awaited; word = 0; awaited = false; inside-- }
    DIE;
    if
    :: atomic { marked && asleep[0] -> asleep[0] = false }
    :: atomic { marked && asleep[1] -> asleep[1] = false }
    :: atomic { marked && asleep[2 % PROCESSES] -> asleep[2 % PROCESSES] = false }
    :: atomic { !marked || !(asleep[0] || asleep[1] || asleep[2 % PROCESSES]) }
    fi;
    marked = false;
#ifdef ROUNDS
    rounds++;
    if
    :: rounds == ROUNDS -> goto died
    :: rounds != ROUNDS
    fi;
#endif
    goto try;

died:
    skip
}

init
{
    byte i;

    atomic {
        for (i : 0 .. PROCESSES - 1) {
            run process(i)
        }
    }
}

#define ALL_GONE (gone == PROCESSES)

/* As long as anyone lives, some work is begun and ended, again and again. Under weak fairness. */
ltl served { [] (<> ALL_GONE || (<> at_work && <> !at_work)) }
