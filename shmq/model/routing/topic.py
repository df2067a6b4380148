"""Matches keys against the patterns of a topic exchange.

A key is words separated by dots; an empty key has no words. In a pattern, ``*`` stands for one
word and ``#`` for any number of them, including none. The patterns of an exchange are one tree
of words, so the cost of a publish depends on its key's words and similar patterns, not on the
number of patterns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shmq.errors import InvalidOption, to_utf8

#: The longest key, in bytes of UTF-8.
LONGEST_KEY: Final = 255

#: The target of a binding: ``queue``, ``stream`` or ``exchange``, and its name.
Target = tuple[str, str]

_ONE, _ANY = "*", "#"


def check_key(key: str) -> str:
    """Return ``key`` if a message may be published with it.

    Raises :class:`InvalidOption`, and TypeError if it is not a str.
    """
    if not isinstance(key, str):
        raise TypeError(f"key={key!r} must be a str, not {type(key).__name__}")
    size = len(to_utf8("key", key))
    if size > LONGEST_KEY:
        raise InvalidOption(f"key={key[:60]!r}… has {size} bytes, and may have {LONGEST_KEY}")
    return key


def check_pattern(pattern: str) -> str:
    """Return ``pattern`` if it is valid. Raises what `check_key` raises."""
    for word in words_of(check_key(pattern)):
        if len(word) > 1 and (_ONE in word or _ANY in word):
            raise InvalidOption(
                f"key={pattern!r}: * and # stand for whole words, and {word!r} has one within: "
                f"write a word, * or # between two dots"
            )
    return pattern


def words_of(key: str) -> list[str]:
    """The words of a key or a pattern."""
    return key.split(".") if key else []


class _Node:
    """A node of the tree: patterns that begin with the same words."""

    __slots__ = ("parent", "targets", "word", "words")

    def __init__(self, parent: _Node | None = None, word: str = "") -> None:
        self.parent = parent
        self.word = word
        #: The next words, including ``*`` and ``#``.
        self.words: dict[str, _Node] = {}
        #: The targets of the patterns that end here.
        self.targets: set[Target] = set()


class Topics:
    """The bindings of a topic exchange."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str, target: Target) -> None:
        """Add a binding: messages whose key matches the pattern go to the target."""
        node = self._root
        for word in words_of(pattern):
            found = node.words.get(word)
            if found is None:
                found = node.words[word] = _Node(node, word)
            node = found
        node.targets.add(target)

    def remove(self, pattern: str, target: Target) -> None:
        """Undo `add`, and remove nodes that are no longer needed."""
        node: _Node | None = self._root
        for word in words_of(pattern):
            node = node.words.get(word) if node is not None else None
        if node is None:
            return
        node.targets.discard(target)
        while node.parent is not None and not node.targets and not node.words:
            del node.parent.words[node.word]
            node = node.parent

    def match(self, key: str) -> set[Target]:
        """The targets of the key.

        Follows all nodes that the words so far can reach at the same time, each once: the cost is
        bounded by words times nodes, however many ``#`` there are.
        """
        places = set(_skip_word(self._root))
        for word in words_of(key):
            ahead: set[_Node] = set()
            for node in places:
                if node.word == _ANY:
                    ahead.add(node)
                for next_word in (word, _ONE):
                    found = node.words.get(next_word)
                    if found is not None and next_word != _ANY:
                        ahead.update(_skip_word(found))
            places = ahead
        return {target for node in places for target in node.targets}


def _skip_word(node: _Node | None) -> Iterator[_Node]:
    """The node, and the nodes after it that a ``#`` for no words reaches."""
    while node is not None:
        yield node
        node = node.words.get(_ANY)
