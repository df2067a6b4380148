"""The real queue held against a plain-Python model of what it must do."""
