# This process in a namespace, as its locks name it.

@cython.final
cdef class Process:
    """This process in one namespace: see core/base/process.h. Segments keep a reference to it.

    ``register()`` gives the process a number, and calls `enter`; it is called by a lock that finds
    none. The fields are of type shmq_process at the address ``address``.
    """

    cdef shmq_process c
    #| register: Callable[[], int]
    cdef readonly object register

    def __init__(self, register: Callable[[], int]):
        self.register = register
        self.c.fd = -1

    @property
    def address(self) -> int:
        """Where the fields are, for another module of the binding."""
        return <size_t>&self.c

    def enter(self, uint64_t number, uint64_t first, int fd):
        """The process has that number, from the namespace's file ``fd`` of first number ``first``."""
        self.c.first = first
        self.c.fd = fd
        self.c.number = number

    def leave(self):
        """The process has no number any more. To be called before its descriptor is closed."""
        self.c.number = 0
        self.c.fd = -1


# A process that exits deletes its exclusive queues. A daemon thread that uses one of them must not
# print an error then: it sleeps until the interpreter ends it, as in any other call.
cdef int _sleep_at_exit() except -1:
    util = _sys.modules.get("multiprocessing.util")  # an exclusive queue has loaded it
    if util is not None and util.is_exiting() and _threading.current_thread().daemon:
        while True:
            _time.sleep(60)
