"""The states in which a crash may leave a disk: all of them where that can be, else a choice."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.prove.powerloss.events import File
from tests.prove.powerloss.model import DIRECTORY, SECTOR, ZEROS, Content, DiskModel

#: What is read where nothing was written, if no deleted file left anything there.
NOISE = bytes(range(255, -1, -1)) * (SECTOR // 256)

#: How many directories are tried before some are drawn by lot.
MOST_NAMES = 256


@dataclass(frozen=True)
class State:
    """One disk after a crash: what each name holds, and which directories there are."""

    files: Mapping[str, bytes]
    directories: frozenset[str]

    @cached_property
    def digest(self) -> bytes:
        whole = hashlib.blake2b(digest_size=16)
        for path in sorted(self.directories):
            whole.update(path.encode() + b"\0")
        for path, content in sorted(self.files.items()):
            whole.update(path.encode() + b"\0" + len(content).to_bytes(8, "little"))
            whole.update(content)
        return whole.digest()


@dataclass(frozen=True)
class Choice:
    """The states of one crash; ``complete`` if there are no others."""

    states: list[State]
    complete: bool


def crash_states(model: DiskModel, most: int, chance: random.Random) -> Choice:
    """What may be found if the power fails now: all of it if that is at most ``most`` states.

    If it is more: each file's variants with all others as they would be had everything
    been written, and had nothing been, for each of the possible directories; then what
    the lot says, until there are ``most`` of them.
    """
    names, every_name = _namings(model, chance)
    files = {file for naming in names for file in naming.values() if file != DIRECTORY}
    variants = {
        file: variants_of(model.contents[file], model.stale, most, chance) for file in files
    }
    all_of_each = every_name and all(found.complete for found in variants.values())
    total = sum(
        math.prod(len(variants[file].contents) for file in naming.values() if file)
        for naming in names
    )
    if total <= most:
        states = [state for naming in names for state in _product(naming, variants)]
        return Choice(states, all_of_each)
    extremes = itertools.chain.from_iterable(_extremes(naming, variants) for naming in names)
    drawn = (_drawn(chance.choice(names), variants, chance) for _ in itertools.repeat(None))
    wanted = _shuffled(extremes, 2 * most, chance)[: max(most // 2, 1)]
    found = {state.digest: state for state in wanted}
    for state in itertools.islice(drawn, 4 * most):
        if len(found) >= most:
            break
        found.setdefault(state.digest, state)
    return Choice(list(found.values()), complete=False)


def _shuffled(states: Iterator[State], most: int, chance: random.Random) -> list[State]:
    some = list(itertools.islice(states, most))
    chance.shuffle(some)
    return some


def _namings(model: DiskModel, chance: random.Random) -> tuple[list[dict[str, File]], bool]:
    """Each directory that there may be, once; whether these are all."""
    count = len(model.entries)
    if 2**count <= MOST_NAMES:
        chosen: Iterator[tuple[bool, ...]] = itertools.product((True, False), repeat=count)
    else:
        chosen = itertools.chain(
            _one_by_one(count),
            (tuple(chance.random() < 0.5 for _ in range(count)) for _ in range(MOST_NAMES)),
        )
    found = {}
    for each in chosen:
        naming = model.names_with(list(each))
        found[frozenset(naming.items())] = naming
    return list(found.values()), 2**count <= MOST_NAMES


def _one_by_one(count: int) -> Iterator[tuple[bool, ...]]:
    """All, none, the first n, all but one, and one alone."""
    for n in range(count + 1):
        yield tuple(at < n for at in range(count))
    for n in range(count):
        yield tuple(at != n for at in range(count))
        yield tuple(at == n for at in range(count))


@dataclass(frozen=True)
class Variants:
    """The contents that one file may have: everything written comes first, nothing last."""

    contents: list[bytes]
    complete: bool


def variants_of(
    content: Content, stale: Mapping[int, bytes], most: int, chance: random.Random
) -> Variants:
    """All contents if there are at most ``most``; else the systematic ones, and drawn ones."""
    order = sorted(content.sectors, key=lambda index: (content.sectors[index].at, index))
    options = [len(content.sizes), *(content.sectors[index].options for index in order)]
    total = math.prod(options)
    found: dict[bytes, None] = {}
    chosen: Iterator[tuple[int, ...]]
    if total <= most:
        chosen = itertools.product(*(range(n - 1, -1, -1) for n in options))
    else:
        few = itertools.chain(_systematic(options), _random(options, chance))
        chosen = itertools.islice(few, 4 * most)
    for each in chosen:
        picked = dict(zip(order, each[1:], strict=True))
        for shown in (None, stale) if _shows_stale(content, picked) else (None,):
            found.setdefault(_content(content, content.sizes[each[0]], picked, shown))
        if total > most and len(found) >= most:
            break
    return Variants(list(found), total <= most)


def _systematic(options: list[int]) -> Iterator[tuple[int, ...]]:
    """Everything, nothing, the first n alone, all but one, one alone, all but two."""
    count = len(options)
    last = [n - 1 for n in options]
    for n in range(count, -1, -1):
        yield tuple(last[at] if at < n else 0 for at in range(count))
    for n in range(count):
        for old in range(last[n]):
            yield tuple(old if at == n else last[at] for at in range(count))
        for new in range(1, options[n]):
            # The length, which is the first, hides all others if it is the old one.
            yield tuple(new if at == n else last[0] if at == 0 else 0 for at in range(count))
    for one, two in itertools.combinations(range(count), 2):
        yield tuple(0 if at in {one, two} else last[at] for at in range(count))


def _random(options: list[int], chance: random.Random) -> Iterator[tuple[int, ...]]:
    while True:
        share = chance.choice((0.1, 0.5, 0.9))
        yield tuple(n - 1 if chance.random() < share else chance.randrange(n) for n in options)


def _shows_stale(content: Content, picked: Mapping[int, int]) -> bool:
    return any(content.sectors[index].fresh and not number for index, number in picked.items())


def _content(
    content: Content, size: int, picked: Mapping[int, int], stale: Mapping[int, bytes] | None
) -> bytes:
    whole = bytearray(content.stable[:size].ljust(size, b"\0"))
    for index, number in picked.items():
        begin = index * SECTOR
        if begin < size:
            sector = content.sectors[index]
            part = sector.disk[number]
            if stale is not None and sector.fresh and part == ZEROS:
                part = stale.get(index, NOISE)
            whole[begin : min(begin + SECTOR, size)] = part[: size - begin]
    return bytes(whole)


def _product(naming: Mapping[str, File], variants: Mapping[File, Variants]) -> Iterator[State]:
    directories, files = _split(naming)
    # Two names of one file have one content.
    distinct = sorted(set(files.values()))
    for contents in itertools.product(*(variants[file].contents for file in distinct)):
        held = dict(zip(distinct, contents, strict=True))
        yield State({path: held[file] for path, file in files.items()}, directories)


def _extremes(naming: Mapping[str, File], variants: Mapping[File, Variants]) -> Iterator[State]:
    """Each variant of each file, with all others whole, and with all others as of the last sync."""
    directories, files = _split(naming)
    for end in (0, -1):
        base = {file: variants[file].contents[end] for file in files.values()}
        for varied in base:
            for content in variants[varied].contents:
                held = base | {varied: content}
                yield State({path: held[file] for path, file in files.items()}, directories)


def _drawn(
    naming: Mapping[str, File], variants: Mapping[File, Variants], chance: random.Random
) -> State:
    directories, files = _split(naming)
    held = {file: chance.choice(variants[file].contents) for file in set(files.values())}
    return State({path: held[file] for path, file in files.items()}, directories)


def _split(naming: Mapping[str, File]) -> tuple[frozenset[str], dict[str, File]]:
    directories = frozenset(path for path, file in naming.items() if file == DIRECTORY)
    return directories, {path: file for path, file in naming.items() if file != DIRECTORY}
