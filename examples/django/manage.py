"""The command of the project: ``python -m examples.django.manage``.

python -m examples.django.manage shmq_worker --processes 2
python -m examples.django.manage order tea --count 2
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django.settings")
    execute_from_command_line(sys.argv)
