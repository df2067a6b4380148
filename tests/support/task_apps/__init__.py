"""Applications of task frameworks, whose tasks note that they ran."""
