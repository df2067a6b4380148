"""What manage.py has of the shop."""
