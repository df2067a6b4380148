"""A shop in Django, whose orders are packed by tasks."""
