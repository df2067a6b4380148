"""Patterns of topics, and which of many match a key.

A key is words separated by dots; one without characters has no word. In a pattern, ``*``
stands for one word and ``#`` for any number of them, none included. The patterns of an
exchange are one tree of words, so that a publish costs what its key's words and the
patterns near them cost, not what all patterns would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shmq.errors import InvalidOption

__all__ = ["LONGEST_KEY", "Target", "Topics", "check_key", "check_pattern", "words_of"]

#: The longest key, in bytes of UTF-8.
LONGEST_KEY: Final = 255

#: What a binding leads to: ``queue`` or ``exchange``, and its name.
Target = tuple[str, str]

_ONE, _ANY = "*", "#"


def check_key(key: str) -> str:
    """Return ``key`` if a message may be published with it.

    Raises :class:`InvalidOption`, and TypeError if it is no str.
    """
    if not isinstance(key, str):
        raise TypeError(f"key={key!r} must be a str, not {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidOption(f"key={key!a} cannot be encoded as UTF-8") from None
    if size > LONGEST_KEY:
        raise InvalidOption(f"key={key[:60]!r}… has {size} bytes, and may have {LONGEST_KEY}")
    return key


def check_pattern(pattern: str) -> str:
    """Return ``pattern`` if it is one. Raises what `check_key` raises."""
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
    """Where the patterns that begin with the same words have got to."""

    __slots__ = ("parent", "targets", "word", "words")

    def __init__(self, parent: _Node | None = None, word: str = "") -> None:
        self.parent = parent
        self.word = word
        #: The words that follow, ``*`` and ``#`` among them.
        self.words: dict[str, _Node] = {}
        #: What the patterns that end here lead to.
        self.targets: set[Target] = set()


class Topics:
    """The bindings of a topic exchange."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str, target: Target) -> None:
        """Lead what the pattern matches to the target."""
        node = self._root
        for word in words_of(pattern):
            found = node.words.get(word)
            if found is None:
                found = node.words[word] = _Node(node, word)
            node = found
        node.targets.add(target)

    def remove(self, pattern: str, target: Target) -> None:
        """Undo `add`; what is no longer needed of the tree goes."""
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
        """What the key leads to.

        All places in the tree that the words so far can have led to are followed at once, each
        once: the cost is bounded by words times places, however many ``#`` there are.
        """
        places = set(_without_a_word(self._root))
        for word in words_of(key):
            ahead: set[_Node] = set()
            for node in places:
                if node.word == _ANY:
                    ahead.add(node)
                for next_word in (word, _ONE):
                    found = node.words.get(next_word)
                    if found is not None and next_word != _ANY:
                        ahead.update(_without_a_word(found))
            places = ahead
        return {target for node in places for target in node.targets}


def _without_a_word(node: _Node | None) -> Iterator[_Node]:
    """The node, and where each ``#`` behind it leads that stands for no word."""
    while node is not None:
        yield node
        node = node.words.get(_ANY)
