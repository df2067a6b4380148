"""The handlers of remote requests that the engine does not answer, one module a subject."""
