"""What holds for all tests: nothing of the user's own files is used, and no example is timed."""

import os

from hypothesis import settings

os.environ.setdefault("EVALTAP_JUDGE_CACHE", "off")

settings.register_profile("evaltap", deadline=None)
settings.load_profile("evaltap")
