"""Changes by forms: what would happen is shown first, and done when that is confirmed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

import shmq
from shmq.api.names import shown_name
from shmq.api.options import Option, QueueOptions, options_of
from shmq.api.properties import PROPERTIES
from shmq.extras.console.api.messages import NewMessage, properties_of
from shmq.extras.console.pages.rendering import amount, as_text, number, option
from shmq.extras.console.pages.visit import MOST_WHERE, Redirect, Shown, Visit, page
from shmq.extras.console.problem import Problem
from shmq.extras.console.request_checks import check_change_allowed
from shmq.protocol.opcodes import Right
from shmq.units import seconds_of, size_of

#: The fields of the form that puts a message, besides its body, with their labels.
_FIELDS: Final = {name: row.label for name, row in PROPERTIES.items() if row.label}
_ENCODINGS: Final = ("json", "text", "base64")


def _check_allowed(visit: Visit, right: Right) -> str:
    """The name of the queue. Raises Problem where it cannot be changed."""
    check_change_allowed(visit.console)
    visit.need(right, "queue", visit["name"])
    return visit["name"]


def _make_path(name: str, *rest: str) -> str:
    return "/".join(("/queues", quote(name, safe=""), *rest))


def _confirm(name: str, verb: str, facts: list[str], **values: Any) -> Shown:
    back = values.pop("back", _make_path(name))
    return Shown(
        "confirm.html",
        {"name": name, "verb": verb, "facts": facts, "action": _make_path(name, verb), "back": back,
         "possible": True, "hidden": {}, **values},
    )  # fmt: skip


def _check_identity(visit: Visit, name: str) -> None:
    """Raise Problem if the queue is another than the one that was shown."""
    with visit.console.broker.queue(name) as queue:
        if str(queue.identity) != visit.form.get("identity", ""):
            raise Problem(
                409, "exists", f"queue {name!r} was recreated since it was shown: look at it again"
            )


# ---- purge and delete ----


@page("/queues/{name}/purge")
def ask_purge(visit: Visit) -> Shown:
    """What a purge would remove."""
    name = _check_allowed(visit, Right.ADMIN)
    with visit.console.broker.queue(name) as queue:
        stats, identity = queue.stats(), queue.identity
    count = stats.depth + stats.delayed
    facts = [
        (
            f"{amount(stats.depth, 'waiting message')} and "
            f"{amount(stats.delayed, 'delayed message')} are removed for good."
        ),
        f"{amount(stats.in_flight, 'leased message')} stay with who holds them.",
    ]
    return _confirm(
        name,
        "purge",
        facts,
        label=f"Remove {amount(count, 'message')}",
        possible=count > 0,
        hidden={"identity": str(identity)},
    )


@page("/queues/{name}/purge", "POST")
def purge(visit: Visit) -> Redirect:
    """Remove the waiting and the delayed messages."""
    name = _check_allowed(visit, Right.ADMIN)
    _check_identity(visit, name)
    visit.perform("purge_queue", {}, name=name)
    return Redirect(_make_path(name))


@page("/queues/{name}/delete")
def ask_delete(visit: Visit) -> Shown:
    """What a deletion would remove."""
    name = _check_allowed(visit, Right.ADMIN)
    try:
        with visit.console.broker.queue(name) as queue:
            stats, identity = queue.stats(), str(queue.identity)
            handles = len([one for one in queue.attachments() if one.alive]) - 1
    except shmq.SegmentError as error:
        return _confirm(
            name, "delete", [f"It cannot be used: {error}"], label="Delete the queue",
            hidden={"identity": ""},
        )  # fmt: skip
    total = stats.depth + stats.delayed + stats.in_flight
    facts = [
        f"The queue and {amount(total, 'message')} in it are removed for good.",
        (f"{amount(max(handles, 0), 'handle')} of processes are attached; their next call fails."),
        "Its dead-letter queue stays.",
    ]
    return _confirm(name, "delete", facts, label="Delete the queue", hidden={"identity": identity})


@page("/queues/{name}/delete", "POST")
def delete(visit: Visit) -> Redirect:
    """Delete the queue."""
    name = _check_allowed(visit, Right.ADMIN)
    if visit.form.get("identity"):
        _check_identity(visit, name)
    visit.perform("delete_queue", name=name)
    return Redirect("/queues")


# ---- alter ----

#: The prefix of the form's fields with the values that were shown: what differs was changed.
_WAS: Final = "was."
#: How a value is parsed, and an example of one; a choice and a name are used unchanged.
_TYPED: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "count": (lambda text: int(text) if re.fullmatch("[0-9]{1,18}", text) else None, "9"),
    "bytes": (size_of, "4096, 64KiB or 16MiB"),
    "seconds": (seconds_of, "30, 500ms, 5m or 2h"),
}
_MOST_PROBLEM: Final = 500


@page("/queues/{name}/alter")
def ask_alter(visit: Visit) -> Shown:
    """The form with the options of the queue."""
    name = _check_allowed(visit, Right.ADMIN)
    with visit.console.broker.queue(name) as queue:
        return _make_options_form(queue, {}, None)


@page("/queues/{name}/alter", "POST")
def alter(visit: Visit) -> Shown | Redirect:
    """Show which options would be altered, or alter them once that was confirmed."""
    name = _check_allowed(visit, Right.ADMIN)
    _check_identity(visit, name)
    with visit.console.broker.queue(name) as queue:
        try:
            changed = _parse_options(visit.form)
            if visit.form.get("step") != "alter":
                return _make_alteration(queue, changed, visit.form)
            visit.perform("alter_queue", changed, name=name)
        except (Problem, shmq.InvalidOption, TypeError) as error:
            return _make_options_form(queue, visit.form, str(error)[:_MOST_PROBLEM])
    return Redirect(_make_path(name))


def _make_options_form(queue: shmq.Queue, given: Mapping[str, str], problem: str | None) -> Shown:
    options, fields, fixed = queue.options, [], []
    for key, row in options_of(QueueOptions).items():
        value, why = getattr(options, key), options.why_fixed(key)
        if why:
            fixed.append((key, value, why))
        elif row.changed_by:
            was = given.get(_WAS + key, _as_field(value))
            fields.append((key, row, was, given.get(key, was)))
    facts = {"name": queue.name, "problem": problem, "fields": fields, "fixed": fixed}
    identity = given.get("identity", str(queue.identity))
    return Shown("alter.html", {**facts, "was": _WAS, "identity": identity})


def _make_alteration(queue: shmq.Queue, changed: dict[str, Any], form: Mapping[str, str]) -> Shown:
    options = queue.options
    differences = options.differences(options.altered(queue.name, changed))
    facts = [
        f"{key} changes from {option(old)} to {option(new)}."
        for key, (old, new) in differences.items()
    ]
    return _confirm(
        queue.name,
        "alter",
        facts or ["The queue has these options already."],
        label=f"Alter {amount(len(facts), 'option')}",
        possible=bool(facts),
        hidden={"identity": str(queue.identity), "step": "alter"}
        | {key: form[key] for key in changed},
    )


def _as_field(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _parse_options(form: Mapping[str, str]) -> dict[str, Any]:
    """The options that the user changed. Raises Problem that names the option."""
    changed = {}
    for key, row in options_of(QueueOptions).items():
        text, was = form.get(key), form.get(_WAS + key)
        if text is None or text == was:
            continue
        value = _parse_option(key, row, text)
        if was is None or not row.is_same(value, _parse_option(key, row, was)):
            changed[key] = value
    return changed


def _parse_option(key: str, row: Option, text: str) -> Any:
    text = text.strip()
    if row.none and text.lower() == "none":
        return None
    if row.kind not in _TYPED:
        return text
    parse, example = _TYPED[row.kind]
    value = parse(text)
    if value is None:
        others = " or none" if row.none else ""
        raise Problem.invalid(f"{key} must be a value such as {example}{others}, not {text[:80]!r}")
    return value


# ---- redrive ----


@page("/queues/{name}/redrive")
def ask_redrive(visit: Visit) -> Shown:
    """How many dead letters a redrive would send back."""
    name = _check_allowed(visit, Right.ADMIN)
    where = visit.text("where")
    found = visit.ask("count_redrive", name=name, where=where)
    count = amount(found.count, "dead letter")
    facts = [
        (
            f"{'More than ' if found.more else ''}{count} of {shown_name(name)} would go back to "
            f"the queue that each came from, the oldest first."
        ),
        f"Only those for which this holds: {where}" if where else "All of them.",
    ]
    if found.more:
        facts.append(f"The count ends at the first {found.count:,}; the redrive does not.")
    return _confirm(
        name,
        "redrive",
        facts,
        label=f"Send back more than {count}" if found.more else f"Send back {count}",
        possible=found.count > 0,
        hidden={"where": where or ""},
        back="/dead-letters",
    )


@page("/queues/{name}/redrive", "POST")
def redrive(visit: Visit) -> Redirect:
    """Send dead letters back."""
    name = _check_allowed(visit, Right.ADMIN)
    where = visit.form.get("where", "")[:MOST_WHERE]
    visit.perform("redrive_queue", {"where": where or None}, name=name)
    return Redirect("/dead-letters")


# ---- put ----


@page("/queues/{name}/put")
def ask_put(visit: Visit) -> Shown:
    """The form for a message."""
    name = _check_allowed(visit, Right.PRODUCE)
    return _make_form(name, {}, None)


@page("/queues/{name}/put", "POST")
def put(visit: Visit) -> Shown | Redirect:
    """Show what would be put, or put it once that was confirmed."""
    name = _check_allowed(visit, Right.PRODUCE)
    try:
        message = _parse_message(visit.form)
        body, properties = properties_of(message)
    except Problem as problem:
        return _make_form(name, visit.form, str(problem))
    if visit.form.get("step") != "put":
        return _make_preview(visit, name, body, properties)
    content = msgspec.json.encode(message)
    done = visit.perform("put_messages", ("application/json", content), name=name)
    (sequence,) = done["sequences"]
    if visit.reads(name):
        return Redirect(_make_path(name, f"messages?put={sequence}"))
    return Redirect(_make_path(name))


def _make_form(name: str, given: Mapping[str, str], problem: str | None) -> Shown:
    facts = {"name": name, "encodings": _ENCODINGS, "given": given, "problem": problem}
    return Shown("put.html", {**facts, "fields": _FIELDS})


def _make_preview(visit: Visit, name: str, body: Any, properties: Mapping[str, Any]) -> Shown:
    text = body.decode("latin-1") if isinstance(body, bytes) else body
    if not isinstance(text, str):
        text = json.dumps(text, indent=2, ensure_ascii=False)
    with visit.console.broker.queue(name) as queue:
        stats = queue.stats()
    facts = [
        (
            f"One message is put into {shown_name(name)}, which has "
            f"{amount(stats.depth, 'message')} waiting and room for "
            f"{number(stats.capacity)}."
        ),
        *(f"{key}: {as_text(str(value))}" for key, value in properties.items()),
    ]
    return _confirm(
        name,
        "put",
        facts,
        label="Put the message",
        body=as_text(text[:4096]),
        cut=len(text) > 4096,
        hidden={**visit.form, "step": "put"},
        back=_make_path(name, "put"),
    )


def _parse_message(form: Mapping[str, str]) -> NewMessage:
    """The message of the form. Raises Problem that names the field."""
    encoding = form.get("encoding", "json")
    text = form.get("body", "")
    fields: dict[str, Any] = {"encoding": encoding, "body": text}
    if encoding == "json":
        fields["body"] = _parse_json("body", text)
    for name in _FIELDS:
        given = form.get(name, "").strip()
        if given:
            fields[name] = _parse_field(name, given)
    try:
        return msgspec.convert(fields, NewMessage)
    except msgspec.ValidationError as error:
        raise Problem.invalid(str(error)) from None


def _parse_field(name: str, given: str) -> Any:
    if name == "headers":
        return _parse_json(name, given)
    return int(given) if name == "priority" and given.isdecimal() else given


def _parse_json(name: str, given: str) -> Any:
    try:
        return msgspec.json.decode(given)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Problem.invalid(
            f"{name}: it is not JSON: {error}; choose another encoding for text"
        ) from None
