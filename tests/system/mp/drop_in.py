"""A script written for multiprocessing: `drop_in.py METHOD`. The tests change its import.

Words are counted by some processes, and one of them is asked for more than there is.
"""

import multiprocessing
import queue
import sys
from multiprocessing.queues import JoinableQueue, Queue
from multiprocessing.synchronize import Event

WORDS = ["one", "two", "two", "three", "three", "three"] * 50


def count(tasks: "JoinableQueue[str]", results: "Queue[tuple[str, int]]", over: Event) -> None:
    while True:
        try:
            word = tasks.get(timeout=0.5)
        except queue.Empty:
            if over.is_set():
                break
            continue
        results.put((word, len(word)))
        tasks.task_done()
    results.close()
    results.join_thread()


def main() -> None:
    multiprocessing.set_start_method(sys.argv[1])
    tasks: JoinableQueue[str] = multiprocessing.JoinableQueue(10)
    results: Queue[tuple[str, int]] = multiprocessing.Queue()
    lock = multiprocessing.Lock()
    ready: multiprocessing.SimpleQueue[str] = multiprocessing.SimpleQueue()
    over = multiprocessing.Event()
    workers = [multiprocessing.Process(target=count, args=(tasks, results, over)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for word in WORDS:
        tasks.put(word)
    tasks.join()
    over.set()
    letters = sum(results.get()[1] for _ in WORDS)
    for worker in workers:
        worker.join()
    ready.put("done")
    with lock, multiprocessing.Pool(2) as pool:
        lengths = pool.map(len, WORDS)
    context = multiprocessing.get_context(sys.argv[1])
    more = context.Queue(maxsize=1)
    more.put(letters)
    try:
        more.put_nowait(0)
    except queue.Full:
        print(ready.get(), more.get(), sum(lengths), multiprocessing.current_process().name)


if __name__ == "__main__":
    main()
