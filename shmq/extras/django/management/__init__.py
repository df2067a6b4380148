"""What manage.py has of shmq."""
