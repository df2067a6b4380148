# ResourceWarning for leased objects that are dropped unsettled, like that for unclosed files.

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define shmq_interpreter_ends _Py_IsFinalizing
    #else
    #define shmq_interpreter_ends Py_IsFinalizing
    #endif

    static destructor shmq_free_message;                  /* as Cython made it */
    static Py_ssize_t shmq_settled_at;                    /* where `_settled` is in a Message */
    static void (*shmq_look_at_dropped)(PyObject *message);

    /* tp_dealloc of Message. A settled one costs one look at its flag: a __dealloc__ would
     * cost each message ten times that. One that is not settled lives while it is looked at,
     * and nothing may keep it. */
    static void shmq_end_message(PyObject *message)
    {
        PyObject *type, *value, *trace;

        if (!*(int *)((char *)message + shmq_settled_at)) {
            PyErr_Fetch(&type, &value, &trace);
            Py_SET_REFCNT(message, 1);
            shmq_look_at_dropped(message);
            Py_SET_REFCNT(message, Py_REFCNT(message) - 1);
            PyErr_Restore(type, value, trace);
        }
        shmq_free_message(message);
    }

    static void shmq_watch_messages(PyTypeObject *type, Py_ssize_t settled_at,
                                    void (*look)(PyObject *message))
    {
        shmq_settled_at = settled_at;
        shmq_look_at_dropped = look;
        shmq_free_message = type->tp_dealloc;
        type->tp_dealloc = shmq_end_message;
    }
    """
    int shmq_interpreter_ends()
    void shmq_watch_messages(object type, Py_ssize_t settled_at, void (*look)(object) noexcept)


def warn_dropped(str what, int frames=1):
    """Issue the ResourceWarning that ``what`` was dropped while it was leased.

    The warning names the line ``frames`` frames up. At the interpreter's exit none is issued.
    """
    if shmq_interpreter_ends():
        return
    _warnings.warn(
        f"{what} was dropped while it was leased, and comes back only when the lease ends or the "
        f"handle is closed: call ack(), nack() or reject(), or use it as a context manager",
        ResourceWarning, stacklevel=frames)
