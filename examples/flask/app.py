"""A Flask application whose mails are sent by workers, not while a visitor waits.

In this folder, after ``pip install shmq flask``:

    flask run                                   # or gunicorn "app:create_app()", with --preload too
    shmq worker app:send -q mails --processes 2
    curl -d to=anna@example.org -d text=Hello localhost:5000/mails      # {"mail": 1}

``FLASK_SHMQ`` says where the queues are: a namespace of this host, or a URL.
"""

from __future__ import annotations

from flask import Flask, abort, jsonify, request
from flask.typing import ResponseReturnValue

import shmq


def create_app() -> Flask:
    """The application; Flask's own factory, so each test makes one with a namespace of its own."""
    app = Flask(__name__)
    app.config.from_prefixed_env()
    broker = shmq.connect(app.config.get("SHMQ"))  # threads and forked children share it
    mails = broker.ensure_queue(
        "mails", if_different="alter", capacity=10_000, max_deliveries=5, dedupe_window=3600
    )

    @app.post("/mails")
    def post() -> ResponseReturnValue:
        """Take a mail; the same ``Idempotency-Key`` again adds none."""
        mail = {"to": request.form["to"], "text": request.form["text"]}  # 400 if one is missing
        key = request.headers.get("Idempotency-Key")
        try:
            put = mails.put(mail, timeout=1.0, dedupe_id=key)
        except shmq.Full:  # the workers are far behind
            abort(503)
        return jsonify(mail=put.sequence), 200 if put.duplicate else 202

    @app.get("/health")
    def health() -> ResponseReturnValue:
        """How many mails wait."""
        return jsonify(waiting=mails.qsize())

    return app


def send(message: shmq.Message) -> None:
    """Send a mail. After a kill it may be called again for one: its number is the same."""
    mail = message.body
    if "@" not in mail["to"]:
        raise shmq.Reject(f"{mail['to']!r} is not an address")  # a dead letter: no retry can help
    print(f"mail {message.sequence} to {mail['to']}: {mail['text']}", flush=True)  # or smtplib
