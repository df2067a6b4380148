class Streams:
    def __init__(self, c, d): pass
