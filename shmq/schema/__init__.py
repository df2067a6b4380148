"""What the bodies of a queue, or the values of a stream, are to be like: schemas and versions."""
