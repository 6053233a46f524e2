"""What holds for all tests: nothing of the user's own files is used."""

import os

os.environ.setdefault("EVALTAP_JUDGE_CACHE", "off")
